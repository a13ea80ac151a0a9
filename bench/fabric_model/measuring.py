"""The figures of one round: transfers load the links that they cross, and the slowest one limits its group."""

import collections
import math
import random

from fabric_model.faults import FLEET, TROUBLE, WORDS

LARGE = 12
"""A straggler slows only groups of at least so many nodes."""


class Fabric:
    """Answers requests of gpuops for one setting and its faults; always the same for the same request and round."""

    def __init__(self, setting, faults):
        self.setting, self.faults = setting, faults
        self._index = {name: number for number, name in enumerate(setting.names)}
        rng = random.Random(f"{setting.cell}/{setting.nodes}/{setting.seed}/parts")
        self._nic = {
            (node, rail): 1 + setting.nic_spread * max(-2.0, min(1.0, rng.gauss(0, 1)))  # beyond that it is a fault
            for node in range(setting.nodes)
            for rail in range(setting.rails)
        }
        self._inside = [1 + setting.node_spread * max(-2.0, min(2.0, rng.gauss(0, 1))) for _ in range(setting.nodes)]
        self._lid = {
            port: port[0] % setting.spines if setting.ordered_lids else rng.randrange(setting.spines)
            for port in self._nic
        }
        self.crossed = collections.Counter()  # pairs that used a slow spine link

    def document(self):
        setting = self.setting
        nodes = {}
        for number, name in enumerate(setting.names):
            nics = [
                {
                    "name": nic,
                    "rail": rail,
                    **({"leaf": f"L{setting.leaf(number, rail)}"} if setting.states_leaves else {}),
                }
                for rail, nic in enumerate(setting.nic_names)
            ]
            unit = {"unit": f"U{number // setting.unit}"} if setting.states_units else {}
            nodes[name] = {**unit, "gpus": setting.gpus, "nics": nics}
        return {"nodes": nodes}

    def figures(self, number, groups):
        """Return one figure for each group of round ``number``."""
        rng = random.Random(f"{self.setting.cell}/{self.setting.nodes}/{self.setting.seed}/{number}")
        active = [fault for fault in self.faults if fault.duty is None or rng.random() < fault.duty]
        now = _Round(self.setting, active, number, rng, self._nic, self._lid)
        members = [[self._index[name] for name in group["nodes"]] for group in groups]
        for nodes, group in zip(members, groups, strict=True):
            now.load(nodes, group)
        for fault in active:
            fault.acted += any(
                _acts_on(fault, nodes, group, self.setting) for nodes, group in zip(members, groups, strict=True)
            )
        answers = [self._figure(now, nodes, group) for nodes, group in zip(members, groups, strict=True)]
        for pair in now.crossed:
            self.crossed[tuple(sorted(self.setting.names[node] for node in pair))] += 1
        return answers

    def _figure(self, now, nodes, group):
        for fault in now.broken:
            if _touches(fault, nodes, group):
                return _failed(fault, nodes, group, self.setting)
        setting, whole = self.setting, group["gpus"] is None
        speed = math.inf
        if group["rail"] is None and (len(nodes) == 1 or whole):
            speed = min(self._nvlink(now, node, group) for node in nodes)
        if len(nodes) > 1:
            speed = min(speed, now.network(nodes, group))
        sigma, outliers = (
            (setting.inside_noise, setting.inside_outliers) if len(nodes) == 1 else (setting.noise, setting.outliers)
        )
        speed *= now.drift * _noise(sigma, setting.freedom, now.rng)
        if outliers and now.rng.random() < outliers:
            speed *= 1 - now.rng.uniform(0.2 if len(nodes) == 1 else 0.1, 0.4)
        return {"gb_per_s": round(speed, 4), "trouble": "", "detail": ""}

    def _nvlink(self, now, node, group):
        setting, gpus = self.setting, group["gpus"]
        if group["variant"] == "no-p2p":
            speed = setting.ring / 12
        elif gpus is not None and len(gpus) <= setting.gpus // 2:
            speed = setting.ring * setting.few
        else:
            speed = setting.sharp if group["variant"] == "" and gpus is None else setting.ring
        for fault in now.inside.get(node, ()):
            if _slows_inside(fault, gpus, group["variant"]):
                speed *= fault.kept
        return speed * self._inside[node]


class _Round:
    """The links of one round: what every group sends over them, and what then remains for each."""

    def __init__(self, setting, active, number, rng, nic, lid):
        self.setting, self.rng, self._nic, self._lid, self._number = setting, rng, nic, lid, number
        level = math.exp(-number / abs(setting.drift_rounds)) if setting.drift_rounds > 0 else 1 - 0.9**number
        self.drift = 1 - setting.drift * level
        self.broken = [fault for fault in active if fault.kind in TROUBLE]
        self.crossed = set()
        self.inside = collections.defaultdict(list)
        self._ports, self._stragglers = {}, {}
        self._leaves, self._uplinks, self._slow_links = {}, {}, {}
        self._spread = 1.0
        for fault in active:
            self._inject(fault)
        self._loads = {}
        self._transfers, self._shares = {}, {}
        self._taken = self._tenants()

    def _inject(self, fault):
        if fault.kind in ("nic", "pcie"):
            self._ports[fault.node, fault.rail, fault.kind == "pcie"] = fault.kept
        elif fault.kind in ("node", "fleet-half"):
            every = ((node, rail) for node in fault.nodes or (fault.node,) for rail in range(self.setting.rails))
            self._ports |= {(node, rail, False): fault.kept for node, rail in every}
        elif fault.kind in ("leaf", "uplink"):
            (self._leaves if fault.kind == "leaf" else self._uplinks)[fault.leaf] = fault.kept
        elif fault.kind == "spine":
            self._slow_links[fault.leaf, fault.spine] = fault.kept
        elif fault.kind == "straggler":
            self._stragglers[fault.node] = fault.kept
        elif fault.kind == "fleet-slow":
            self._spread = fault.kept
        if fault.node is not None:
            self.inside[fault.node].append(fault)

    def _tenants(self):
        """Return the remaining fraction of each link between a leaf and a spine that another job uses now."""
        remaining = {}
        for tenant in self.setting.tenants:
            is_on = tenant.first <= self._number < tenant.last
            if tenant.bursts is not None:
                is_on = self.rng.random() < tenant.bursts
            taken = tenant.taken * self.rng.uniform(0.6, 1.0)
            used = range(self.setting.spines)
            if self.setting.routing != "adaptive":
                used = self.rng.sample(used, max(1, self.setting.spines // 2))
            for spine in used if is_on else ():
                remaining[tenant.leaf, spine] = remaining.get((tenant.leaf, spine), 1.0) * (1 - taken)
        return remaining

    def load(self, nodes, group):
        """Put the transfers of a group on their links."""
        setting = self.setting
        loads, rails = self._loads, range(setting.rails) if group["rail"] is None else (group["rail"],)
        for one, other in _hops(nodes):
            if one // setting.unit == other // setting.unit:
                continue
            for rail in rails:
                paths = self._paths(one, other, rail)
                self._transfers[one, other, rail] = paths
                part = 1 / len(paths)
                for link_up, link_down in paths:
                    loads[link_up] = loads.get(link_up, 0.0) + part
                    loads[link_down] = loads.get(link_down, 0.0) + part

    def _paths(self, one, other, rail):
        """Return the links up and down of each flow of a transfer; with adaptive routing, of all links as one."""
        setting = self.setting
        up, down = setting.leaf(one, rail), setting.leaf(other, rail)
        if setting.routing == "adaptive":
            return [((up, -1, "up"), (down, -1, "down"))]
        if setting.routing == "lid":
            spines = [self._lid[other, rail]]
        else:
            spines = [int(self.rng.random() * setting.spines) for _ in range(setting.flows)]
        return [((up, spine, "up"), (down, spine, "down")) for spine in spines]

    def _link(self, link):
        """Return the GB/s that each transfer over a link gets, once every group has loaded its links."""
        if link not in self._shares:
            self._shares[link] = self._share(link)
        return self._shares[link]

    def _share(self, link):
        leaf, spine, _ = link
        setting = self.setting
        if spine >= 0:
            kept = self._taken.get((leaf, spine), 1.0) * self._slow_links.get((leaf, spine), 1.0)
            capacity = setting.uplink_gb_per_s * kept
        else:
            links = range(setting.spines)
            kept = sum(self._taken.get((leaf, s), 1.0) * self._slow_links.get((leaf, s), 1.0) for s in links)
            capacity = setting.uplink_gb_per_s * kept
        return capacity / max(1.0, self._loads[link])

    def _transfer(self, one, other, rail):
        setting, ports = self.setting, self._ports
        sends = self._nic[one, rail] * ports.get((one, rail, False), 1.0) * ports.get((one, rail, True), 1.0)
        receives = self._nic[other, rail] * ports.get((other, rail, False), 1.0)
        leaves = setting.leaf(one, rail), setting.leaf(other, rail)
        switches = min(self._leaves.get(leaf, 1.0) for leaf in leaves)
        speed = setting.line * min(sends, receives)
        paths = self._transfers.get((one, other, rail), ())
        if paths:
            flows = [min(self._link(up), self._link(down), setting.line) for up, down in paths]
            speed = min(speed, min(flows) * min(self._uplinks.get(leaf, 1.0) for leaf in leaves))
            if self._slow_links and any(link[:2] in self._slow_links for path in paths for link in path):
                self.crossed.add((one, other))
        return speed * switches * self._spread

    def network(self, nodes, group):
        setting = self.setting
        rails = range(setting.rails) if group["rail"] is None else (group["rail"],)
        speed = min(self._transfer(one, other, rail) for one, other in _hops(nodes) for rail in rails)
        speed *= setting.efficiency * len(rails)
        if group["rail"] is None:
            speed *= setting.pair_gain if len(nodes) == 2 else 1.0
        if len(nodes) > 2:
            speed *= 1 - setting.loss_by_size * math.log2(len(nodes))
        if len(nodes) >= LARGE and self._stragglers:
            speed *= min(self._stragglers.get(node, 1.0) for node in nodes)
        return speed


def _hops(nodes):
    """Yield sender and receiver of each transfer of a ring."""
    if len(nodes) > 1:
        yield from zip(nodes, (*nodes[1:], nodes[0]), strict=True)


def _noise(scale, freedom, rng):
    """Return a factor about 1 whose tails are those of Student's t."""
    value = rng.gauss(0, 1) / math.sqrt(rng.gammavariate(freedom / 2, 2 / freedom))
    return max(0.05, 1 + scale * max(-15.0, min(3.0, value)))


def _slows_inside(fault, gpus, variant):
    """Return True if a group of ``gpus`` (None: all) of the faulty node runs over what is slow in it."""
    if fault.kind == "gpu":
        return gpus is None or fault.gpu in gpus
    if fault.kind == "nvswitch":
        return gpus is None and (variant == "" or not fault.nvls_only)
    return fault.kind == "node" or (fault.kind == "load" and gpus is None)


def _acts_on(fault, nodes, group, setting):
    """Return True if a group runs over the part that a fault slows; known of what can flap: GPUs, NICs and uplinks."""
    rails = (None, fault.rail)
    if fault.kind == "gpu":
        return nodes == [fault.node] and _slows_inside(fault, group["gpus"], group["variant"])
    if fault.kind == "nic":
        return fault.node in nodes and len(nodes) > 1 and group["rail"] in rails
    if fault.kind == "uplink":
        of = {node // setting.unit for node in nodes}
        leaves = {setting.leaf(fault.unit * setting.unit, rail) for rail in range(setting.rails)}
        if group["rail"] is not None:
            leaves = {setting.leaf(fault.unit * setting.unit, group["rail"])}
        return len(of) > 1 and fault.unit in of and fault.leaf in leaves
    return True


def _touches(fault, nodes, group):
    """Return True if a group uses what is broken."""
    is_between = len(nodes) > 1
    if fault.kind in FLEET:
        return fault.kind == "fleet-wrong" or is_between
    if fault.node not in nodes or fault.kind in ("dead", "hung"):
        return fault.node in nodes
    if fault.kind == "no-gpudirect" or (group["rail"] is None and fault.gpu is None):
        return is_between
    if group["rail"] is not None:
        return fault.rail == group["rail"]
    return group["gpus"] is None or fault.gpu in group["gpus"]


def _failed(fault, nodes, group, setting):
    names = {"node": setting.names[fault.node] if fault.node is not None else setting.names[nodes[0]]}
    names["rank"] = nodes.index(fault.node) * setting.gpus + (fault.gpu or 0) if fault.node in nodes else 0
    names["nic"] = setting.nic_names[fault.rail if fault.rail is not None else 0]
    names["rail"] = fault.rail or 0
    trouble, speed = TROUBLE[fault.kind], None
    if trouble in ("socket", "no-gpudirect"):
        speed = round(setting.line * (0.08 if trouble == "socket" else 0.4), 2)
    if trouble == "wrong":
        speed = round(setting.line * 0.9, 2)
    return {"gb_per_s": speed, "trouble": trouble, "detail": WORDS[fault.kind].format(**names)}

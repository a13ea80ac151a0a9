"""Faults of a simulated fabric: where they are, how much they take away, when they act, and what an engine says."""

import dataclasses
import random

SLOW = ("nic", "pcie", "leaf", "uplink", "gpu", "node", "nvswitch", "load", "straggler")
"""The kinds that make something slow; "load" is a GPU that throttles only while all GPUs of its node work."""
BROKEN = ("rank", "dead", "hung", "hca-error", "hca-socket", "no-gpudirect", "wrong")
FLEET = ("fleet-socket", "fleet-wrong", "fleet-error", "fleet-slow", "fleet-half")
KINDS = (*SLOW, *BROKEN, *FLEET, "flapping", "spine")
WORDS = {
    "rank": "socketProgress: Connection closed by remote peer; ncclRemoteError: rank {rank} exited",
    "dead": "socketPollConnect: connect to {node} failed: No route to host",
    "hung": "Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE) ran for 120000 milliseconds",
    "hca-error": "NET/IB : {nic}:1 Got completion from peer with status=IBV_WC_RETRY_EXC_ERR(12) vendor err 129",
    "hca-socket": "NET/IB : No device found; NET/Socket : Using [0]eth0 on {node}",
    "no-gpudirect": "via NET/IB/{rail} on {node}, without GDRDMA: nv_peer_mem is not loaded",
    "wrong": "Out of bounds values : 2097152 FAILED",
    "fleet-socket": "NET/IB : No device found; NET/Socket : Using [0]eth0",
    "fleet-wrong": "Out of bounds values : 8388608 FAILED",
    "fleet-error": "ncclInternalError: undefined symbol: ncclCommWindowRegister, version 2.26.2+cuda12.4",
}
TROUBLE = {
    "rank": "error", "dead": "unreachable", "hung": "hang", "hca-error": "error", "hca-socket": "socket",
    "no-gpudirect": "no-gpudirect", "wrong": "wrong",
    "fleet-socket": "socket", "fleet-wrong": "wrong", "fleet-error": "error",
}  # fmt: skip


@dataclasses.dataclass
class Fault:
    """``names`` are the parts that name it; ``related`` are parts of which no one can say that they are well.

    ``acted`` counts the rounds in which it acted on a group that ran over it.
    """

    kind: str
    percent: float
    part: str
    names: list
    related: list
    node: int | None = None
    rail: int | None = None
    gpu: int | None = None
    leaf: int | None = None
    unit: int | None = None
    spine: int | None = None
    duty: float | None = None
    nodes: frozenset = frozenset()
    nvls_only: bool = False
    acted: int = 0

    @property
    def kept(self):
        return 1 - self.percent / 100


def draw_faults(setting, wish=None):
    """Draw the faults of the setting's cell. ``wish`` is None, "none", "strong", "mild", or (kind, percent)."""
    rng = random.Random(f"{setting.cell}/{setting.nodes}/{setting.seed}/faults")
    if wish is None:
        wish = rng.choice(("none", "strong", "strong", "mild"))
    if wish == "none":
        return []
    if isinstance(wish, tuple):
        return [_fault(setting, wish[0], wish[1], rng)]
    cell = setting.cell
    if cell == "fleet":
        return [_fault(setting, rng.choice(FLEET), rng.uniform(15, 60), rng)]
    if cell == "spine":
        return [_fault(setting, "spine", rng.uniform(30, 80), rng)]
    if cell == "flapping":
        return [_fault(setting, "flapping", rng.uniform(20, 60) if wish == "strong" else 30, rng)]
    return _several(setting, wish, rng)


def _several(setting, wish, rng):
    count = min(rng.choice((1, 1, 1, 2, 3, 5)), max(1, setting.nodes // 8))
    if setting.cell == "mixed" and rng.random() < 0.15:  # a bad batch: up to half of the nodes
        count = max(1, round(setting.nodes * rng.uniform(0, 0.5)))
    kinds = BROKEN if setting.cell == "errors" else SLOW
    batch = (rng.choice(("nic", "gpu", "pcie")), _percent(wish, rng)) if count > 5 else None
    faults = []
    for _ in range(8 * count):
        kind, percent = batch or (rng.choice(kinds), _percent(wish, rng))
        if setting.cell == "mixed" and rng.random() < 0.1:
            kind = rng.choice(("flapping", "spine", *BROKEN))
        fault = _fault(setting, kind, percent, rng)
        if len(faults) < count and not any(_hide_each_other(fault, other, setting) for other in faults):
            faults.append(fault)
    return faults


def _percent(wish, rng):
    return rng.uniform(3, 9.5) if wish == "mild" else rng.choice((rng.uniform(10, 20), rng.uniform(10, 60)))


def _hide_each_other(one, other, setting):
    """Two faults on one path: of such a pair only the worse one can be seen."""
    if one.node is not None and other.node is not None:
        return one.node == other.node
    return bool(_units(one, setting) & _units(other, setting))


def _units(fault, setting):
    if fault.leaf is not None:
        return {fault.leaf // setting.rails if setting.leaf_per_rail else fault.leaf}
    return {fault.unit if fault.unit is not None else fault.node // setting.unit}


def _fault(setting, kind, percent, rng):
    """Make a fault of this kind; where the fabric has no such part, or nothing healthy beside it, a NIC."""
    if kind in TROUBLE:
        percent = 100
    if kind.startswith("fleet"):
        return _fleet(setting, kind, percent, rng)
    if kind == "flapping":
        fault = _fault(setting, rng.choice(("nic", "nic", "gpu", "uplink")), percent, rng)
        fault.duty = rng.uniform(0.3, 0.6)
        return fault
    if kind == "leaf" and (setting.leaf_per_rail or setting.units > 2):
        return _of_a_leaf(setting, percent, rng.randrange(setting.leaves))
    if kind in ("uplink", "spine") and setting.units > (1 if setting.leaf_per_rail or kind == "spine" else 2):
        return _of_the_spine(setting, kind, percent, rng)
    if kind == "straggler" and setting.nodes < 16:
        kind = "node"
    return _of_a_node(setting, "nic" if kind in ("leaf", "uplink", "spine") else kind, percent, rng)


def _of_a_node(setting, kind, percent, rng):
    node, rail, gpu = rng.randrange(setting.nodes), rng.randrange(setting.rails), rng.randrange(setting.gpus)
    name = setting.names[node]
    nic, on_gpu = f"{name}:{setting.nic_names[rail]}", f"{name}:gpu{gpu}"
    every = [name, *(f"{name}:gpu{i}" for i in range(setting.gpus)), *(f"{name}:{n}" for n in setting.nic_names)]
    fault = Fault(kind, percent, name, [name], every, node=node)
    if kind in ("nic", "pcie", "hca-error", "hca-socket"):
        fault.part, fault.names, fault.rail, fault.related = nic, [nic], rail, [name, nic]
    elif kind in ("gpu", "load", "rank", "wrong"):
        fault.part, fault.names, fault.gpu = on_gpu, [on_gpu], gpu
        if kind == "load":
            fault.names = [on_gpu, name]  # while any pair of its GPUs is fast, nobody can tell which it is
        if kind in ("rank", "wrong") and gpu < setting.rails:
            fault.rail = gpu
    elif kind == "nvswitch":
        fault.nvls_only = rng.random() < 0.5
    return fault


def _of_a_leaf(setting, percent, leaf):
    part = f"leaf:L{leaf}"
    names, unit = [part], leaf // setting.rails if setting.leaf_per_rail else leaf
    related = [f"unit:U{unit}/rail{rail}" for rail in range(setting.rails)] if setting.nodes <= setting.unit else []
    return Fault("leaf", percent, part, names, [part, *related], leaf=leaf)


def _of_the_spine(setting, kind, percent, rng):
    unit, rail = rng.randrange(setting.units), rng.randrange(setting.rails)
    leaf = setting.leaf(unit * setting.unit, rail)
    parts = [f"unit:U{unit}/rail{rail}"]
    if not setting.leaf_per_rail:  # one leaf carries every rail of the unit
        parts = [f"unit:U{unit}/rail{number}" for number in range(setting.rails)]
    if setting.units == 2:  # each transfer across crosses both units and the spine: no figure tells these apart
        parts += [part.replace(f"U{unit}/", f"U{1 - unit}/") for part in parts]
    if kind == "uplink":
        names = [*parts, "spine"] if setting.units == 2 else parts
        return Fault("uplink", percent, parts[0], names, parts, leaf=leaf, unit=unit)
    spine = rng.randrange(setting.spines)
    names = [f"link:L{leaf}-S{spine}", "spine", *parts]  # the link is one of those that join the unit to the spine
    return Fault("spine", percent, names[0], names, names, leaf=leaf, unit=unit, spine=spine)


def _fleet(setting, kind, percent, rng):
    nodes = frozenset(range(setting.nodes))
    if kind == "fleet-half":
        nodes = frozenset(rng.sample(range(setting.nodes), max(1, setting.nodes // 2)))
    related = []
    if kind == "fleet-half":
        for node in nodes:
            name = setting.names[node]
            related += [name, *(f"{name}:{nic}" for nic in setting.nic_names)]
    return Fault(kind, percent, "fleet", ["fleet"], related, nodes=nodes)

"""The results that a fabric with faults and disturbances would give, computed from the load on each link.

Within a node all GPUs together have NVLink SHARP's bandwidth, and up to half of them a ring's. Between nodes each
transfer has at most its NICs' line rate. If it leaves its unit, it gets an equal share of its leaves' bandwidth towards
the spine, together with every other transfer of the same round. A group is a ring on each rail, as fast as its worst
transfer: ``min(NVLink, e g r)``, with twice the network's part for two full nodes (NCCL's tree).
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuops.isolation.fabric import Fabric
from gpuops.isolation.faults import FabricFault, fabric_leaves, resolve
from gpuops.isolation.rounds import GroupResult, RankGroup, Round

NVLS_GB_PER_S = 478.0
"""8 H100 with NVLink SHARP, 8 GiB (Azure's benchmarking guide, ND H100 v5)."""
RING_GB_PER_S = 363.0
"""H100 or H200 without NVLink SHARP, or with too few GPUs for it."""
NO_P2P_GB_PER_S = 30.0
EFFICIENCY = 0.97
"""The fraction of the line rate that an all-reduce reaches: 193.7 of 200 Gbit/s were seen on the NIC (EFA, p5en)."""


@dataclass(frozen=True)
class Tenant:
    """Another user's traffic: it takes the fraction ``ratio`` of the uplinks of ``leaf`` in some rounds."""

    leaf: str
    ratio: float
    rounds: range


@dataclass(frozen=True)
class Disturbances:
    """Effects that make healthy parts look slow.

    ``noise`` is the relative standard deviation of each result. ``collisions`` is the chance that a transfer or group
    that crosses units has 1/2 (or, one time in four, 1/3) of its bandwidth for one round: flows hashed onto one link.
    Before the fabric is warm all results are lower: by ``drift`` in the first round, and by half as much in each next.
    """

    noise: float = 0.002
    collisions: float = 0.0
    tenants: tuple[Tenant, ...] = ()
    drift: float = 0.0


QUIET = Disturbances()


class Simulation:
    """An engine without machines: it measures round after round on a fabric with faults."""

    def __init__(
        self,
        fabric: Fabric,
        faults: Sequence[FabricFault] = (),
        disturbances: Disturbances = QUIET,
        *,
        oversubscription: float = 1.0,
        reports_missing: bool = True,
        seed: int = 0,
    ) -> None:
        """``reports_missing``: a hang names the node or GPU that did not arrive, as an engine sometimes can."""
        self._fabric = fabric
        self._disturbances = disturbances
        self._reports_missing = reports_missing
        self._random = random.Random(seed)  # noqa: S311 - reproducible on purpose
        self._remaining = _Remaining(fabric, faults)
        self._rounds = 0
        self._uplink = {leaf: gb_per_s / oversubscription for leaf, gb_per_s in _port_rates(fabric).items()}

    def measure(self, planned: Round) -> tuple[GroupResult, ...]:
        """Return one result per group, in order; every group's transfers load the fabric at the same time."""
        loads = Counter(leaf for group in planned.groups for leaf in self._leaves_crossed(group))
        spine_gb_per_s = {leaf: self._available(leaf) / load for leaf, load in loads.items()}
        drift = 1 - self._disturbances.drift * 0.5**self._rounds
        self._rounds += 1
        return tuple(self._figure(group, spine_gb_per_s, drift) for group in planned.groups)

    def _leaves_crossed(self, group: RankGroup) -> Iterator[str]:
        """Yield a leaf for each time that one of the group's transfers crosses its uplinks."""
        for one, other in _hops(group):
            if self._crosses(one, other):
                for rail in self._rails(group):
                    yield self._remaining.leaves[one, rail]
                    yield self._remaining.leaves[other, rail]

    def _available(self, leaf: str) -> float:
        ratios = [t.ratio for t in self._disturbances.tenants if t.leaf == leaf and self._rounds in t.rounds]
        return self._uplink[leaf] * math.prod(1 - ratio for ratio in ratios)

    def _crosses(self, one: str, other: str) -> bool:
        return self._fabric.unit_of[one] != self._fabric.unit_of[other]

    def _rails(self, group: RankGroup) -> tuple[int, ...]:
        return self._fabric.rails if group.rail is None else (group.rail,)

    def _figure(self, group: RankGroup, spine_gb_per_s: dict[str, float], drift: float) -> GroupResult:
        net = self._net(group, spine_gb_per_s) if len(group.nodes) > 1 else math.inf
        gb_per_s = net if group.rail is not None else min(net, self._nvlink(group))
        if not gb_per_s:
            return GroupResult(group, None, "hang", self._missing(group))
        return GroupResult(group, gb_per_s * drift * (1 + self._random.gauss(0, self._disturbances.noise)))

    def _nvlink(self, group: RankGroup) -> float:
        few = bool(group.gpus) and len(group.gpus) <= len(self._fabric.nodes[group.nodes[0]].gpus) / 2
        full = RING_GB_PER_S if few or group.variant == "ring" else NVLS_GB_PER_S
        if group.variant == "no-p2p":
            full = NO_P2P_GB_PER_S
        return full * min(self._remaining.nvlink(node, group.gpus) for node in group.nodes)

    def _net(self, group: RankGroup, spine_gb_per_s: dict[str, float]) -> float:
        rails = self._rails(group)
        hops = list(_hops(group))
        slowest = min(self._transfer(one, other, rail, spine_gb_per_s) for one, other in hops for rail in rails)
        if any(self._crosses(*hop) for hop in hops) and self._random.random() < self._disturbances.collisions:
            slowest /= 3 if self._random.random() < 0.25 else 2
        if group.rail is not None:
            return EFFICIENCY * slowest
        ranks = sum(len(self._fabric.nodes[node].gpus) for node in group.nodes)
        return EFFICIENCY * len(rails) * slowest * (2 * (ranks - 1) / ranks if len(group.nodes) == 2 else 1)

    def _transfer(self, one: str, other: str, rail: int, spine_gb_per_s: dict[str, float]) -> float:
        """Return the GB/s of a transfer between two nodes on one rail."""
        remaining = self._remaining
        near, far = remaining.leaves[one, rail], remaining.leaves[other, rail]
        line_rate = min(remaining.line_rates[one, rail], remaining.line_rates[other, rail])
        ports = min(remaining.port_ratios.get((one, rail), 1.0), remaining.port_ratios.get((other, rail), 1.0))
        near_leaf, far_leaf = (remaining.leaf_ratios.get(leaf, 1.0) for leaf in (near, far))
        if not self._crosses(one, other):
            return line_rate * min(ports, near_leaf)
        spine_rate = min(line_rate, spine_gb_per_s[near], spine_gb_per_s[far])
        uplinks = min(remaining.uplink_ratios.get((self._fabric.unit_of[node], rail), 1.0) for node in (one, other))
        return min(line_rate * ports, spine_rate * min(uplinks, near_leaf, far_leaf))

    def _missing(self, group: RankGroup) -> tuple[str, ...]:
        return tuple(self._remaining.missing_members(group)) if self._reports_missing else ()


class _Remaining:
    """The remaining fraction of each part's bandwidth, and the leaf that each port is cabled to."""

    def __init__(self, fabric: Fabric, faults: Sequence[FabricFault]) -> None:
        ports = [(node.name, nic) for node in fabric.nodes.values() for nic in node.nics]
        self.leaves = {(name, nic.rail): str(nic.leaf) for name, nic in ports}
        self.line_rates = {(name, nic.rail): nic.gb_per_s for name, nic in ports}
        self.node_ratios: dict[str, float] = {}
        self.gpu_ratios: dict[str, dict[int, float]] = {}
        self.port_ratios: dict[tuple[str, int], float] = {}
        self.leaf_ratios: dict[str, float] = {}
        self.uplink_ratios: dict[tuple[str, int], float] = {}
        for fault in sorted(faults, key=lambda fault: -fault.remaining_ratio):  # the worst one last, so that it stays
            self._inject(fault, fabric)

    def _inject(self, fault: FabricFault, fabric: Fabric) -> None:
        location = resolve(fault.part, fabric)
        if location.leaf is not None:
            self.leaf_ratios[location.leaf] = fault.remaining_ratio
        elif location.unit is not None and location.rail is not None:
            self.uplink_ratios[location.unit, location.rail] = fault.remaining_ratio
        elif location.node is not None and location.gpu is not None:
            self.gpu_ratios.setdefault(location.node, {})[location.gpu] = fault.remaining_ratio
        elif location.node is not None and location.rail is not None:
            self.port_ratios[location.node, location.rail] = fault.remaining_ratio
        elif location.node is not None:
            self.node_ratios[location.node] = fault.remaining_ratio
            nics = fabric.nodes[location.node].nics
            self.port_ratios |= {(location.node, nic.rail): fault.remaining_ratio for nic in nics}

    def nvlink(self, node: str, gpus: tuple[int, ...]) -> float:
        """Return the lowest fraction of the node's GPUs (all, if ``gpus`` is empty)."""
        ratios = [ratio for gpu, ratio in self.gpu_ratios.get(node, {}).items() if not gpus or gpu in gpus]
        return min([*ratios, self.node_ratios.get(node, 1.0)])

    def missing_members(self, group: RankGroup) -> Iterator[str]:
        """Yield the group's nodes that hang, and if it runs over NVLink, its GPUs that hang."""
        for node in group.nodes:
            if not self.node_ratios.get(node, 1.0):
                yield node
            elif group.rail is None:
                hanging = [gpu for gpu, ratio in self.gpu_ratios.get(node, {}).items() if not ratio]
                yield from (f"{node}:gpu{gpu}" for gpu in hanging if not group.gpus or gpu in group.gpus)


def _hops(group: RankGroup) -> Iterator[tuple[str, str]]:
    """Yield the neighbours in the ring; two nodes are one pair."""
    nodes = group.nodes
    if len(nodes) > 1:
        yield from itertools.pairwise(nodes)
    if len(nodes) > 2:
        yield nodes[-1], nodes[0]


def _port_rates(fabric: Fabric) -> dict[str, float]:
    """Return the GB/s of all of a leaf's ports together."""
    rates = dict.fromkeys(fabric_leaves(fabric), 0.0)
    for node in fabric.nodes.values():
        for nic in node.nics:
            rates[str(nic.leaf)] += nic.gb_per_s
    return rates

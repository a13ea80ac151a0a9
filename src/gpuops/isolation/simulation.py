"""Simulation: the figures that a fabric with faults and disturbances would give, from the load on each link.

Within a node all GPUs together have NVLink SHARP's bandwidth, and up to half of them a ring's. Between nodes each
transfer has its NICs' line rate at most, and where it leaves its unit an equal share of what its leaves have towards
the spine, together with every other transfer of the same round. A group is a ring on each rail, as fast as its worst
transfer: ``min(NVLink, e g r)``, twice the network's share for two full nodes (NCCL's tree).
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
"""H100 or H200 without NVLink SHARP, or with fewer GPUs than it is used for."""
NO_P2P_GB_PER_S = 30.0
EFFICIENCY = 0.97
"""What of the line rate an all-reduce reaches: 193.7 of 200 Gbit/s were seen on the NIC (EFA, p5en)."""


@dataclass(frozen=True)
class Tenant:
    """Somebody else's traffic: it takes ``share`` of what ``leaf`` has towards the spine in some rounds."""

    leaf: str
    share: float
    rounds: range


@dataclass(frozen=True)
class Disturbances:
    """What makes healthy parts look slow.

    ``noise`` is the relative standard deviation of each figure. ``collisions`` is the chance that a transfer or group
    that crosses units has 1/2 (or, one time in four, 1/3) of its bandwidth for one round: flows hashed onto one link.
    Before the fabric is warm all figures are lower: by ``drift`` in the first round, by half as much in each next.
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
        tells_absent: bool = True,
        seed: int = 0,
    ) -> None:
        """``tells_absent``: a hang names the node or GPU that did not arrive, as an engine sometimes can."""
        self._fabric = fabric
        self._disturbances = disturbances
        self._tells_absent = tells_absent
        self._random = random.Random(seed)  # noqa: S311 - reproducible on purpose
        self._left = _Left(fabric, faults)
        self._rounds = 0
        self._uplink = {leaf: gb_per_s / oversubscription for leaf, gb_per_s in _port_rates(fabric).items()}

    def measure(self, planned: Round) -> tuple[GroupResult, ...]:
        """One figure a group, in order; every group's transfers load the fabric at the same time."""
        loads = Counter(leaf for group in planned.groups for leaf in self._leaves_passed(group))
        shares = {leaf: self._available(leaf) / load for leaf, load in loads.items()}
        drift = 1 - self._disturbances.drift * 0.5**self._rounds
        self._rounds += 1
        return tuple(self._figure(group, shares, drift) for group in planned.groups)

    def _leaves_passed(self, group: RankGroup) -> Iterator[str]:
        """A leaf for each time that one of the group's transfers passes between it and the spine."""
        for one, other in _hops(group):
            if self._crosses(one, other):
                for rail in self._rails(group):
                    yield self._left.leaves[one, rail]
                    yield self._left.leaves[other, rail]

    def _available(self, leaf: str) -> float:
        taken = [t.share for t in self._disturbances.tenants if t.leaf == leaf and self._rounds in t.rounds]
        return self._uplink[leaf] * math.prod(1 - share for share in taken)

    def _crosses(self, one: str, other: str) -> bool:
        return self._fabric.unit_of[one] != self._fabric.unit_of[other]

    def _rails(self, group: RankGroup) -> tuple[int, ...]:
        return self._fabric.rails if group.rail is None else (group.rail,)

    def _figure(self, group: RankGroup, shares: dict[str, float], drift: float) -> GroupResult:
        net = self._net(group, shares) if len(group.nodes) > 1 else math.inf
        gb_per_s = net if group.rail is not None else min(net, self._nvlink(group))
        if not gb_per_s:
            return GroupResult(group, None, "hang", self._absent(group))
        return GroupResult(group, gb_per_s * drift * (1 + self._random.gauss(0, self._disturbances.noise)))

    def _nvlink(self, group: RankGroup) -> float:
        few = bool(group.gpus) and len(group.gpus) <= len(self._fabric.nodes[group.nodes[0]].gpus) / 2
        full = RING_GB_PER_S if few or group.variant == "ring" else NVLS_GB_PER_S
        if group.variant == "no-p2p":
            full = NO_P2P_GB_PER_S
        return full * min(self._left.nvlink(node, group.gpus) for node in group.nodes)

    def _net(self, group: RankGroup, shares: dict[str, float]) -> float:
        rails = self._rails(group)
        hops = list(_hops(group))
        slowest = min(self._transfer(one, other, rail, shares) for one, other in hops for rail in rails)
        if any(self._crosses(*hop) for hop in hops) and self._random.random() < self._disturbances.collisions:
            slowest /= 3 if self._random.random() < 0.25 else 2
        if group.rail is not None:
            return EFFICIENCY * slowest
        ranks = sum(len(self._fabric.nodes[node].gpus) for node in group.nodes)
        return EFFICIENCY * len(rails) * slowest * (2 * (ranks - 1) / ranks if len(group.nodes) == 2 else 1)

    def _transfer(self, one: str, other: str, rail: int, shares: dict[str, float]) -> float:
        """GB/s of a transfer between two nodes on one rail."""
        left = self._left
        near, far = left.leaves[one, rail], left.leaves[other, rail]
        line = min(left.line[one, rail], left.line[other, rail])
        parts = min(left.ports.get((one, rail), 1.0), left.ports.get((other, rail), 1.0))
        if not self._crosses(one, other):
            return line * min(parts, left.switches.get(near, 1.0))
        share = min(line, shares[near], shares[far])
        uplinks = min(left.uplinks.get((self._fabric.unit_of[node], rail), 1.0) for node in (one, other))
        return min(line * parts, share * min(uplinks, left.switches.get(near, 1.0), left.switches.get(far, 1.0)))

    def _absent(self, group: RankGroup) -> tuple[str, ...]:
        return tuple(self._left.never_arrive(group)) if self._tells_absent else ()


class _Left:
    """The share of bandwidth that each part leaves, and where each port is cabled to."""

    def __init__(self, fabric: Fabric, faults: Sequence[FabricFault]) -> None:
        ports = [(node.name, nic) for node in fabric.nodes.values() for nic in node.nics]
        self.leaves = {(name, nic.rail): str(nic.leaf) for name, nic in ports}
        self.line = {(name, nic.rail): nic.gb_per_s for name, nic in ports}
        self.nodes: dict[str, float] = {}
        self.gpus: dict[str, dict[int, float]] = {}
        self.ports: dict[tuple[str, int], float] = {}
        self.switches: dict[str, float] = {}
        self.uplinks: dict[tuple[str, int], float] = {}
        for fault in sorted(faults, key=lambda fault: -fault.left):  # the worst one last: it stays
            self._plant(fault, fabric)

    def _plant(self, fault: FabricFault, fabric: Fabric) -> None:
        place = resolve(fault.part, fabric)
        if place.leaf is not None:
            self.switches[place.leaf] = fault.left
        elif place.unit is not None and place.rail is not None:
            self.uplinks[place.unit, place.rail] = fault.left
        elif place.node is not None and place.gpu is not None:
            self.gpus.setdefault(place.node, {})[place.gpu] = fault.left
        elif place.node is not None and place.rail is not None:
            self.ports[place.node, place.rail] = fault.left
        elif place.node is not None:
            self.nodes[place.node] = fault.left
            self.ports |= {(place.node, nic.rail): fault.left for nic in fabric.nodes[place.node].nics}

    def nvlink(self, node: str, gpus: tuple[int, ...]) -> float:
        """Of the node's GPUs (all, if ``gpus`` is empty) the worst."""
        slow = self.gpus.get(node, {})
        return min([left for gpu, left in slow.items() if not gpus or gpu in gpus] + [self.nodes.get(node, 1.0)])

    def never_arrive(self, group: RankGroup) -> Iterator[str]:
        """The group's nodes that hang, and where it runs over NVLink its GPUs that hang."""
        for node in group.nodes:
            if not self.nodes.get(node, 1.0):
                yield node
            elif group.rail is None:
                slow = self.gpus.get(node, {}).items()
                yield from (f"{node}:gpu{g}" for g, left in slow if not left and (not group.gpus or g in group.gpus))


def _hops(group: RankGroup) -> Iterator[tuple[str, str]]:
    """The neighbours in the ring; two nodes are one pair."""
    nodes = group.nodes
    if len(nodes) > 1:
        yield from itertools.pairwise(nodes)
    if len(nodes) > 2:
        yield nodes[-1], nodes[0]


def _port_rates(fabric: Fabric) -> dict[str, float]:
    """GB/s of all of a leaf's ports together."""
    rates = dict.fromkeys(fabric_leaves(fabric), 0.0)
    for node in fabric.nodes.values():
        for nic in node.nics:
            rates[str(nic.leaf)] += nic.gb_per_s
    return rates

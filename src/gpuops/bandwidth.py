"""Expected bandwidth of an all-reduce on given machines, with the formula and its sources; pure.

All figures are bus bandwidth in GB/s as nccl-tests defines it (doc/PERFORMANCE.md: 2·(n-1)/n times payload over time).
Within a node, a profile contains measured values: ``allreduce.<nvls|ring>.<GPUs>: {GiB of payload: GB/s}``. Between
nodes, the model is

    expected = max over algorithms of min( NVLink cap, e · network cap )

For g NICs of r GB/s per node and n ranks, the network cap is g·r for Ring; g·r·(n-1)/n for Tree and NVLSTree, and twice
that for two nodes (one sends what the other reduces, nothing is forwarded); 2·g·r·(n-1)/n for SHARP (the switch
reduces). The caps are derived, e is not: `PRIOR` says which published run each e is fitted to.

Two nodes reach twice the network cap only if NCCL's channels can carry it. A channel is one thread block on each GPU.
NCCL's search (src/graph/search.cc: ncclTopoCompute) gives each NIC one channel of 12, 24 or 48 GB/s, and doubles the
channels that have 25 GB/s or more, on Hopper and later only up to four of them. One channel carries at most 23.6 GB/s
of a two-node Tree on Ampere, 41.4 on Hopper (src/graph/tuning.cc: perChMaxTreeBws). So 4 HDR NICs make 4 channels, a
Tree gives 4 · 23.6 = 94 GB/s, and NCCL chooses the Ring with 4 · 24 = 96, which is the target that NVIDIA names
(nccl-tests issue 119); 8 HDR NICs give 189 and 192. Slower NICs keep the factor 2: 8 EDR NICs make 8 channels of 12
GB/s, which carry 22 each. NVLSTree has one channel for each NIC, too: with fewer NICs than GPUs it does not reach what
all GPUs reach within a node. Profiles contain these rates: ``allreduce.channel.<tree|nvls>: {nodes: GB/s}``.

The model is valid if NVLink ends inside the node. For machines whose NVLink spans nodes (NVL72), measured values for
the number of ranks count instead, ``allreduce.measured.<ranks>``: 20 racks reached 405 GB/s, the model predicts 840.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from gpuops.profile import GRADES, Expected, Profile

GIB = 1 << 30
Algorithm = Literal["rail", "ring", "tree", "nvls", "sharp", "measured", "pairs"]
"""NCCL's algorithm. ``rail`` is one GPU and one NIC of each node; ``nvls`` between nodes is NVLSTree; ``pairs`` are the
transfers between two ranks that all-to-all and send-receive consist of."""
Operation = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]
Curve = Mapping[float, float]
"""A value by GiB of payload."""

BETWEEN_NODES: tuple[Algorithm, ...] = ("ring", "tree", "nvls", "sharp")
WITHOUT_NVLS: tuple[Algorithm, ...] = ("ring", "tree")
_GUESS = GRADES[-1]


def bus_factor(operation: Operation, ranks: int) -> float:
    """Return the ratio of bus bandwidth to algorithm bandwidth (bytes over seconds), for two or more ``ranks``.

    Source: github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md; there, the size is that of the larger buffer.
    """
    if operation == "send_recv":
        return 1.0
    return (2 if operation == "all_reduce" else 1) * (ranks - 1) / ranks


@dataclass(frozen=True)
class Cap:
    """One cap in GB/s, with its formula (``sum``), the source of its numbers, and the lowest grade among them."""

    name: Literal["NVLink", "channels", "network"]
    gb_per_s: float
    sum: str
    source: str
    grade: str
    efficiency: float = 1.0

    @property
    def floor_gb_per_s(self) -> float:
        """The lowest figure of a healthy machine, as far as published figures show."""
        return self.gb_per_s * (1 - _TOLERANCE.get(self.grade, 0.0))


_TOLERANCE = {"measured-published": 0.15, "guess": 0.2}
"""How far healthy machines are below a cap, as a fraction of it, by the grade of its numbers.

Published machines reach less than the figure of another machine of their type: 200 of 228 GB/s (.877) in an HPE node of
8 A100, 430 of 479 (.898) in a node of 8 H100 with RoCE (docs/allreduce-published.csv). The lowest figure beside a guess
is 320 of 380 (.843), of 4 RoCE nodes whose link layer is unknown. A few machines do not bound the spread, so the
margins below these are our own choice. Figures of the operator's own, a vendor's floor, and a line rate with a learnt e
need no allowance here.
"""


@dataclass(frozen=True)
class ExpectedBandwidth:
    """Expected bandwidth at ``size_bytes``: the lowest of an algorithm's caps (``terms``), named by ``limit``.

    ``grade`` is the lowest grade of all terms: if one cap is a guess, another may not really be the lowest.
    """

    gb_per_s: float
    limit: str
    terms: tuple[Cap, ...]
    grade: str
    algorithm: Algorithm
    size_bytes: int

    @property
    def floor_gb_per_s(self) -> float:
        """The lowest figure that published healthy machines justify: a machine below it is low."""
        return min(term.floor_gb_per_s for term in self.terms)

    @property
    def may_fail(self) -> bool:
        """True if a machine can fail because of this value; a guess can only warn."""
        return self.grade != _GUESS


@dataclass(frozen=True)
class Network:
    """Network of a group: ``nics`` of ``nic_gb_per_s`` on each of ``nodes``, and ``ranks`` in total.

    ``source`` and ``grade`` refer to the rate. ``link_layer`` is ``InfiniBand`` or ``Ethernet``, empty if unknown.
    """

    nodes: int
    ranks: int
    nics: int
    nic_gb_per_s: float
    source: str
    grade: str
    link_layer: str = ""

    @property
    def known(self) -> bool:
        """True if there is a NIC with a known rate."""
        return self.nics > 0 and self.nic_gb_per_s > 0


@dataclass(frozen=True)
class Efficiency:
    """Fraction of its network cap that an algorithm reaches, by GiB of payload; those in ``learnt`` were measured."""

    curves: Mapping[str, Curve] = field(hash=False)
    learnt: frozenset[str] = frozenset()


PRIOR = Efficiency(
    {
        "rail": {1: 0.96},
        "ring": {1: 0.90, 8: 0.96},
        "tree": {1: 0.93, 2: 0.96, 4: 0.97, 8: 0.98},
        "nvls": {1: 0.93, 2: 0.96, 4: 0.97, 8: 0.98},
        "sharp": {1: 0.90, 8: 0.95},
    }
)
"""Efficiency before any measurement on this cluster, so every value that it decides is a guess.

- ``nvls`` is a fit to 8 nodes of 8 H100 (366, 381, 383 and 387 of 394 GB/s at 1, 2, 4 and 8 GiB; coreweave/nccl-tests,
  README.md) and to 4 nodes of 8 B200 (362, 372, 377 and 380 of 387; stas00/ml-engineering, network/README.md).
- ``tree`` is a prediction: the same as NVLSTree, because the same data cross the network.
- ``ring`` at 8 GiB is a fit to NVIDIA's target, 24 GB/s for a NIC of 200 Gbit/s, and to the 96 GB/s that three nodes
  with 4 HDR each reach (nccl-tests issue 119). At 1 GiB it is a prediction, lower because a ring has the most steps.
- ``rail`` is a prediction: one NIC reaches what it reaches in a ring. AWS EFA reached 193.7 of 200 Gbit/s (.969).
- ``sharp`` is a prediction, slightly lower than NVLSTree; no published run names it.
"""

_ETHERNET = 0.90
"""Fraction of the InfiniBand figure that a group of nodes reaches over Ethernet (RoCE), with every algorithm.

A fit to two nodes of 8 H100 with 8 NICs of 400 Gbit/s: 430 GB/s over RoCE (NVIDIA/nccl issue 1221), 470 over InfiniBand
(nccl-tests issue 309) and 479 expected. It predicts 342 for four such nodes, which reached 320. All figures are from
one cluster, whose single nodes are lower too; so what this factor decides is a guess. Rails are pairs on one leaf and
NIC, without the hash collisions of a whole fabric; they keep their own e.
"""
_TREE_WITHIN = 0.92
"""Fraction of a ring's NVLink bandwidth that a tree reaches (NVIDIA/nccl, src/graph/tuning.cc: ncclTopoTuneModel)."""
_PLAUSIBLE = (0.80, 1.02)
"""Range of plausible efficiencies. Outside it, the fabric is unhealthy or not as declared: the lowest published run
with a payload that can be judged has .93, and nothing exceeds the line rate. The bounds are our own choice."""
_LEAST_FIGURES = 3


def min_payload_bytes(ranks: int) -> int:
    """Return the smallest payload that can be judged: 1 GiB or 8 MiB per rank, whichever is larger.

    A small payload measures latency: 8 H100 reached 44 GB/s at 1 MiB, 234 at 16 MiB, 423 at 256 MiB, 466 at 1 GiB and
    479 at 8 GiB (Azure/AI-benchmarking-guide). With more ranks the payload must be larger: 1440 GB200 reached 219 GB/s
    at 1 GiB, 405 at 16 GiB (coreweave/nccl-tests). The exact threshold between those is our own choice.
    """
    return max(GIB, ranks * 8 * (1 << 20))


def within_node(
    profile: Profile, gpus: int, size_bytes: int | None = None, *, nvls: bool = True
) -> ExpectedBandwidth | None:
    """Return the bandwidth of ``gpus`` GPUs in one node, without NVLink SHARP if ``nvls`` is False; None if unknown.

    NCCL uses NVLS with 5 or more GPUs on H100 and H200, with 6 or more on B200, and a ring with fewer (NVIDIA/nccl
    issue 1455; stas00/ml-engineering). So an NVLS value counts only for the number of GPUs that it was measured with. A
    ring's bandwidth hardly depends on the number of GPUs (365 to 370 GB/s for 2 to 8 H100), so the value for another
    number of GPUs is a good guess.
    """
    size = size_bytes or min_payload_bytes(gpus)
    if gpus < 2 or size < min_payload_bytes(gpus):
        return None
    term = _measured(profile, "nvls", gpus, size) if nvls else None
    return _alone(term, "nvls", size) or _alone(_ring(profile, gpus, size), "ring", size)


def between_nodes(
    profile: Profile,
    network: Network,
    size_bytes: int | None = None,
    efficiency: Efficiency = PRIOR,
    algorithms: Collection[Algorithm] = BETWEEN_NODES,
) -> ExpectedBandwidth | None:
    """Return the bandwidth of all GPUs of several identical nodes with the best of ``algorithms``; None if unknown.

    ``sharp`` counts only if the fabric has it (``allreduce.sharp`` in the profile or in a host's ``expect:``).
    """
    size = size_bytes or min_payload_bytes(network.ranks)
    if size < min_payload_bytes(network.ranks):
        return None
    if any(key.startswith("allreduce.measured.") for key in profile.values):
        return _across_domains(profile, network.ranks, size)
    if not network.known:
        return None
    candidates = [
        _lowest(each, profile, network, size, efficiency)
        for each in algorithms
        if each != "sharp" or profile.get("allreduce.sharp")
    ]
    return max(filter(None, candidates), key=lambda each: each.gb_per_s, default=None)


def on_rail(
    network: Network, size_bytes: int | None = None, efficiency: Efficiency = PRIOR
) -> ExpectedBandwidth | None:
    """Return the bandwidth of one GPU and one NIC of each node; without NVLink, the NIC's rate is the cap."""
    size = size_bytes or min_payload_bytes(network.ranks)
    if size < min_payload_bytes(network.ranks) or not network.known:
        return None
    return _alone(_net("rail", replace(network, nics=1), size, efficiency), "rail", size)


def learn(figures: Iterable[tuple[float, ExpectedBandwidth]]) -> Efficiency:
    """Return the efficiencies that follow from pairs of measured and expected bandwidth, and the prior for the rest.

    An efficiency is the median of at least three values with the same payload that are limited by the network. An
    implausible one is not used: a fabric that is slow as a whole must not become its own reference.
    """
    shares: dict[tuple[str, int], list[float]] = {}
    for measured, expected in figures:
        network = expected.terms[-1]
        if expected.limit == network.name == "network":
            key = expected.algorithm, expected.size_bytes
            shares.setdefault(key, []).append(measured * network.efficiency / network.gb_per_s)
    learnt: dict[str, dict[float, float]] = {}
    for (algorithm, size_bytes), ratios in shares.items():
        e = statistics.median(ratios)
        if len(ratios) >= _LEAST_FIGURES and _PLAUSIBLE[0] <= e <= _PLAUSIBLE[1]:
            learnt.setdefault(algorithm, {})[size_bytes / GIB] = e
    return Efficiency({**PRIOR.curves, **learnt}, frozenset(learnt))


def _alone(term: Cap | None, algorithm: Algorithm, size_bytes: int) -> ExpectedBandwidth | None:
    """Return the bandwidth that one cap alone allows."""
    return ExpectedBandwidth(term.gb_per_s, term.name, (term,), term.grade, algorithm, size_bytes) if term else None


def _lowest(
    algorithm: Algorithm, profile: Profile, network: Network, size_bytes: int, efficiency: Efficiency
) -> ExpectedBandwidth | None:
    """Return the bandwidth that the lowest cap of ``algorithm`` allows; None if the NVLink cap is unknown."""
    nvlink, channels = _nvlink(algorithm, profile, network, size_bytes), _channels(algorithm, profile, network)
    if nvlink is None:
        return None
    within = (nvlink, channels) if channels else (nvlink,)
    doubles = algorithm != "tree" or channels is not None  # without the rate of a channel, the safe guess is once
    net = _net(algorithm, network, size_bytes, efficiency, doubles=doubles)
    terms = (*(_over_ethernet(term) if network.link_layer == "Ethernet" else term for term in within), net)
    least = min(terms, key=lambda term: term.gb_per_s)
    poorest = max((term.grade for term in terms), key=GRADES.index)
    return ExpectedBandwidth(least.gb_per_s, least.name, terms, poorest, algorithm, size_bytes)


def _over_ethernet(cap: Cap) -> Cap:
    """Return a cap of InfiniBand machines as a guess for Ethernet."""
    rate, formula = cap.gb_per_s * _ETHERNET, f"{cap.sum} · {_ETHERNET:g} over Ethernet"
    return replace(cap, gb_per_s=rate, sum=formula, grade=_GUESS, efficiency=cap.efficiency * _ETHERNET)


def _channels(algorithm: Algorithm, profile: Profile, network: Network) -> Cap | None:
    """Return what NCCL's channels carry; None if that is unknown, or if NVLSTree has a channel for every GPU."""
    entry = profile.values.get(f"allreduce.channel.{algorithm}")
    if entry is None or (algorithm == "nvls" and network.nics >= network.ranks // network.nodes):
        return None
    doubled = algorithm == "tree" and network.nics <= _MOST_DOUBLED and network.nic_gb_per_s > _DOUBLED_GB_PER_S
    count = network.nics * (2 if doubled else 1)
    rate, _ = _along(_curve(entry, network.nodes), network.nodes)
    return Cap("channels", count * rate, f"{count} channels · {rate:g} GB/s", entry.source, entry.grade)


_MOST_DOUBLED, _DOUBLED_GB_PER_S = 4, 25.0
"""NCCL doubles channels of 25 GB/s or more, on Hopper and later no more than four (src/graph/search.cc:
ncclTopoDupChannels). An HDR NIC has 24 net of protocol, so 25 GB/s of line rate are not doubled."""


def _net(
    algorithm: Algorithm, network: Network, size_bytes: int, efficiency: Efficiency, *, doubles: bool = True
) -> Cap:
    """Return ``e`` times the network cap of ``algorithm``; ``doubles`` if two nodes can reach twice that."""
    e, stretched = _along(efficiency.curves[algorithm], size_bytes / GIB)
    learnt = algorithm in efficiency.learnt and not stretched
    nics = f"{network.nics} · " if network.nics > 1 else ""
    share, factor = _share(algorithm, network, doubles=doubles)
    cap = Cap(
        "network",
        e * share * network.nics * network.nic_gb_per_s,
        f"{nics}{network.nic_gb_per_s:g} GB/s{factor} · e {e:.2f}",
        f"{network.source}; {'e measured on this fleet' if learnt else 'e not yet measured on this fleet'}",
        network.grade if learnt else _GUESS,
        e,
    )
    return _over_ethernet(cap) if network.link_layer == "Ethernet" and algorithm != "rail" and not learnt else cap


def _share(algorithm: Algorithm, network: Network, *, doubles: bool) -> tuple[float, str]:
    """Return the network cap of ``algorithm`` as a multiple of the total NIC rate of a node, and as text."""
    if algorithm in {"rail", "ring"}:
        return 1.0, ""
    twice = 2 if algorithm == "sharp" or (network.nodes == 2 and doubles) else 1
    n = network.ranks
    return twice * (n - 1) / n, f"{' · 2' if twice == 2 else ''} · {n - 1}/{n}"


def _nvlink(algorithm: Algorithm, profile: Profile, network: Network, size_bytes: int) -> Cap | None:
    """Return the NVLink cap of ``algorithm`` on a node of the group."""
    gpus = network.ranks // network.nodes
    if algorithm in {"nvls", "sharp"}:
        return _measured(profile, "nvls", gpus, size_bytes)
    ring = _ring(profile, gpus, size_bytes)
    if ring is None or algorithm == "ring":
        return ring
    return replace(ring, gb_per_s=ring.gb_per_s * _TREE_WITHIN, sum=f"{ring.sum} · {_TREE_WITHIN}", grade=_GUESS)


def _ring(profile: Profile, gpus: int, size_bytes: int) -> Cap | None:
    """Return the cap of a ring of ``gpus`` GPUs, or as a guess that of the closest number that was measured."""
    nearest = min(_counts(profile, "ring"), key=lambda count: (abs(count - gpus), count), default=0)
    term = _measured(profile, "ring", nearest, size_bytes)
    return replace(term, grade=_GUESS) if term and nearest != gpus else term


def _across_domains(profile: Profile, ranks: int, size_bytes: int) -> ExpectedBandwidth | None:
    """Return the measured bandwidth; a guess on a logarithmic scale between two numbers of ranks; None outside."""
    counts = _counts(profile, "measured")
    below, above = max((c for c in counts if c <= ranks), default=0), min((c for c in counts if c >= ranks), default=0)
    low, high = (_measured(profile, "measured", count, size_bytes) for count in (below, above))
    if low is None or high is None or below == above:
        return _alone(low and high, "measured", size_bytes)
    rate, _ = _along({below: low.gb_per_s, above: high.gb_per_s}, ranks)
    between = f"{ranks} ranks, between {low.gb_per_s:.0f} with {below} and {high.gb_per_s:.0f} with {above}"
    return _alone(replace(low, gb_per_s=rate, sum=between, grade=_GUESS), "measured", size_bytes)


def _counts(profile: Profile, family: str) -> list[int]:
    """Return the numbers of GPUs or ranks that the profile has measurements of ``family`` for."""
    keys = (key.split(".") for key in profile.values)
    return sorted(int(key[2]) for key in keys if key[:2] == ["allreduce", family] and key[2:])


def _measured(profile: Profile, family: str, count: int, size_bytes: int) -> Cap | None:
    """Return the profile's value for this payload; below the smallest measured payload it is a guess."""
    entry = profile.values.get(f"allreduce.{family}.{count}")
    if entry is None:
        return None
    gib = size_bytes / GIB
    rate, stretched = _along(_curve(entry, gib), gib)
    formula = f"{count} {_FAMILIES[family]} at {gib:g} GiB"
    return Cap("NVLink", rate, formula, entry.source, _GUESS if stretched else entry.grade)


_FAMILIES = {"nvls": "GPUs with NVLS", "ring": "GPUs in a ring", "measured": "ranks"}


def _curve(entry: Expected, x: float) -> Curve:
    """Return the value as a curve; a host may set a single number, which counts for every ``x``."""
    points = entry.value if isinstance(entry.value, Mapping) else {x: entry.value}
    return {float(key): float(value) for key, value in points.items()}


def _along(curve: Curve, x: float) -> tuple[float, bool]:
    """Return ``curve`` at ``x``, interpolated over log ``x`` and constant outside, and whether ``x`` is below it."""
    points = sorted(curve.items())
    if x < points[0][0]:
        return points[0][1], True
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if x < x1:
            return y0 + (y1 - y0) * math.log(x / x0) / math.log(x1 / x0), False
    return points[-1][1], False

"""Bandwidth: what an all-reduce should give on these machines, with the sum that says so; pure.

All figures are bus bandwidth in GB/s as nccl-tests defines it (doc/PERFORMANCE.md: 2·(n-1)/n times payload over time).
A profile tells what was measured within a node, as ``allreduce.<nvls|ring>.<GPUs>: {GiB of payload: GB/s}``; between
nodes the model is

    expected = max over algorithms of min( NVLink cap, e · network cap )

with, for g NICs of r GB/s a node and n ranks, the network caps Ring g·r; Tree and NVLSTree g·r·(n-1)/n, twice that for
two nodes (one sends what the other reduces, nothing is forwarded); SHARP 2·g·r·(n-1)/n (the switch reduces). They are
derived, and fit two published runs: 8 nodes of 8 H100 gave 386 of 394 GB/s (coreweave/nccl-tests, README.md), 4 nodes
of 8 B200 382 of 387 (stas00/ml-engineering, network/README.md), both at 8 GiB or more.

The model holds where NVLink ends inside the node. A machine whose NVLink spans nodes (NVL72) goes by what was measured
with so many ranks, ``allreduce.measured.<ranks>``: 20 racks gave 405 GB/s where the model says 840.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from gpuops.profile import GRADES, Profile

GIB = 1 << 30
Algorithm = Literal["rail", "ring", "tree", "nvls", "sharp", "measured"]
"""What carries the data. ``rail`` is one GPU and one NIC of each node; ``nvls`` is NVLSTree where it leaves a node."""
Operation = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]
Curve = Mapping[float, float]
"""A value by GiB of payload."""

BETWEEN_NODES: tuple[Algorithm, ...] = ("ring", "tree", "nvls", "sharp")
WITHOUT_NVLS: tuple[Algorithm, ...] = ("ring", "tree")
_GUESS = GRADES[-1]


def bus_factor(operation: Operation, ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth (bytes over seconds), for ``ranks`` of 2 and more.

    Source: github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md; the size is that of the larger of both buffers there.
    """
    if operation == "send_recv":
        return 1.0
    return (2 if operation == "all_reduce" else 1) * (ranks - 1) / ranks


@dataclass(frozen=True)
class Cap:
    """One cap in GB/s: how it is reckoned, in words, where its numbers were read, and the poorest grade among them."""

    name: Literal["NVLink", "network"]
    gb_per_s: float
    sum: str
    source: str
    grade: str
    efficiency: float = 1.0


@dataclass(frozen=True)
class ExpectedBandwidth:
    """What is expected at ``size_bytes``: the least of an algorithm's caps (``terms``), and which that is (``limit``).

    ``grade`` is the poorest of the terms: with a cap that is guessed, another may not really be the least.
    """

    gb_per_s: float
    limit: str
    terms: tuple[Cap, ...]
    grade: str
    algorithm: Algorithm
    size_bytes: int

    @property
    def may_fail(self) -> bool:
        """Whether a machine may fail by this figure; by a guess it is warned of, and no more."""
        return self.grade != _GUESS


@dataclass(frozen=True)
class Network:
    """How a group meets the network: ``nics`` of ``nic_gb_per_s`` on each of ``nodes``, ``ranks`` in all.

    ``source`` and ``grade`` are those of the rate.
    """

    nodes: int
    ranks: int
    nics: int
    nic_gb_per_s: float
    source: str
    grade: str

    @property
    def known(self) -> bool:
        """Whether there is any NIC whose rate is known."""
        return self.nics > 0 and self.nic_gb_per_s > 0


@dataclass(frozen=True)
class Efficiency:
    """The share of its network cap that an algorithm reaches, by GiB of payload; ``learnt`` were measured here."""

    curves: Mapping[str, Curve] = field(hash=False)
    learnt: frozenset[str] = frozenset()


PRIOR = Efficiency(
    {
        "rail": {1: 0.96},
        "ring": {1: 0.90, 8: 0.95},
        "tree": {1: 0.93, 2: 0.96, 4: 0.97, 8: 0.98},
        "nvls": {1: 0.93, 2: 0.96, 4: 0.97, 8: 0.98},
        "sharp": {1: 0.90, 8: 0.95},
    }
)
"""Before anything was measured here, so every figure that it decides is a guess.

Tree and NVLSTree are the published runs by size: 366, 381, 383 and 387 of 394 GB/s at 1, 2, 4 and 8 GiB on 8 nodes of
8 H100; 362, 372, 377 and 380 of 387 on 4 nodes of 8 B200. A NIC alone was seen at 193.7 of 200 Gbit/s (AWS EFA, .969).
Ring and SHARP have no published run that names them; they are set a little below.
"""

_TREE_WITHIN = 0.92
"""A tree's share of a ring's NVLink bandwidth (NVIDIA/nccl, src/graph/tuning.cc, ncclTopoTuneModel)."""
_PLAUSIBLE = (0.80, 1.02)
"""An efficiency outside this was not learnt from a healthy fabric that is as declared: the lowest published run at a
gate size has .93, and nothing passes the line rate. The bounds are our own choice."""
_LEAST_FIGURES = 3


def gate_bytes(ranks: int) -> int:
    """The least payload that can be judged: the greater of 1 GiB and 8 MiB a rank.

    A small payload measures latency: 8 H100 gave 44 GB/s at 1 MiB, 234 at 16 MiB, 423 at 256 MiB, 466 at 1 GiB and 479
    at 8 GiB (Azure/AI-benchmarking-guide), and what is small grows with the ranks: 1440 GB200 gave 219 GB/s at 1 GiB,
    405 at 16 GiB (coreweave/nccl-tests). Where between those the line lies is our own choice.
    """
    return max(GIB, ranks * 8 * (1 << 20))


def within_node(
    profile: Profile, gpus: int, size_bytes: int | None = None, *, nvls: bool = True
) -> ExpectedBandwidth | None:
    """What ``gpus`` GPUs of one node give; ``nvls`` False without NVLink SHARP. None where nothing is known.

    NCCL takes NVLS from 5 GPUs on H100 and H200 and from 6 on B200, the ring below that (NVIDIA/nccl issue 1455;
    stas00/ml-engineering): so NVLS counts only with as many GPUs as it was measured with. A ring is nearly flat in the
    number of GPUs (365 to 370 GB/s for 2 to 8 H100), so another number of them is a guess, and a fair one.
    """
    size = size_bytes or gate_bytes(gpus)
    if gpus < 2 or size < gate_bytes(gpus):
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
    """What all GPUs of several like nodes give by the best of ``algorithms``; None where the model cannot say.

    ``sharp`` counts only where the fabric has it (``allreduce.sharp`` in the profile or in a host's ``expect:``).
    """
    size = size_bytes or gate_bytes(network.ranks)
    if size < gate_bytes(network.ranks):
        return None
    if any(key.startswith("allreduce.measured.") for key in profile.values):
        return _across_domains(profile, network.ranks, size)
    if not network.known:
        return None
    candidates = [
        _lesser(_nvlink(each, profile, network, size), _net(each, network, size, efficiency), each, size)
        for each in algorithms
        if each != "sharp" or profile.get("allreduce.sharp")
    ]
    return max(filter(None, candidates), key=lambda each: each.gb_per_s, default=None)


def on_rail(
    network: Network, size_bytes: int | None = None, efficiency: Efficiency = PRIOR
) -> ExpectedBandwidth | None:
    """What one GPU and one NIC of each node give: NVLink has no part in it, so the cap is the NIC's rate."""
    size = size_bytes or gate_bytes(network.ranks)
    if size < gate_bytes(network.ranks) or not network.known:
        return None
    return _alone(_net("rail", replace(network, nics=1), size, efficiency), "rail", size)


def learn(figures: Iterable[tuple[float, ExpectedBandwidth]]) -> Efficiency:
    """The efficiencies that good figures show, each given with what was expected of it; the prior for the rest.

    Learnt is the median of at least three figures of one payload that the network decides. One that is not plausible is
    not taken: a whole fabric that is slow must not become its own measure.
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
    """What one cap alone decides."""
    return ExpectedBandwidth(term.gb_per_s, term.name, (term,), term.grade, algorithm, size_bytes) if term else None


def _lesser(nvlink: Cap | None, network: Cap, algorithm: Algorithm, size_bytes: int) -> ExpectedBandwidth | None:
    """What the lesser of two caps decides; None where the NVLink's is not known."""
    if nvlink is None:
        return None
    least = min(nvlink, network, key=lambda term: term.gb_per_s)
    poorest = max(nvlink.grade, network.grade, key=GRADES.index)
    return ExpectedBandwidth(least.gb_per_s, least.name, (nvlink, network), poorest, algorithm, size_bytes)


def _net(algorithm: Algorithm, network: Network, size_bytes: int, efficiency: Efficiency) -> Cap:
    """``e`` times the network cap of ``algorithm``."""
    e, stretched = _along(efficiency.curves[algorithm], size_bytes / GIB)
    learnt = algorithm in efficiency.learnt and not stretched
    nics = f"{network.nics} · " if network.nics > 1 else ""
    share, factor = _share(algorithm, network)
    return Cap(
        "network",
        e * share * network.nics * network.nic_gb_per_s,
        f"{nics}{network.nic_gb_per_s:g} GB/s{factor} · e {e:.2f}",
        f"{network.source}; {'e learnt here' if learnt else 'e not learnt here yet'}",
        network.grade if learnt else _GUESS,
        e,
    )


def _share(algorithm: Algorithm, network: Network) -> tuple[float, str]:
    """The network cap of ``algorithm`` as a multiple of the rates of a node's NICs, and in words."""
    if algorithm in {"rail", "ring"}:
        return 1.0, ""
    twice = 2 if algorithm == "sharp" or network.nodes == 2 else 1
    n = network.ranks
    return twice * (n - 1) / n, f"{' · 2' if twice == 2 else ''} · {n - 1}/{n}"


def _nvlink(algorithm: Algorithm, profile: Profile, network: Network, size_bytes: int) -> Cap | None:
    """The NVLink cap of ``algorithm`` on a node of the group."""
    gpus = network.ranks // network.nodes
    if algorithm in {"nvls", "sharp"}:
        return _measured(profile, "nvls", gpus, size_bytes)
    ring = _ring(profile, gpus, size_bytes)
    if ring is None or algorithm == "ring":
        return ring
    return replace(ring, gb_per_s=ring.gb_per_s * _TREE_WITHIN, sum=f"{ring.sum} · {_TREE_WITHIN}", grade=_GUESS)


def _ring(profile: Profile, gpus: int, size_bytes: int) -> Cap | None:
    """The ring with as many GPUs, else as it was measured with the nearest number of them, and then a guess."""
    nearest = min(_counts(profile, "ring"), key=lambda count: (abs(count - gpus), count), default=0)
    term = _measured(profile, "ring", nearest, size_bytes)
    return replace(term, grade=_GUESS) if term and nearest != gpus else term


def _across_domains(profile: Profile, ranks: int, size_bytes: int) -> ExpectedBandwidth | None:
    """As measured; between two numbers of ranks along their logarithm, and then a guess; None outside them."""
    counts = _counts(profile, "measured")
    below, above = max((c for c in counts if c <= ranks), default=0), min((c for c in counts if c >= ranks), default=0)
    low, high = (_measured(profile, "measured", count, size_bytes) for count in (below, above))
    if low is None or high is None or below == above:
        return _alone(low and high, "measured", size_bytes)
    rate, _ = _along({below: low.gb_per_s, above: high.gb_per_s}, ranks)
    between = f"{ranks} ranks, between {low.gb_per_s:.0f} with {below} and {high.gb_per_s:.0f} with {above}"
    return _alone(replace(low, gb_per_s=rate, sum=between, grade=_GUESS), "measured", size_bytes)


def _counts(profile: Profile, family: str) -> list[int]:
    """With how many GPUs or ranks the profile says that ``family`` was measured."""
    keys = (key.split(".") for key in profile.values)
    return sorted(int(key[2]) for key in keys if key[:2] == ["allreduce", family] and key[2:])


def _measured(profile: Profile, family: str, count: int, size_bytes: int) -> Cap | None:
    """What the profile says, along its sizes; for a payload below the smallest that was measured it is a guess."""
    entry = profile.values.get(f"allreduce.{family}.{count}")
    if entry is None:
        return None
    gib = size_bytes / GIB
    curve = entry.value if isinstance(entry.value, Mapping) else {gib: entry.value}  # a host may expect one number
    rate, stretched = _along({float(size): float(value) for size, value in curve.items()}, gib)
    formula = f"{count} {_FAMILIES[family]} at {gib:g} GiB"
    return Cap("NVLink", rate, formula, entry.source, _GUESS if stretched else entry.grade)


_FAMILIES = {"nvls": "GPUs with NVLS", "ring": "GPUs in a ring", "measured": "ranks"}


def _along(curve: Curve, x: float) -> tuple[float, bool]:
    """``curve`` at ``x``, straight along log ``x`` between its points and level outside; True where ``x`` is below."""
    points = sorted(curve.items())
    if x < points[0][0]:
        return points[0][1], True
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if x < x1:
            return y0 + (y1 - y0) * math.log(x / x0) / math.log(x1 / x0), False
    return points[-1][1], False

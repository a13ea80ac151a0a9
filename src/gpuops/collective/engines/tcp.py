"""Engine that runs a ring over plain TCP in standard Python; it needs no driver and measures the hosts' own network."""

from __future__ import annotations

import secrets
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuops.bandwidth import bus_factor
from gpuops.collective.crew import Crew
from gpuops.collective.engines import Curve, Load, Point, Sweep, trouble_of_loss
from gpuops.errors import EndedError, GpuopsError
from gpuops.inventory import Host
from gpuops.isolation.fabric import Fabric, FabricNic, FabricNode
from gpuops.isolation.rounds import GroupResult, RankGroup, Round, Trouble
from gpuops.reasons import Excluded, excluded_by
from gpuops.transport.connections import Opener

LEAST_BYTES = 1 << 20
CHUNK_BYTES = 1 << 18
"""Minimum bytes per rank and step: smaller ones pass in the burst of a shaper or the buffer of a switch."""
LANE_BYTES = 8
"""Numbers are added in lanes of 64 bits (node/sums.py)."""
_PATIENCE_SECONDS = 5.0
_LIMIT_SECONDS = 30.0
_ANSWER_SECONDS = 10.0
_CAUSES_FIRST: tuple[Trouble, ...] = ("error", "unreachable")
Answer = Mapping[str, Any] | GpuopsError


class TcpEngine:
    """Engine for rounds over TCP between the addresses at which nodes are reached, or those of ``interface``.

    A rank listens on a port that the kernel chose, and rejects peers that do not present the round's token. The number
    of iterations depends on the time and on their spread, not on ``load``.
    """

    name = "tcp"
    cost = ""
    jobs = ()

    def __init__(
        self,
        hosts: Sequence[Host],
        opener: Opener,
        load: Load | None = None,
        *,
        interface: str = "",
        why: str = "it needs only Python on the nodes",
    ) -> None:
        self.why = why
        self._crew = Crew(hosts, opener, "peers", "sums", "ring")
        self._addresses = {host.name: host.address for host in hosts}
        self._load = load or Load()
        self._limit_seconds = _LIMIT_SECONDS + 10 * self._load.seconds
        self._interface = interface
        self._places: dict[str, Mapping[str, Any]] = {}
        self._gone: dict[str, tuple[Trouble, Excluded]] = {}

    def open(self) -> Mapping[str, Excluded]:
        """Start a listening worker on every node; return the nodes where that failed."""
        self._staff(self._addresses)
        return {node: reason for node, (_, reason) in self._gone.items()}

    def _staff(self, nodes: Collection[str]) -> None:
        """Ensure a listening worker on each of ``nodes``. Restart one that ended, not one that hung or never began."""
        lacking = [node for node in nodes if node not in self._crew.workers and node not in self._gone]
        if lacking:
            self._crew.open(lacking)
            listen = {"interface": self._interface}
            messages = {node: {"listen": {**listen, "address": self._addresses[node]}} for node in lacking}
            for node, answer in self._crew.ask(messages, _ANSWER_SECONDS).items():
                if isinstance(answer, GpuopsError):
                    self._gone[node] = trouble_of_loss(answer), excluded_by(node, answer)
                elif "port" in answer:
                    self._places[node] = answer
                else:
                    self._gone[node] = "unreachable", Excluded(node, "unsupported", answer["trouble"])

    def fabric(self) -> Fabric:
        """Return the participating nodes, each with the interface to measure; line rate 0 if it is unknown."""
        return Fabric(
            {
                node: FabricNode(node, (), (FabricNic(place["interface"] or "tcp", 0, place["mbps"] / 8000),))
                for node, place in self._places.items()
            }
        )

    def measure(self, planned: Round) -> tuple[GroupResult, ...]:
        """Return one result per group, all measured at the same time; nothing is measured within a node."""
        figures = self._measured({group: self._size(group) for group in planned.groups})
        return tuple(figures[group] for group in planned.groups)

    def sweep(self, sweeps: Sequence[Sweep]) -> tuple[Curve, ...]:
        """Return one curve per sweep; all groups take each size at the same time."""
        running = {sweep.group: Curve(sweep, ()) for sweep in sweeps}
        for size in sorted({size for sweep in sweeps for size in sweep.sizes_bytes}):
            sizes = {group: self._size(group, size) for group, curve in running.items() if _takes(curve, size)}
            for group, figure in self._measured(sizes).items():
                running[group] = self._extended(running[group], sizes[group], figure)
        return tuple(running[sweep.group] for sweep in sweeps)

    def _extended(self, curve: Curve, size_bytes: int, figure: GroupResult) -> Curve:
        """Return ``curve`` with one more point, or with the trouble of ``figure``."""
        if not figure.gb_per_s:
            return Curve.failed(curve.sweep, figure, curve.points)
        seconds = size_bytes * bus_factor(self._load.operation, len(figure.group.nodes)) / figure.gb_per_s / 1e9
        return replace(curve, points=(*curve.points, Point(size_bytes, seconds, figure.gb_per_s, figure.spread)))

    def _measured(self, sizes: Mapping[RankGroup, int]) -> dict[RankGroup, GroupResult]:
        """Return the result of each group with its size in bytes."""
        between = [group for group in sizes if len(group.nodes) > 1]
        self._staff({node for group in between for node in group.nodes})
        ready = {group for group in between if not self._missing(group)}
        messages = {node: message for group in ready for node, message in self._messages(group, sizes[group]).items()}
        deadline_seconds = self._limit_seconds + _PATIENCE_SECONDS + _ANSWER_SECONDS
        answers = self._crew.ask(messages, deadline_seconds, [group.nodes for group in ready])
        own = {group: {node: answers[node] for node in group.nodes} for group in ready}
        figures = {group: self._figure(group, sizes[group], own[group]) for group in ready}
        self._give_up(figures.values(), answers)
        return {group: figures.get(group) or self._none(group) for group in sizes}

    def _give_up(self, figures: Iterable[GroupResult], answers: Mapping[str, Answer]) -> None:
        """Give up silent nodes: a new process there would hide what became of the old one."""
        for figure in figures:
            for node in figure.absent:
                if isinstance(answers[node], GpuopsError) and not isinstance(answers[node], EndedError):
                    self._gone[node] = figure.trouble, Excluded(node, "lost", figure.detail)

    def _missing(self, group: RankGroup) -> tuple[str, ...]:
        return tuple(node for node in group.nodes if node in self._gone)

    def _none(self, group: RankGroup) -> GroupResult:
        missing = self._missing(group)
        if not missing:
            return GroupResult(group, None, detail="tcp measures between nodes only")
        trouble, reason = self._gone[missing[0]]
        return GroupResult(group, None, trouble, missing, detail=reason.why)

    def _size(self, group: RankGroup, size_bytes: int | None = None) -> int:
        """Return the bytes to move, the same number of whole lanes for each rank."""
        desired = size_bytes or self._load.size_bytes or max(LEAST_BYTES, CHUNK_BYTES * len(group.nodes))
        row = LANE_BYTES * len(group.nodes)
        return max(1, desired // row) * row

    def _messages(self, group: RankGroup, size_bytes: int) -> dict[str, dict[str, Any]]:
        run = {
            "token": secrets.token_hex(16),
            "places": [(self._places[node]["address"], self._places[node]["port"]) for node in group.nodes],
            "operation": self._load.operation,
            "size_bytes": size_bytes,
            "warmups": self._load.warmups,
            "seconds": self._load.seconds,
            "limit_seconds": self._limit_seconds,
            "patience_seconds": _PATIENCE_SECONDS,
        }
        return {node: {"run": {**run, "rank": rank}} for rank, node in enumerate(group.nodes)}

    def _figure(self, group: RankGroup, size_bytes: int, answers: Mapping[str, Answer]) -> GroupResult:
        results = {node: answer for node, answer in answers.items() if isinstance(answer, dict)}
        times = [answer["seconds"] for answer in results.values() if "seconds" in answer]
        if len(times) < len(answers):
            return trouble_of(group, answers)
        wrong = [node for node, answer in results.items() if answer["wrong"]]
        if wrong:
            return GroupResult(group, None, "wrong", detail=f"wrong sums on {', '.join(wrong)}")
        iterations = [statistics.fmean(ranks) for ranks in zip(*times, strict=True)]
        seconds = statistics.fmean(iterations)
        gb_per_s = size_bytes / seconds * bus_factor(self._load.operation, len(group.nodes)) / 1e9
        return GroupResult(group, gb_per_s, spread=statistics.pstdev(iterations) / seconds)

    @property
    def settings(self) -> Mapping[str, Sequence[str]]:
        """The interface of each node, and its line rate if known."""
        pairs = {n: (f"through {place['interface']}", place["mbps"]) for n, place in self._places.items()}
        return {n: (f"{interface}, {mbps} Mbit/s" if mbps else interface,) for n, (interface, mbps) in pairs.items()}

    @property
    def pids(self) -> Mapping[str, Collection[int]]:
        """The engine's worker on each node."""
        return {node: (pid,) for node, pid in self._crew.pids.items()}

    def close(self) -> None:
        """End every worker."""
        self._crew.close()


def _takes(curve: Curve, size_bytes: int) -> bool:
    """Return True if ``curve`` continues with ``size_bytes``; the smallest sizes of large groups are all one."""
    reached = curve.points[-1].size_bytes if curve.points else 0
    return not curve.trouble and size_bytes in curve.sweep.sizes_bytes and size_bytes > reached


def trouble_of(group: RankGroup, answers: Mapping[str, Answer]) -> GroupResult:
    """Return why a group has no bandwidth, and because of which nodes, from what its ranks report about each other.

    A rank that waits in vain connects to its ring neighbours: a stopped process still accepts through its kernel, an
    ended process is refused, and a link that is down gives no answer. A node is unreachable if it reports that it has
    no link, or if it runs but no neighbour with a link can connect to it. Otherwise, if any process ended, those nodes
    are in error; else the nodes to which the connection broke are unreachable, and those that did not answer hang.
    """
    silent = {node: answer for node, answer in answers.items() if isinstance(answer, GpuopsError)}
    reports = {node: answer for node, answer in answers.items() if isinstance(answer, dict)}
    words = [str(error) for error in silent.values()]
    words += [f"{node}: {answer['trouble']}" for node, answer in reports.items() if "trouble" in answer]
    unreachable = _unreachable(group.nodes, reports)
    if unreachable:
        return GroupResult(group, None, "unreachable", unreachable, detail="; ".join(words))
    losses = {node: trouble_of_loss(error) for node, error in silent.items()}
    trouble: Trouble = next((cause for cause in _CAUSES_FIRST if cause in losses.values()), "hang")
    absent = tuple(node for node, loss in losses.items() if loss == trouble)
    return GroupResult(group, None, trouble, absent, detail="; ".join(words))


def _unreachable(nodes: Sequence[str], reports: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    cut = {node for node, answer in reports.items() if not answer.get("link", True)}
    in_vain: dict[str, list[bool]] = {node: [] for node in nodes}
    for rank, node in enumerate(nodes):
        if node in reports.keys() - cut:
            unreached, refused = reports[node].get("unreached", ()), reports[node].get("refused", ())
            for number in {(rank + 1) % len(nodes), (rank - 1) % len(nodes)}:
                in_vain[nodes[number]].append(number in unreached or (number in refused and nodes[number] in reports))
    return tuple(node for node in nodes if node in cut or (in_vain[node] and all(in_vain[node])))

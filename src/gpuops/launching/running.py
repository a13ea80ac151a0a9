"""A job while it runs: one worker on every node, and the decision when all of it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gpuops.cancellation import CancelToken
from gpuops.errors import LostError
from gpuops.fleet import each, uninterrupted
from gpuops.inventory import Host
from gpuops.launching.folding import Folder
from gpuops.launching.logs import NODE, Logs
from gpuops.launching.outcome import RankFailure
from gpuops.launching.plan import SILENCE_SECONDS, JobPlan, NodePlan
from gpuops.reasons import Excluded, excluded_by
from gpuops.transport.connections import TransportGroup
from gpuops.transport.worker import Worker

SCRIPTS = ("processes", "job")
"""The scripts of ``node/`` that run on every node of a job."""
_TICK_SECONDS = 0.2
_ALIVE_SECONDS = 2.0
_SETTLE_SECONDS = 1.0
"""After the first failure, so long is waited for an earlier one: reports of nodes overtake each other."""
_AFTER_END_SECONDS = 6.0
"""Beyond the grace: what the node needs for SIGKILL and its last report."""


class Listener(Protocol):
    """Functions that hear what happens."""

    def line(self, ranks: Sequence[int], nodes: Sequence[str], text: str) -> None:
        """Hear of one line that ``ranks``, or ``nodes`` themselves, printed."""

    def ended(self, node: str, ranks: Sequence[int], code: int | None) -> None:
        """Hear of the end of a process with ``ranks``."""


@dataclass(frozen=True)
class _End:
    """The end of ranks on ``node`` at a time of this machine's clock; ``final``: they were a process of the job."""

    at: float
    node: str
    ranks: tuple[int, ...]
    code: int | None
    why: str
    final: bool


@dataclass
class RunningJob:
    """The state of a job, fed by one thread for each node; ``grace`` seconds lie between TERM and KILL."""

    plan: JobPlan
    logs: Logs
    listener: Listener
    grace: float
    asserted: set[int] = field(default_factory=set)
    misplaced: dict[int, tuple[str, ...]] = field(default_factory=dict)
    lost: dict[str, Excluded] = field(default_factory=dict)
    left: dict[str, dict[int, str]] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    started: bool = False
    interrupted: bool = False
    _ends: list[_End] = field(default_factory=list)
    _offsets: dict[str, float] = field(default_factory=dict)
    _ends_at: float | None = None
    _over: set[str] = field(default_factory=set)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        """Fold the lines of all ranks, and those of nodes."""
        self._folders = [
            Folder(self.plan.world, lambda ranks, text: self.listener.line(sorted(map(int, ranks)), (), text)),
            Folder(len(self.plan.nodes), lambda nodes, text: self.listener.line((), nodes, text)),
        ]

    def run(self, hosts: Sequence[Host], group: TransportGroup, cancel: CancelToken) -> None:
        """Connect to every node, start the job on all or on none of them, and return when it has ended everywhere."""
        by_name = {host.name: host for host in hosts}
        ordered = [by_name[node.name] for node in self.plan.nodes]
        workers = self._connect(ordered, group, cancel)
        if self.lost:
            return
        self.started = True
        plans = {node.name: node for node in self.plan.nodes}
        outcomes = each(
            ordered,
            lambda host: self._attend(workers[host.name], plans[host.name]),
            fanout=len(ordered),
            total_seconds=float("inf"),
            stop=self._stop,
            cancel=cancel,
        )
        self.interrupted = outcomes.interrupted
        failed = {} if self.interrupted else {o.node: excluded_by(o.node, o.error) for o in outcomes if o.error}
        self.lost = {**failed, **self.lost}
        for folder in self._folders:
            folder.close()

    def _connect(self, hosts: Sequence[Host], group: TransportGroup, cancel: CancelToken) -> dict[str, Worker]:
        def start(host: Host) -> Worker:
            transport = group.open(host)
            transport.limit_silence(SILENCE_SECONDS)
            return transport.start(*SCRIPTS)

        outcomes = uninterrupted(each(hosts, start, fanout=len(hosts), stop=group.close, cancel=cancel))
        self.lost = {o.node: excluded_by(o.node, o.error) for o in outcomes if o.error is not None}
        return {outcome.node: outcome.value for outcome in outcomes if outcome.value is not None}

    def _attend(self, worker: Worker, node: NodePlan) -> bool:
        """Start the part of one node and follow it to its end; a lost node ends the whole job."""
        is_over = False
        try:
            worker.send(self.plan.message(node, self.grace))
            self._follow(worker)
            is_over = True
        finally:
            worker.close()
            self._over.add(worker.node)
            if not is_over:
                self._end_soon(0.0)
        return True

    def _follow(self, worker: Worker) -> None:
        heard, spoken = time.monotonic(), 0.0
        told = False
        while True:
            report = _received(worker)
            now = time.monotonic()
            if report is not None:
                heard = now
                if self._take(worker.node, report, now):
                    return
            self._flush(now)
            if now - heard > SILENCE_SECONDS:
                raise LostError(worker.node, f"no sign of life for {SILENCE_SECONDS:.0f} s")
            if not told and self._ends_at is not None and now >= self._ends_at:
                told = True
                worker.send({"do": "end", "grace": self.grace})
            if now - spoken > _ALIVE_SECONDS:
                spoken = now
                worker.send({"do": "alive"})

    def _take(self, node: str, report: dict[str, Any], now: float) -> bool:
        """Take in one report of ``node``; return True if it is the last. Raise `LostError` if it makes no sense."""
        takers: dict[str, Callable[[str, Any, float], None]] = {
            "lines": self._take_lines,
            "seat": self._take_seat,
            "alive": self._take_clock,
            "gone": self._take_gone,
            "ended": self._take_ended,
            "over": self._take_over,
        }
        kind, content = next(iter(report.items()), ("", None))
        try:
            with self._lock:
                takers[kind](node, content, now)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise LostError(node, f"sent a report that makes no sense ({type(error).__name__}: {error})") from error
        return kind == "over"

    def _take_lines(self, node: str, lines: dict[str, list[str]], now: float) -> None:
        self.logs.add(node, lines)
        for rank, texts in lines.items():
            for text in texts:
                self._folders[rank == NODE].add(node if rank == NODE else rank, text, now)

    def _take_seat(self, _node: str, seat: dict[str, Any], _now: float) -> None:
        if seat["wrong"]:
            self.misplaced[int(seat["rank"])] = tuple(map(str, seat["wrong"]))
        else:
            self.asserted.add(int(seat["rank"]))

    def _take_clock(self, node: str, at: float, now: float) -> None:
        """Keep the least difference to the node's clock, which contains the least delay on the way."""
        self._offsets[node] = min(self._offsets.get(node, float("inf")), now - at)

    def _take_gone(self, node: str, end: dict[str, Any], now: float) -> None:
        if not end["told"] and end["code"] != 0:
            self._note_end(node, (int(end["rank"]),), end, now, final=False)

    def _take_ended(self, node: str, end: dict[str, Any], now: float) -> None:
        ranks = tuple(map(int, end["ranks"]))
        self.listener.ended(node, ranks, end["code"])
        if not end["told"] and end["code"] != 0:
            self._note_end(node, ranks, end, now, final=True)
            self._end_soon(_SETTLE_SECONDS)

    def _note_end(self, node: str, ranks: tuple[int, ...], end: dict[str, Any], now: float, *, final: bool) -> None:
        at = min(now, float(end["at"]) + self._offsets.get(node, now - float(end["at"])))
        self._ends.append(_End(at, node, ranks, end["code"], str(end.get("why", "")), final))

    def _take_over(self, node: str, over: dict[str, Any], _now: float) -> None:
        self.ended.add(node)
        if over["left"]:
            self.left[node] = {int(pid): str(state) for pid, state in over["left"].items()}

    def _flush(self, now: float) -> None:
        with self._lock:
            for folder in self._folders:
                folder.flush(now)

    def _end_soon(self, seconds: float) -> None:
        if self._ends_at is None:
            self._ends_at = time.monotonic() + seconds

    def _stop(self) -> None:
        """End the job everywhere, and wait for that; a second Ctrl-C closes the connections, which kills it."""
        with self._lock:
            self._ends_at = time.monotonic()
        ends = time.monotonic() + self.grace + _AFTER_END_SECONDS
        while time.monotonic() < ends and len(self._over) < len(self.plan.nodes):
            time.sleep(_TICK_SECONDS)

    @property
    def unended(self) -> tuple[str, ...]:
        """The nodes that were started and have not reported the end of all that ran there."""
        return tuple(node.name for node in self.plan.nodes if node.name not in self.ended) if self.started else ()

    def failure(self) -> RankFailure | None:
        """Return the first failed end of ranks, if a process of the job failed: a launcher may restart its ranks."""
        if not any(end.final for end in self._ends):
            return None
        first = min(self._ends, key=lambda end: (end.at, len(end.ranks)))
        rank = first.ranks[0] if len(first.ranks) == 1 else None
        return RankFailure(first.node, first.ranks, first.code, first.why, self.logs.last_lines(first.node, rank))


def _received(worker: Worker) -> dict[str, Any] | None:
    try:
        return worker.receive(_TICK_SECONDS)
    except TimeoutError:
        return None

"""One round with NCCL, step by step: start processes, make communicators, first runs, timed runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuops.collective.engines import Load
from gpuops.collective.engines.nccl.library import NcclLibrary, Survey
from gpuops.collective.engines.nccl.slots import Party, RankSlot, payload_bytes
from gpuops.collective.engines.nccl.verdict import ExpectedPath, Reply, TimedRun, failure, reply_of, success
from gpuops.errors import GpuopsError
from gpuops.isolation.rounds import GroupResult, RankGroup

SLACK_SECONDS = 12.0
"""Extra time for a supervisor beyond the deadline of a step, to query RAS, to kill ranks and to answer."""
_SLICE_SECONDS = 2.0
"""Interval after which all nodes learn that one rank failed; otherwise they would wait until their deadline."""
_TIMED_SECONDS, _WARMING_SECONDS = 10.0, 5.0
"""Time after which slow runs are enough; fast ones are repeated as often as requested."""
_LEAST_ITERATIONS = 5
_FIRST_RUNS = 2
"""The first run also makes connections; the second shows how long one run takes."""
Message = Mapping[str, Any]
Ask = Callable[[Mapping[str, Message], float], Mapping[str, Mapping[str, Any] | GpuopsError]]


@dataclass(frozen=True)
class Deadlines:
    """Deadlines in seconds for what may hang by itself: loading CUDA and NCCL, making a communicator, and first runs.

    The timed runs get half as long as the first runs, plus three times their estimated duration.
    """

    load: float = 120.0
    join: float = 120.0
    measure: float = 60.0


@dataclass(frozen=True)
class RoundConfig:
    """The settings of a round; ``environment`` is added to the NCCL variables of a node's own session."""

    load: Load
    deadlines: Deadlines
    environment: Mapping[str, str] = field(hash=False)
    libraries: Mapping[str, NcclLibrary] = field(hash=False)
    surveys: Mapping[str, Survey] = field(hash=False)

    def expected_path(self, party: Party) -> ExpectedPath:
        """Return what the path between the nodes of ``party`` should be, according to their surveys."""
        rdma = all(set(seat.nics) <= set(self.surveys[seat.node].rdma_devices) and seat.nics for seat in party)
        return ExpectedPath(rdma, all(self.surveys[seat.node].gpus[seat.gpu].has_gpudirect for seat in party))


class RoundRunner:
    """One round, run step by step. A group leaves with a result as soon as one of its ranks fails a step.

    ``processes`` receives the process ID for each GPU of each node.
    """

    def __init__(self, ask: Ask, setting: RoundConfig, processes: MutableMapping[tuple[str, int], int]) -> None:
        self._processes = processes
        self._ask = ask
        self._setting = setting
        self._parties: dict[RankGroup, Party] = {}
        self._figures: dict[RankGroup, GroupResult] = {}
        self._logs: dict[RankGroup, list[str]] = {}
        self._sizes: dict[RankGroup, int] = {}

    def run(self, parties: Mapping[RankGroup, Party]) -> dict[RankGroup, GroupResult]:
        """Return the result of each group."""
        self._parties, self._logs = dict(parties), {group: [] for group in parties}
        limits = self._setting.deadlines
        loaded = self._step("loading CUDA and NCCL", limits.load, lambda _, seat: self._loading(seat), do="start_ranks")
        self._sizes = {group: self._size(replies) for group, replies in loaded.items()}
        made = self._step("making an id", limits.load, lambda _, seat: None if seat.rank else {"do": "id"})
        ids = {group: replies[0].answer["id"] for group, replies in made.items() if replies[0].answer}
        self._step("making the communicator", limits.join, lambda group, seat: self._joining(group, seat, ids[group]))
        tried = self._step("first runs", limits.measure, lambda group, _: self._driving(group, _FIRST_RUNS))
        self._time({group: max(map(_pace, replies)) for group, replies in tried.items()})
        return self._figures

    def _time(self, paces: Mapping[RankGroup, float]) -> None:
        """Measure the timed runs; ``paces`` holds the seconds that one run of each group took."""
        setting = self._setting
        counts = {group: _counts(setting.load, pace) for group, pace in paces.items()}
        most = max((paces[group] * sum(counts[group]) for group in counts), default=0.0)
        seconds = setting.deadlines.measure / 2 + 3 * most
        timed = self._step("timed runs", seconds, lambda group, _: self._driving(group, sum(counts[group]), leave=True))
        for group, replies in timed.items():
            sample = TimedRun(setting.load.operation, self._sizes[group], counts[group][0])
            path = setting.expected_path(self._parties[group])
            self._figures[group] = success(group, replies, sample, self._logs[group], path)

    def _step(
        self, doing: str, seconds: float, task_for: Callable[[RankGroup, RankSlot], Message | None], do: str = "ask"
    ) -> dict[RankGroup, list[Reply]]:
        """Send each rank its task and receive all answers; return the replies of the groups that continue."""
        tasks = {g: {seat: task for seat in party if (task := task_for(g, seat))} for g, party in self._parties.items()}
        messages: dict[str, dict[str, Any]] = {}
        for seat, task in (pair for of_group in tasks.values() for pair in of_group.items()):
            of_node = messages.setdefault(seat.node, {"do": do, "seconds": _SLICE_SECONDS, "tasks": {}})
            of_node["tasks"][str(seat.gpu)] = task
        by_seat = self._receive(messages, [seat for of_group in tasks.values() for seat in of_group])
        self._await(tasks, by_seat, time.monotonic() + seconds)
        replies = {group: [by_seat[seat] for seat in of_group] for group, of_group in tasks.items()}
        failed = {group: figure for group in replies if (figure := self._note(group, replies[group], doing))}
        self._figures |= failed
        self._end([seat for group in failed for seat in self._parties.pop(group)])
        return {group: of_group for group, of_group in replies.items() if group not in failed}

    def _await(
        self, parties: Mapping[RankGroup, Collection[RankSlot]], replies: dict[RankSlot, Reply], ends: float
    ) -> None:
        """Receive the remaining replies, slice by slice. A group ends with its time or a failed rank."""
        while any(seat not in replies for party in parties.values() for seat in party):
            over = time.monotonic() > ends
            waiting: dict[str, list[RankSlot]] = {"kill_overdue": [], "wait": []}
            for party in parties.values():
                hopeless = any(seat in replies and replies[seat].answer is None for seat in party)
                waiting["kill_overdue" if over or hopeless else "wait"] += [
                    seat for seat in party if seat not in replies
                ]
            for do, seats in waiting.items():
                replies |= self._receive(_to_nodes(do, seats), seats)

    def _receive(self, messages: Mapping[str, Message], seats: Sequence[RankSlot]) -> dict[RankSlot, Reply]:
        """Return the replies to messages, omitting ranks that are still working."""
        answers = self._ask(messages, _SLICE_SECONDS + SLACK_SECONDS) if messages else {}
        messages_by_seat = {seat: _of(seat, answers[seat.node]) for seat in seats}
        return {seat: reply_of(seat, message) for seat, message in messages_by_seat.items() if message is not None}

    def _note(self, group: RankGroup, replies: Sequence[Reply], doing: str) -> GroupResult | None:
        self._logs[group] += [line for reply in replies for line in reply.log]
        self._processes.update({(reply.seat.node, reply.seat.gpu): reply.pid for reply in replies if reply.pid})
        return failure(group, replies, doing)

    def _end(self, party: Sequence[RankSlot]) -> None:
        """End processes that hold a broken communicator, because their kernels may spin for ever."""
        for seat in party:
            self._processes.pop((seat.node, seat.gpu), None)
        self._ask(_to_nodes("end", party), SLACK_SECONDS)

    def _loading(self, seat: RankSlot) -> Message:
        library = self._setting.libraries[seat.node]
        environment = {**self._setting.environment, **seat.environment}
        own = {"gpu": seat.gpu, "nccl": library.path, "version": library.code}
        return {**own, "environment": environment, "nics": list(seat.nics)}

    def _joining(self, group: RankGroup, seat: RankSlot, id_: str) -> Message:
        return {"do": "join", "rank": seat.rank, "ranks": len(self._parties[group]), "id": id_}

    def _driving(self, group: RankGroup, count: int, *, leave: bool = False) -> Message:
        operation, size = self._setting.load.operation, self._sizes[group]
        return {"do": "drive", "operation": operation, "bytes": size, "count": count, "leave": leave}

    def _size(self, replies: Sequence[Reply]) -> int:
        free = min((reply.answer or {})["free_bytes"] for reply in replies)
        return payload_bytes(self._setting.load, len(replies), free)


def _counts(load: Load, pace: float) -> tuple[int, int]:
    """Return how many runs to warm up and how many to time if one takes ``pace`` seconds."""
    pace = max(pace, 1e-9)
    timed = max(min(load.iterations, int(_TIMED_SECONDS / pace)), _LEAST_ITERATIONS)
    return max(min(load.warmups, int(_WARMING_SECONDS / pace)), 1), timed


def _to_nodes(do: str, party: Sequence[RankSlot]) -> dict[str, dict[str, Any]]:
    """Return the messages that send ``do`` to the GPUs of some ranks."""
    messages: dict[str, dict[str, Any]] = {}
    for seat in party:
        of_node = messages.setdefault(seat.node, {"do": do, "seconds": _SLICE_SECONDS, "gpus": []})
        of_node["gpus"].append(str(seat.gpu))
    return messages


def _of(seat: RankSlot, answer: Mapping[str, Any] | GpuopsError) -> Mapping[str, Any] | GpuopsError | None:
    """Return the part of a node's answer that belongs to one of its ranks."""
    return answer if isinstance(answer, GpuopsError) else answer.get(str(seat.gpu))


def _pace(reply: Reply) -> float:
    """Return the seconds of one run: the last of the first runs."""
    return float((reply.answer or {})["seconds"][-1])

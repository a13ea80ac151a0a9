"""One round with NCCL, step by step: start processes, make communicators, first runs, timed runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
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

    ``processes`` receives the process ID for each GPU of each node. ``logs`` are the lines of NCCL, by group.
    """

    def __init__(self, ask: Ask, setting: RoundConfig, processes: MutableMapping[tuple[str, int], int]) -> None:
        self._processes = processes
        self._ask = ask
        self._setting = setting
        self._parties: dict[RankGroup, Party] = {}
        self._figures: dict[RankGroup, GroupResult] = {}
        self.logs: dict[RankGroup, list[str]] = {}
        self._sizes: dict[RankGroup, int] = {}

    def run(self, parties: Mapping[RankGroup, Party]) -> dict[RankGroup, GroupResult]:
        """Return the result of each group."""
        free_bytes = self._connect(parties)
        self._sizes = {group: self._size(group, free) for group, free in free_bytes.items()}
        self._drive(leaving=free_bytes)
        return self._figures

    def sweep(
        self, parties: Mapping[RankGroup, Party], sizes: Mapping[RankGroup, Sequence[int]]
    ) -> dict[RankGroup, list[tuple[int, GroupResult]]]:
        """Return the size and the result of each step of each group, in order of size; a failure is the last one.

        Sizes that the memory does not hold are left out.
        """
        free_bytes = self._connect(parties)
        fitting = {
            group: sorted({self._size(group, free, size) for size in sizes[group]})
            for group, free in free_bytes.items()
        }
        steps: dict[RankGroup, list[tuple[int, GroupResult]]] = {group: [] for group in parties}
        for number in range(max(map(len, fitting.values()), default=0)):
            self._sizes = {group: own[number] for group, own in fitting.items() if number < len(own)}
            self._drive(leaving={group for group, own in fitting.items() if number + 1 == len(own)})
            for group, size in self._sizes.items():
                if group in self._figures:
                    steps[group].append((size, self._figures.pop(group)))
        failed = {group: [(0, figure)] for group, figure in self._figures.items()}
        return {group: own or failed.get(group, []) for group, own in steps.items()}

    def _connect(self, parties: Mapping[RankGroup, Party]) -> dict[RankGroup, int]:
        """Start the processes and make the communicators; return the bytes free on the GPUs of each group."""
        self._parties, self.logs = dict(parties), {group: [] for group in parties}
        limits = self._setting.deadlines
        loaded = self._step("loading CUDA and NCCL", limits.load, lambda _, seat: self._loading(seat), do="start_ranks")
        made = self._step("making an id", limits.load, lambda _, seat: None if seat.rank else {"do": "id"})
        ids = {group: replies[0].answer["id"] for group, replies in made.items() if replies[0].answer}
        self._step("making the communicator", limits.join, lambda group, seat: self._joining(group, seat, ids[group]))
        return {group: _free_bytes(loaded[group]) for group in self._parties}

    def _drive(self, leaving: Collection[RankGroup]) -> None:
        """Measure each group that has a size; the ranks of groups in ``leaving`` then leave their communicators."""
        limit = self._setting.deadlines.measure
        tried = self._step("first runs", limit, lambda group, _: self._driving(group, _FIRST_RUNS))
        self._time({group: max(map(_pace, replies)) for group, replies in tried.items() if replies}, leaving)

    def _time(self, paces: Mapping[RankGroup, float], leaving: Collection[RankGroup]) -> None:
        """Measure the timed runs; ``paces`` holds the seconds that one run of each group took."""
        setting = self._setting
        counts = {group: _counts(setting.load, pace) for group, pace in paces.items()}
        most = max((paces[group] * sum(counts[group]) for group in counts), default=0.0)
        seconds = setting.deadlines.measure / 2 + 3 * most
        timed = self._step("timed runs", seconds, lambda group, _: self._timing(group, counts, leaving))
        for group, replies in timed.items():
            if not replies:
                continue
            sample = TimedRun(setting.load.operation, self._sizes[group], counts[group][0])
            path = setting.expected_path(self._parties[group])
            self._figures[group] = success(group, replies, sample, self.logs[group], path)

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
        self.logs[group] += [line for reply in replies for line in reply.log]
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

    def _timing(
        self, group: RankGroup, counts: Mapping[RankGroup, tuple[int, int]], leaving: Collection[RankGroup]
    ) -> Message | None:
        return self._driving(group, sum(counts[group]), leave=group in leaving) if group in counts else None

    def _driving(self, group: RankGroup, count: int, *, leave: bool = False) -> Message | None:
        """Return the task to move data; None if the group has no further size."""
        if group not in self._sizes:
            return None
        operation, size = self._setting.load.operation, self._sizes[group]
        return {"do": "drive", "operation": operation, "bytes": size, "count": count, "leave": leave}

    def _size(self, group: RankGroup, free_bytes: int, size_bytes: int | None = None) -> int:
        load = replace(self._setting.load, size_bytes=size_bytes) if size_bytes else self._setting.load
        return payload_bytes(load, len(self._parties[group]), free_bytes)


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


def _free_bytes(replies: Sequence[Reply]) -> int:
    return min(int((reply.answer or {})["free_bytes"]) for reply in replies)


def _pace(reply: Reply) -> float:
    """Return the seconds of one run: the last of the first runs."""
    return float((reply.answer or {})["seconds"][-1])

"""Pipeline schedules as events: which stage works on which micro-batch when, and the bubble that is left; pure.

GPipe (Huang et al., arXiv:1811.06965) runs all micro-batches forward, then all backward in reverse order. 1F1B
(PipeDream-Flush, arXiv:2006.09503) alternates after a warm-up. The interleaved schedule (Narayanan et al.,
arXiv:2104.04473, section 2.2) gives each stage several model chunks, so that its bubble is that many times smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from gpuops.errors import LayoutError

ScheduleKind = Literal["gpipe", "1f1b", "interleaved"]
_MOST_EVENTS = 2_000_000
"""Passes of a schedule that are simulated at most, a few seconds of work; our own choice."""


class Pass(NamedTuple):
    """One pass of a micro-batch through one model chunk of a stage; both count from 0."""

    micro_batch: int
    chunk: int
    is_forward: bool


class PassTime(NamedTuple):
    """A pass of a stage, and the seconds from the start of the step at which it begins and ends."""

    stage: int
    task: Pass
    start: float
    end: float


@dataclass(frozen=True)
class Schedule:
    """A simulated step: its events by stage, in order."""

    kind: ScheduleKind
    stages: int
    micro_batches: int
    chunks_per_stage: int
    events: tuple[tuple[PassTime, ...], ...]

    @property
    def seconds(self) -> float:
        """Seconds until the last stage is done."""
        return max(events[-1].end for events in self.events)

    @property
    def busy_seconds(self) -> float:
        """Seconds that the busiest stage works."""
        return max(sum(event.end - event.start for event in events) for events in self.events)

    @property
    def idle_fraction(self) -> float:
        """Fraction of the GPUs' time in which they wait, of the whole step."""
        work = sum(event.end - event.start for events in self.events for event in events)
        return 1 - work / (self.seconds * self.stages)

    @property
    def most_in_flight(self) -> int:
        """Micro-batches, counted once a chunk, whose activations the fullest stage keeps at the same time."""
        return max(map(most_kept, self.events))


def bubble_fraction(stages: int, micro_batches: int, chunks_per_stage: int = 1) -> float:
    """Return the bubble as a fraction of the ideal time, (p-1)/(m·v): Narayanan et al., section 2.2.

    It is exact for stages that take equally long and links that take no time.
    """
    return (stages - 1) / (micro_batches * chunks_per_stage)


def simulate_schedule(
    kind: ScheduleKind,
    micro_batches: int,
    forward_seconds: Sequence[float],
    backward_seconds: Sequence[float],
    *,
    p2p_seconds: float = 0.0,
    chunks_per_stage: int = 1,
) -> Schedule:
    """Return the step of a pipeline with one stage for each of ``forward_seconds``, the time of one micro-batch there.

    The times are those of all chunks of a stage together. A stage waits for what it needs, and for ``p2p_seconds``
    after the stage before it, or behind it, is done; sending itself occupies no GPU. Raise `LayoutError` if the
    schedule cannot run with these numbers.
    """
    stages = len(forward_seconds)
    _check(kind, stages, micro_batches, chunks_per_stage)
    if len(backward_seconds) != stages:
        raise LayoutError(f"{len(backward_seconds)} backward times for {stages} stages; give one for each")
    durations = [
        (back / chunks_per_stage, ahead / chunks_per_stage)
        for ahead, back in zip(forward_seconds, backward_seconds, strict=True)
    ]
    orders = [passes_in_order(kind, stage, stages, micro_batches, chunks_per_stage) for stage in range(stages)]
    return Schedule(kind, stages, micro_batches, chunks_per_stage, _run(orders, durations, p2p_seconds))


def _check(kind: ScheduleKind, stages: int, micro_batches: int, chunks: int) -> None:
    if kind not in get_args(ScheduleKind):
        raise LayoutError(f'unknown schedule "{kind}"; choose one of {", ".join(get_args(ScheduleKind))}')
    if min(stages, micro_batches, chunks) < 1:
        raise LayoutError("a schedule needs at least one stage, one micro-batch and one model chunk per stage")
    if chunks > 1 and kind != "interleaved":
        raise LayoutError(f"{kind} has one model chunk per stage, not {chunks}; only interleaved has more")
    if kind == "interleaved" and micro_batches % stages:
        raise LayoutError(f"interleaved: {micro_batches} micro-batches are not divisible by {stages} stages")
    if 2 * stages * micro_batches * chunks > _MOST_EVENTS:
        raise LayoutError(f"{stages} stages with {micro_batches} micro-batches are too many to simulate")


def passes_in_order(kind: ScheduleKind, stage: int, stages: int, micro_batches: int, chunks: int = 1) -> list[Pass]:
    """Return the passes of ``stage``, in the order in which it works on them."""
    ahead = [_task(number, stages, chunks, is_forward=True) for number in range(micro_batches * chunks)]
    back = [_task(number, stages, chunks, is_forward=False) for number in range(micro_batches * chunks)]
    if kind == "gpipe":
        return [*ahead, *reversed(back)]
    warm_up = min(_warm_up(stage, stages, chunks), len(ahead))
    steady = [task for pair in zip(ahead[warm_up:], back, strict=False) for task in pair]
    return [*ahead[:warm_up], *steady, *back[len(ahead) - warm_up :]]


def _warm_up(stage: int, stages: int, chunks: int) -> int:
    """Return how many passes a stage is ahead: as megatron-core's ``get_pp_rank_microbatches``."""
    behind = stages - stage - 1
    return behind if chunks == 1 else 2 * behind + (chunks - 1) * stages


def _task(number: int, stages: int, chunks: int, *, is_forward: bool) -> Pass:
    """Return the pass with ``number``: each chunk takes as many micro-batches in a row as there are stages."""
    if chunks == 1:
        return Pass(number, 0, is_forward)
    group, rest = divmod(number, stages * chunks)
    chunk, place = divmod(rest, stages)
    return Pass(group * stages + place, chunk if is_forward else chunks - 1 - chunk, is_forward)


def _run(
    orders: Sequence[Sequence[Pass]], durations: Sequence[tuple[float, float]], p2p_seconds: float
) -> tuple[tuple[PassTime, ...], ...]:
    """Let every stage go as far as it can, in turn, until all are done."""
    stages, chunks = len(orders), 1 + max(task.chunk for task in orders[0])
    ends: dict[tuple[int, Pass], float] = {}
    events: list[list[PassTime]] = [[] for _ in orders]
    waiting = sum(map(len, orders))
    while waiting:
        before = waiting
        for stage, tasks in enumerate(orders):
            while len(events[stage]) < len(tasks):
                task = tasks[len(events[stage])]
                needed, delay = _needed(stage, task, stages, chunks, p2p_seconds)
                if needed is not None and needed not in ends:
                    break
                free = events[stage][-1].end if events[stage] else 0.0
                start = max(free, ends[needed] + delay if needed else 0.0)
                ends[stage, task] = start + durations[stage][task.is_forward]
                events[stage].append(PassTime(stage, task, start, ends[stage, task]))
                waiting -= 1
        if waiting == before:
            raise LayoutError("the stages of this schedule wait for each other")
    return tuple(map(tuple, events))


def _needed(
    stage: int, task: Pass, stages: int, chunks: int, p2p_seconds: float
) -> tuple[tuple[int, Pass] | None, float]:
    """Return the pass of another stage, or of this one, that must be done before, and how long its data travels."""
    step = -1 if task.is_forward else 1
    first, last = (0, stages - 1) if task.is_forward else (stages - 1, 0)
    if stage != first:
        return (stage + step, task), p2p_seconds
    chunk = task.chunk + step
    if 0 <= chunk < chunks:
        return (last, task._replace(chunk=chunk)), p2p_seconds if stages > 1 else 0.0
    return (None if task.is_forward else (stage, task._replace(is_forward=True))), 0.0


def most_kept(events: Sequence[PassTime]) -> int:
    """Return how many micro-batches, counted once a chunk, a stage with these passes keeps at the same time."""
    kept = most = 0
    for event in events:
        kept += 1 if event.task.is_forward else -1
        most = max(most, kept)
    return most

"""The result of a group, derived from the replies of all of its ranks."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuops.bandwidth import GIB, Operation, bus_factor
from gpuops.collective.engines import trouble_of_loss
from gpuops.collective.engines.nccl.slots import RankSlot
from gpuops.errors import GpuopsError
from gpuops.isolation.rounds import GroupResult, RankGroup, Trouble
from gpuops.probes.nvidia.nccl_log import NcclLog, parse_nccl_log

_STAGES = ("start", "load", "join", "joined", "launch", "run", "check", "leave")
_SILENT_SECONDS = 2.0
"""A running rank reports ten times a second; one that is silent for so long is stopped or stuck in a call."""
_STOPPED = frozenset("TtDZ")
_REMOTE = "remote process"
_RAS_RANK = re.compile(r"\bRank (\d+)\b.*managed by process (\d+)\b")


@dataclass(frozen=True)
class Reply:
    """The outcome of one step on one rank.

    Either it answered, or it reported an ``error``, or its process ended (``gone``), or it did not finish in time
    (``late``), or its node is ``lost``.
    """

    seat: RankSlot
    answer: Mapping[str, Any] | None = None
    error: str = ""
    gone: str = ""
    late: bool = False
    lost: GpuopsError | None = None
    stage: str = ""
    done: int = 0
    silent_seconds: float = 0.0
    state: str = ""
    survives: bool = False
    pid: int = 0
    ras: str = field(default="", repr=False)
    log: tuple[str, ...] = field(default=(), repr=False)

    @property
    def progress(self) -> tuple[int, int]:
        """Its progress, for comparisons."""
        return (_STAGES.index(self.stage) if self.stage in _STAGES else -1, self.done)

    @property
    def stuck(self) -> bool:
        """True if it makes no progress while others still wait for it."""
        return self.state in _STOPPED or self.silent_seconds > _SILENT_SECONDS

    @property
    def part(self) -> str:
        """The name of the part that is missing with it."""
        return self.seat.node if self.lost else self.seat.name

    def __str__(self) -> str:
        """Return its progress in words."""
        state = f", in state {self.state} and cannot be killed" if self.survives else f", in state {self.state}"
        where = f"{self.stage} {self.done}" if self.stage == "run" else self.stage
        return f"{self.seat.name} at {where}{state if self.state in _STOPPED or self.survives else ''}"


def reply_of(seat: RankSlot, document: Mapping[str, Any] | GpuopsError) -> Reply:
    """Return the reply of ``seat`` in its node's document; an error stands for a node that did not answer."""
    if isinstance(document, GpuopsError):
        return Reply(seat, lost=document)
    output = f", and said: {document['said']}" if document.get("said") else ""
    return Reply(
        seat,
        answer=document.get("answer"),
        error=str(document.get("error", "")),
        gone=f"its process {document['ended']}{output}" if "ended" in document else "",
        late=bool(document.get("late")),
        stage=str(document.get("stage", "")),
        done=int(document.get("done", 0)),
        silent_seconds=float(document.get("silent_seconds", 0.0)),
        state=str(document.get("state", "")),
        survives=bool(document.get("survives")),
        pid=int(document.get("pid", 0)),
        ras=str(document.get("ras", "")),
        log=tuple(map(str, document.get("log", ()))),
    )


def failure(group: RankGroup, replies: Sequence[Reply], doing: str) -> GroupResult | None:
    """Return the result of a group in which a rank failed to do its task; None if all succeeded.

    The cause is a rank that is lost or ended; else a rank that reports why it failed, unless it only reports that
    another one ended; else a hang, which names the ranks that did not arrive. If a connection was not made, no rank is
    named, because either end may be at fault.
    """
    trouble, named, why = _cause(replies)
    if not trouble:
        return None
    survivors = [str(reply) for reply in replies if reply.survives]
    parts = tuple(dict.fromkeys(reply.part for reply in named))
    return GroupResult(group, None, trouble, parts, detail="; ".join([f"{doing}: {why}", *survivors]))


def _cause(replies: Sequence[Reply]) -> tuple[Trouble, Sequence[Reply], str]:
    lost = [reply for reply in replies if reply.lost]
    if lost:
        errors = [reply.lost for reply in lost if reply.lost]
        return trouble_of_loss(errors[0]), lost, _first(map(str, errors))
    gone = [reply for reply in replies if reply.gone]
    if gone:
        return "error", gone, _first(f"{reply.seat.name}: {reply.gone}" for reply in gone)
    failed = [reply for reply in replies if reply.error]
    causes = [reply for reply in failed if _REMOTE not in reply.error]
    if causes:
        return _reported(causes)
    late = [reply for reply in replies if reply.late]
    if late:
        return "hang", absent(replies), _stand(late)
    if failed:
        return "error", (), _first(f"{reply.seat.name}: {reply.error}" for reply in failed)
    return _without_answer([reply for reply in replies if reply.answer is None])


def _reported(causes: Sequence[Reply]) -> tuple[Trouble, Sequence[Reply], str]:
    """Return the cause according to the ranks that failed, with the first warning of NCCL."""
    log = parse_nccl_log("\n".join(line for reply in causes for line in reply.log))
    error = _first(f"{reply.seat.name}: {reply.error}" for reply in causes)
    if log.connection_error:
        return "unreachable", (), f"{error}; {log.connection_error}"
    return "error", causes, "; ".join((error, *log.warnings[:1]))


def _without_answer(mute: Sequence[Reply]) -> tuple[Trouble, Sequence[Reply], str]:
    if not mute:
        return "", (), ""
    return "error", mute, _first(f"{reply.seat.name}: its process neither answered nor failed" for reply in mute)


def absent(replies: Sequence[Reply]) -> tuple[Reply, ...]:
    """Return the late ranks that the others wait for, if they stand out from the rest.

    They are stopped; or silent while others report; or named by NCCL's RAS; or at an earlier stage. The result is empty
    if all ranks are late in the same way.
    """
    late = [reply for reply in replies if reply.late]
    least = min(reply.progress for reply in late)
    signs = (
        [reply for reply in late if reply.state in _STOPPED],
        [reply for reply in late if reply.stuck],
        _named_by_ras(late),
        [reply for reply in late if reply.progress == least],
        late,
    )
    return next((tuple(named) for named in signs if 0 < len(named) < len(replies)), ())


def _named_by_ras(late: Sequence[Reply]) -> list[Reply]:
    """Return the ranks that RAS lists as outliers or missing; it omits ranks that do what most others do."""
    named = {(int(rank), int(pid)) for reply in late for rank, pid in _RAS_RANK.findall(reply.ras)}
    return [reply for reply in late if (reply.seat.rank, reply.pid) in named]


def _first(reasons: Iterable[str]) -> str:
    different = list(dict.fromkeys(reasons))
    return different[0] + (f" (and {len(different) - 1} more)" if len(different) > 1 else "")


def _stand(late: Sequence[Reply]) -> str:
    places: dict[tuple[int, int], list[Reply]] = {}
    for reply in late:
        places.setdefault(reply.progress, []).append(reply)
    ordered = [places[progress] for progress in sorted(places)]
    stages = (f"{len(x)} ranks as {x[0]}" if len(x) > 1 else str(x[0]) for x in ordered)
    return "not finished in time: " + ", ".join(stages)


@dataclass(frozen=True)
class ExpectedPath:
    """The expected path between the nodes of a group: RDMA, and GPUDirect, which bypasses host memory."""

    rdma: bool
    gpu_direct: bool


@dataclass(frozen=True)
class TimedRun:
    """The timed operation: its name, its size as nccl-tests counts it, and how many warm-up runs preceded it."""

    operation: Operation
    size_bytes: int
    warmups: int


def success(
    group: RankGroup, replies: Sequence[Reply], sample: TimedRun, lines: Sequence[str], path: ExpectedPath
) -> GroupResult:
    """Return the result of a group whose ranks all finished: its speed, unless the sums or the path were wrong.

    ``lines`` are what NCCL logged on all of its ranks.
    The time of a run is the mean over its ranks (nccl-tests' default, ``-a 1``); the group's is the mean over its runs.
    """
    log = parse_nccl_log("\n".join(lines))
    answers = [reply.answer or {} for reply in replies]
    wrong = {
        reply.seat.name: answer["wrong"] for reply, answer in zip(replies, answers, strict=True) if answer["wrong"]
    }
    if wrong:
        counts = ", ".join(f"{count} of {answers[0]['elements']} elements at {name}" for name, count in wrong.items())
        return GroupResult(group, None, "wrong", detail=f"wrong sums: {counts}; {log}")
    runs = [statistics.fmean(ranks) for ranks in zip(*(answer["seconds"] for answer in answers), strict=True)]
    timed = runs[sample.warmups :]
    seconds = max(statistics.fmean(timed), 1e-9)
    rate = sample.size_bytes / seconds * bus_factor(sample.operation, len(replies)) / 1e9
    detail = f"{sample.size_bytes / GIB:.3g} GiB in {seconds * 1e3:.4g} ms, {log}"
    trouble, slow_path = _slow_path(log, path) if len(group.nodes) > 1 else ("", "")
    if trouble:
        return GroupResult(group, None, trouble, detail=f"{slow_path}; {rate:.4g} GB/s, {detail}")
    return GroupResult(group, rate, spread=statistics.pstdev(timed) / seconds, detail=detail)


def _slow_path(log: NcclLog, path: ExpectedPath) -> tuple[Trouble, str]:
    if path.rdma and "NET/Socket" in log.network_transports:
        return "socket", "NCCL used TCP sockets although the nodes are connected by RDMA"
    if path.rdma and path.gpu_direct and log.gpu_direct is False:
        why = f"NCCL copied through host memory ({', '.join(log.copying)} without GDRDMA)"
        return "no-gpudirect", "; ".join((why, *log.gdr_refusals[:1]))
    return "", ""

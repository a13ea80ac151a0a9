"""The result of one run of nccl-tests for a group: its bandwidth, or the trouble that prevented it; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuops.isolation.rounds import GroupResult, RankGroup, Trouble
from gpuops.probes.nvidia.nccl_log import NcclLog, parse_nccl_log
from gpuops.probes.nvidia.nccl_tests import NcclTestsRun, Row, parse_nccl_tests
from gpuops.probing import Unknown
from gpuops.shell import Completed

_NO_WAY = re.compile(
    r"ssh: (?:connect to host (\S+) port \d+: .*|Could not resolve hostname (\S+): .*)"
    r"|.*(?:Host key verification failed|Permission denied \(publickey).*"
)
_OUT_OF_TIME = "time limit for job execution"
_LONGEST = 200


@dataclass(frozen=True)
class NcclTestsLaunch:
    """The started command: ``ranks`` in total on the nodes of ``group``, whose peers know them by ``addresses``.

    ``rdma``: its NICs are RDMA devices, so NCCL has no reason to use TCP.
    """

    group: RankGroup
    ranks: int
    addresses: Mapping[str, str] = field(hash=False)
    rdma: bool


def figure_of(task: NcclTestsLaunch, answer: Completed) -> GroupResult:
    """Return the result contained in the output of mpirun, srun or the test.

    It is the out-of-place bus bandwidth of the largest size; the spread is its distance from the in-place series.
    """
    runs, log = parse_nccl_tests(answer.out), parse_nccl_log(f"{answer.out}\n{answer.err}")
    run = None if isinstance(runs, Unknown) else runs[-1]
    trouble = _trouble(task, answer, run, log)
    row = run.largest if run else None
    rate = row.out_of_place.busbw_gb_per_s if row else None
    if trouble or run is None or row is None or rate is None:
        kind, why = trouble or ("error", "no bandwidth was printed")
        return GroupResult(task.group, None, kind, _absent(task, kind, answer, log), detail=_short(why))
    return GroupResult(task.group, rate, spread=_spread(row), detail=str(log))


def _trouble(
    task: NcclTestsLaunch, answer: Completed, run: NcclTestsRun | None, log: NcclLog
) -> tuple[Trouble, str] | None:
    """Return what is wrong, causes before effects: a group over TCP is slow, and a slow group seems to hang."""
    no_way = _NO_WAY.search(answer.err)
    if no_way:
        return "unreachable", no_way[0]
    if task.rdma and "NET/Socket" in log.network_transports:
        return "socket", f"NCCL used TCP instead of RDMA{_rate_in_words(run)}"
    if run and run.wrong:
        return "wrong", f"wrong sums{_rate_in_words(run)}"
    if answer.timed_out or _OUT_OF_TIME in answer.err:
        return "hang", f"not finished within {answer.seconds:.0f} s"
    if log.connection_error:
        return "unreachable", log.connection_error
    return _failure(task, answer, run, log)


def _failure(
    task: NcclTestsLaunch, answer: Completed, run: NcclTestsRun | None, log: NcclLog
) -> tuple[Trouble, str] | None:
    if answer.exit or run is None or not run.complete:
        return "error", next(iter(log.warnings), "") or _complaint(answer)
    ranks = {rank.rank for rank in run.ranks}
    if ranks and ranks != set(range(task.ranks)):
        return "error", f"only {len(ranks)} of {task.ranks} ranks found each other; build nccl-tests with MPI=1"
    if task.rdma and log.gpu_direct is False:
        return "error", f"NCCL used RDMA without GPUDirect{_rate_in_words(run)}: data is copied through host memory"
    return None


def _complaint(answer: Completed) -> str:
    """Return the test's own line about the failure, else its first error; mpirun's framed text comes after it."""
    lines = [line for line in f"{answer.err}\n{answer.out}".splitlines() if any(map(str.isalpha, line))]
    failures = (line for line in lines if "Test CUDA failure" in line or "Test NCCL failure" in line)
    return next(failures, f"it ended early, with: {lines[0] if lines else 'no output'}")


def _absent(task: NcclTestsLaunch, kind: Trouble, answer: Completed, log: NcclLog) -> tuple[str, ...]:
    """Return the members at fault: those that ssh did not reach, or that made less progress than the others."""
    named = {name: node for node, address in task.addresses.items() for name in (node, address, node.partition(".")[0])}
    no_way = _NO_WAY.search(answer.err)
    if no_way:
        return tuple(node for name, node in named.items() if name in no_way.groups())[:1]
    progress = {named[host]: ready for host, ready in log.ready.items() if host in named}
    furthest = max(progress.values(), default=-1)
    late = (node for node in task.group.nodes if progress.get(node, -1) < furthest)
    return tuple(late) if kind == "hang" else ()


def _spread(row: Row) -> float:
    one, other = row.out_of_place.time_us, row.in_place.time_us
    return abs(one - other) / max(one, other) if one and other else 0.0


def _rate_in_words(run: NcclTestsRun | None) -> str:
    row = run.largest if run else None
    rate = row.out_of_place.busbw_gb_per_s if row else None
    return "" if rate is None else f" ({rate:g} GB/s)"


def _short(text: str) -> str:
    return " ".join(text.split())[:_LONGEST]

"""The result of one run of nccl-tests for a group: its bandwidth, or the trouble that prevented it; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuops.bandwidth import Operation, bus_factor
from gpuops.collective.engines import Curve, Point, Sweep
from gpuops.isolation.rounds import GroupResult, RankGroup, Trouble
from gpuops.probes.nvidia.launched_output import plain_lines
from gpuops.probes.nvidia.nccl_log import NcclLog, parse_nccl_log
from gpuops.probes.nvidia.nccl_tests import NcclTestsRun, Row, parse_nccl_tests
from gpuops.probing import Unknown
from gpuops.shell import Completed

_NO_WAY = re.compile(
    r"ssh: (?:connect to host (\S+) port \d+: .*|Could not resolve hostname (\S+): .*)"
    r"|.*(?:Host key verification failed|Permission denied \(publickey).*"
)
_OUT_OF_TIME = re.compile(r"time limit for job execution|: Test timeout \(\d+s\)")
_FAILURES = (
    re.compile(r"[A-Za-z][\w.-]*: Test (?:CUDA|NCCL) failure .*"),
    re.compile(
        r"^(?:Invalid |Unable to |.*(?:Incompatible NCCL versions|This test requires|invalid sizes? |requires CUDA P2P"
        r"|is not supported by this test|or later is needed for|is not a power of 2|KERNEL_LAUNCH)).*"
    ),
)
"""How nccl-tests names its failure, the most specific first; it may follow the cells of an unfinished row."""
_NO_MEMORY_KEY = re.compile(r"ibv_reg_dmabuf_mr\w* failed|ibv_reg_mr\w* failed with error Bad address", re.IGNORECASE)
"""The NIC's driver refused memory of a GPU: nvidia-peermem is missing, or DMA-BUF does not work."""
_WITHOUT_GPU_DIRECT = re.compile(r"\b(?:GeForce|TITAN|GB10)\b", re.IGNORECASE)
"""GPUs without GPUDirect RDMA: https://docs.nvidia.com/cuda/gpudirect-rdma (Tesla and Quadro only), DGX Spark's FAQ."""
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

    It is the out-of-place bus bandwidth of the largest size, or the in-place one if only that was measured; the spread
    is the distance between them. A log such as ``… float sum -1 22000 48.80 48.80 0 22220 48.32 48.32 0`` is 48.8 GB/s
    if its ranks are those that were started, and its last lines are complete.
    """
    runs, log = parse_nccl_tests(answer.out), parse_nccl_log(f"{answer.out}\n{answer.err}")
    run = None if isinstance(runs, Unknown) else runs[-1]
    trouble = _trouble(task, answer, run, log)
    row = run.largest if run else None
    rate = _rate(run)
    if trouble or row is None or not rate:
        kind, why = trouble or ("error", f"nccl-tests printed {'no bandwidth' if rate is None else '0 GB/s'}")
        return GroupResult(task.group, None, kind, _absent(task, kind, answer, log), detail=_short(why))
    return GroupResult(task.group, rate, spread=_spread(row), detail=str(log))


def curve_of(sweep: Sweep, task: NcclTestsLaunch, answer: Completed, operation: Operation) -> Curve:
    """Return the points contained in the output, up to the size at which it ended."""
    runs, log = parse_nccl_tests(answer.out), parse_nccl_log(f"{answer.out}\n{answer.err}")
    rows = () if isinstance(runs, Unknown) else runs[-1].rows
    factor = bus_factor(operation, task.ranks)
    points = {row.size_bytes: point for row in rows if (point := _point(row, factor, log))}
    figure = figure_of(task, answer)
    if figure.trouble:
        return Curve.failed(sweep, figure, () if figure.trouble in _SLOW_PATHS else tuple(points.values()), log)
    return Curve(sweep, tuple(points.values()), log=log)


def _point(row: Row, factor: float, log: NcclLog) -> Point | None:
    """Return a row's point; None if it moved nothing. The printed bandwidths of small sizes have too few digits."""
    half = row.out_of_place if row.out_of_place.algbw_gb_per_s is not None else row.in_place
    if not row.size_bytes or not (half.time_us or half.algbw_gb_per_s):
        return None
    seconds = half.time_us / 1e6 if half.time_us else row.size_bytes / (half.algbw_gb_per_s or 0.0) / 1e9
    rate = row.size_bytes / seconds / 1e9 * factor
    return Point(row.size_bytes, seconds, rate, _spread(row), log.choices.get(row.size_bytes, ""))


_SLOW_PATHS: frozenset[Trouble] = frozenset({"wrong", "socket", "no-gpudirect"})
"""Troubles with which the figures are not those of the fabric."""


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
    if answer.timed_out or _OUT_OF_TIME.search(f"{answer.err}\n{answer.out}"):
        return "hang", f"not finished within {answer.seconds:.0f} s"
    if log.connection_error:
        return "unreachable", log.connection_error
    alone = _incomplete(task, run) if run and answer.exit == 0 else None
    return alone or _failure(task, answer, run, log) or _copied(task, run, log)


def _failure(
    task: NcclTestsLaunch, answer: Completed, run: NcclTestsRun | None, log: NcclLog
) -> tuple[Trouble, str] | None:
    if answer.exit == 0 and run is not None and run.complete:
        return None
    refusal = next(filter(_NO_MEMORY_KEY.search, log.warnings), "")
    if task.rdma and refusal:
        return "no-gpudirect", f"the NIC cannot use the memory of a GPU: {refusal}"
    return "error", _complaint(answer, log)


def _incomplete(task: NcclTestsLaunch, run: NcclTestsRun) -> tuple[Trouble, str] | None:
    """Return what the list of ranks shows: processes without MPI are each rank 0 of a group of their own."""
    ranks = {rank.rank for rank in run.ranks}
    if run.all_ranks and ranks != set(range(task.ranks)):
        return "error", f"only {len(ranks)} of {task.ranks} ranks found each other; build nccl-tests with MPI=1"
    hosts, nodes = sorted({rank.host for rank in run.ranks}), len(task.group.nodes)
    if len(hosts) < nodes:
        return "error", f"the ranks ran on {len(hosts)} of {nodes} hosts: {', '.join(hosts)}"
    return None


def _copied(task: NcclTestsLaunch, run: NcclTestsRun | None, log: NcclLog) -> tuple[Trouble, str] | None:
    """Return that data went through host memory, unless a GPU of the group has no GPUDirect RDMA."""
    able = not any(_WITHOUT_GPU_DIRECT.search(rank.name) for rank in (run.ranks if run else ()))
    if not (task.rdma and able and log.gpu_direct is False):
        return None
    why = f"NCCL used RDMA without GPUDirect{_rate_in_words(run)}: data is copied through host memory"
    return "no-gpudirect", "; ".join((why, *log.gdr_refusals[:1]))


def _complaint(answer: Completed, log: NcclLog) -> str:
    """Return the test's own line about the failure with NCCL's first warning, else the first line with words.

    ``gpu02: Test CUDA failure common.cu:1022 'invalid device ordinal'`` is such a line; mpirun's framed text follows.
    """
    lines = [line.strip() for line in plain_lines(f"{answer.err}\n{answer.out}") if any(map(str.isalpha, line))]
    own = next((match[0] for words in _FAILURES for line in lines if (match := words.search(line))), "")
    reasons = [reason for reason in (own, *log.warnings[:1]) if reason]
    return "; ".join(reasons) or f"it ended early, with: {lines[0] if lines else 'no output'}"


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
    halves = (row.out_of_place, row.in_place)
    for one, other in ([half.time_us for half in halves], [half.busbw_gb_per_s for half in halves]):
        if one and other:
            return abs(one - other) / max(one, other)
    return 0.0


def _rate(run: NcclTestsRun | None) -> float | None:
    row = run.largest if run else None
    rates = (row.out_of_place.busbw_gb_per_s, row.in_place.busbw_gb_per_s) if row else ()
    return next((rate for rate in rates if rate is not None), None)


def _rate_in_words(run: NcclTestsRun | None) -> str:
    rate = _rate(run)
    return "" if rate is None else f" ({rate:g} GB/s)"


def _short(text: str) -> str:
    return " ".join(text.split())[:_LONGEST]

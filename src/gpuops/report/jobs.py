"""Text report of a launched job: each line of it once, where its ranks were, and why it ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuops.errors import format_count
from gpuops.launching.outcome import JobRun, RankFailure
from gpuops.launching.plan import JobPlan, interpreted
from gpuops.report import preflight
from gpuops.report.page import Page, clean, fold

_LAST_LINES = 5
_INDENT = 12


def fold_ranks(ranks: Sequence[int]) -> str:
    """Return ``0-7,9``."""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and rank == parts[-1][-1] + 1:
            parts[-1][1:] = [rank]
        else:
            parts.append([rank])
    return ",".join("-".join(map(str, part)) for part in parts)


def job_line(ranks: Sequence[int], nodes: Sequence[str], text: str) -> str:
    """Return one line of a job behind the ranks, or the nodes, that printed it."""
    return f"[{fold_ranks(ranks) if ranks else fold(nodes)}] {clean(text)}"


def lines(run: JobRun, page: Page) -> Iterator[str]:
    """Yield how the job ended, or what a dry run would start."""
    plan = run.plan
    nodes = fold(node.name for node in plan.nodes)
    title = f"job {clean(plan.name)}   {format_count(plan.world, 'rank')} of {plan.target} on {nodes}"
    if run.dry_run:
        yield from (*page.labelled("", title, 0), *_dry(plan, page))
        return
    if run.diagnosis is not None and not run.started:
        yield from preflight.lines(run.diagnosis, page)
    yield from page.edges(title, f"{run.seconds:.1f} s")
    if run.submitted:
        yield from page.labelled("  submitted", clean(run.submitted), _INDENT)
    elif run.started:
        yield from page.labelled("  positions", _positions(run), _INDENT)
    if run.logs is not None and run.started:
        yield from page.labelled("  logs", f"{clean(run.logs)}/", _INDENT)
    yield from _troubles(run, page)
    yield from page.labelled("  result", _result(run), _INDENT)


def _positions(run: JobRun) -> str:
    asserted = f"{len(run.asserted)} of {format_count(run.plan.world, 'rank')} confirmed in the planned position"
    if run.misplaced or not run.unasserted:
        return asserted
    others = fold_ranks(run.unasserted)
    if run.interrupted or run.failure or run.lost:
        return f"{asserted}; {others} had not reported theirs before the job ended"
    return f"{asserted}; unknown of {others}: no Python that reads PYTHONPATH started there"


def _troubles(run: JobRun, page: Page) -> Iterator[str]:
    for rank, wrong in sorted(run.misplaced.items()):
        yield from page.labelled("  misplaced", f"rank {rank}: {clean('; '.join(wrong))}", _INDENT)
    if run.failure is not None:
        yield from page.labelled("  cause", clean(f"{_who(run.failure)} {run.failure.ending}"), _INDENT)
        for line in run.failure.last_lines[-_LAST_LINES:]:
            yield from page.labelled("", f"| {clean(line)}", _INDENT)
    for node, excluded in run.lost.items():
        yield from page.labelled("  lost", f"{node}: {clean(excluded.why)}", _INDENT)
    for node, states in run.left.items():
        pids = ", ".join(f"{pid} (state {state})" for pid, state in states.items())
        yield from page.labelled("  left", f"{node}: not even SIGKILL ends {pids}", _INDENT)


def _who(failure: RankFailure) -> str:
    if not failure.ranks:
        return failure.node
    word = "rank" if len(failure.ranks) == 1 else "ranks"
    return f"{failure.node}, {word} {fold_ranks(failure.ranks)},"


def _result(run: JobRun) -> str:
    if run.interrupted:
        return _interrupted(run)
    if run.submitted:
        return "submitted; the scheduler starts it"
    if not run.started:
        return "not started"
    if run.is_unseen and not (run.failure or run.lost or run.left):
        return "no rank was seen: the launch files ended without an error, but no launcher started a rank"
    return "the job has ended without an error" if run.conclusion() == "ok" else "the job failed"


def _interrupted(run: JobRun) -> str:
    if not run.started:
        return "interrupted; nothing was started"
    if run.unended:
        who = "did not report the end: what still runs there is ended within"
        return f"interrupted; {fold(run.unended)} {who} {run.unended_seconds:.0f} s"
    return "interrupted" if run.left else "interrupted; everything on the nodes has been ended"


def _dry(plan: JobPlan, page: Page) -> Iterator[str]:
    for node in plan.nodes:
        ranks = fold_ranks([seat.rank for seat in node.seats])
        gpus = ",".join(str(seat.gpu) for seat in node.seats)
        what = node.script or " ".join(interpreted(plan.command)) or plan.start
        yield from page.labelled(f"  {node.name}", f"ranks {ranks} on GPUs {gpus}: {clean(what)}", _INDENT)
    yield from page.labelled("  in", clean(plan.folder), _INDENT)
    names = ", ".join(plan.environment)
    yield from page.labelled("  sets", clean(names), _INDENT) if names else ()
    yield "nothing was started"

"""Queries of the store for a person: two runs compared, and the history of nodes, parts and links."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gpuops.errors import InputError, did_you_mean
from gpuops.proposal import propose
from gpuops.results.history import (
    Explanation,
    FleetHistory,
    KeptFix,
    LinkHistory,
    NodeHistory,
    PartHistory,
    RunDetails,
    RunDiff,
    compare,
    model_failures,
    offenders,
    part_failures,
    series,
)
from gpuops.store import Runs, Store
from gpuops.store.records import CABLE, FLEET, SHARED, KeptFinding, KeptPart, KeptRun, KeptVisit, Rename, Visit

LATEST_VISITS = 200
"""As many visits of a node are shown; the store has them all."""
_FIXES = 20
_DAY_SECONDS = 86400.0


def of_run(path: Path, number: int) -> RunDetails:
    """Return one run; raise `InputError` if there is none of this number."""
    with Runs(path, create=False) as runs:
        run, visits = _run(runs, number), runs.visits_of(number)
        found = list(runs.findings_by_number(n for visit in visits.values() for n in visit.findings).values())
    nodes = {node: kept.visit for node, kept in visits.items() if node != FLEET}
    return RunDetails(run, nodes, tuple(_in_run(finding, found, nodes) for finding in found))


def _in_run(finding: KeptFinding, found: Iterable[KeptFinding], visits: Mapping[str, Visit]) -> KeptFinding:
    """Return the finding with the nodes that shared it in a run; its words, of its last run, may count others."""
    check = finding.key.check
    showing = tuple(n for n, visit in visits.items() if visit.checks.get(check, "").startswith(SHARED))
    shared = [each for each in found if (each.key.node, each.key.check) == (FLEET, check)]
    if shared != [finding] or not showing or {*showing} == {*finding.nodes}:
        return finding
    return replace(finding, nodes=showing, message=f"{finding.message} (in run {finding.last_run})")


def diff(path: Path, numbers: Sequence[int]) -> RunDiff:
    """Compare two runs: of one number, that run with the latest; of none, the latest validation with the one before.

    Raise `InputError` if there is no such run.
    """
    with Runs(path, create=False) as runs:
        before, after = _chosen(runs, sorted(numbers))
        old, new = (runs.visits_of(run.number, figures=False) for run in (before, after))
        moved = runs.parts_that_came(before.number, after.number)
        renames = [each for each in runs.renames() if before.number < each.run <= after.number]
        findings = runs.findings_between(before.number, after.number)
        result = compare(before, after, (old, new), findings, runs.last_results(), moved, renames)
    return replace(result, swapped=len(numbers) == 2 and numbers[0] > numbers[1])


def _chosen(runs: Runs, numbers: list[int]) -> tuple[KeptRun, KeptRun]:
    chosen = [_run(runs, number) for number in numbers]
    if len(chosen) == 2:
        return chosen[0], chosen[1]
    latest = runs.latest(chosen[0].verb if chosen else "validate")
    if latest is None:
        raise InputError(f"no validation is kept yet; to save one: {propose('validate')}")
    before = chosen[0] if chosen else runs.previous(latest.number, latest.verb)
    if before is None or before.number == latest.number:
        raise InputError(
            f"run {latest.number} is the latest of {latest.verb}; there is no later one to compare with it"
        )
    return before, latest


def _run(runs: Runs, number: int) -> KeptRun:
    run = runs.run(number)
    if run is None:
        raise InputError(f"no run {number} in the store{_to_list(runs, 'them', 'runs', 'list')}")
    return run


def _to_list(runs: Runs, what: str = "nodes and parts that failed", *verb: str) -> str:
    """Return how to list what the store has, or how to save a first run."""
    if not runs.count():
        return f"; no run is kept yet; to save one: {propose('validate')}"
    return f"; to list {what}: {propose(*(verb or ('history',)))}"


def why(path: Path, node: str) -> Explanation:
    """Return what the store knows of a node; raise `InputError` if it knows nothing."""
    with Store(path, create=False) as store, Runs(path, create=False) as runs:
        node = runs.name_now(node)
        events, watched, known = store.history(node), runs.watched(), store.latest_by_node()
        if not events and node not in watched:
            raise InputError(f'no record of "{node}"{did_you_mean(node, [*watched, *known]) or _to_list(runs)}')
        findings, parts = runs.findings(node), tuple(runs.parts_of(node))
        visits = runs.visits(node, LATEST_VISITS, figures=False)
        shared = [f for f in runs.findings(FLEET, is_open=True) if node in f.nodes and not _passed(f, visits)]
        shared = [_on_node(finding, visits) for finding in shared]
        alike = {(finding.key.check, finding.key.code) for finding in shared}
        own = [f for f in findings if not f.gone_run and (f.key.check, f.key.code) not in alike]
        renames, fixes = _renames(runs, node), tuple(_fixes(runs, node))
        records = [(part, _failures(runs, part.serial)) for part in parts if part.is_there and part.kind != CABLE]
    return Explanation(
        node,
        events[-1] if events else None,
        visits[-1] if visits else None,
        (*own, *shared),
        tuple(f for f in findings if f.gone_run),
        parts,
        tuple((part, count) for part, count in records if count),
        tuple(events),
        fixes,
        renames,
    )


def _fixes(runs: Runs, node: str) -> Iterator[KeptFix]:
    """Yield the fixes of a node, the oldest first; it was not left out."""
    for kept in runs.visits(node, _FIXES, verb="fix", figures=False):
        run = runs.run(kept.run)
        if run and kept.visit.status != "skipped":
            yield KeptFix(kept.run, kept.at, run.who, run.level, kept.visit.status, kept.visit.why)


def _renames(runs: Runs, node: str) -> tuple[Rename, ...]:
    """Return the changes of a machine's name that led to ``node``, the oldest first."""
    found: list[Rename] = []
    for each in reversed(runs.renames()):
        if each.node == (found[0].former if found else node):
            found.insert(0, each)
    return tuple(found)


def _passed(finding: KeptFinding, visits: Iterable[KeptVisit]) -> bool:
    """Return True if the finding's check passed on the node of ``visits`` since others were found to share it."""
    check = finding.key.check
    return any(visit.run > finding.last_run and visit.visit.checks.get(check) == "pass" for visit in visits)


def _on_node(finding: KeptFinding, visits: Sequence[KeptVisit]) -> KeptFinding:
    """Return a finding that nodes share with the runs of ``visits``, all of one node, in which that node showed it."""
    check, since = finding.key.check, finding.first_run
    showing = [v for v in visits if v.run >= since and v.visit.checks.get(check, "").startswith(SHARED)]
    if not showing or showing[0] is visits[0]:  # it may be older than these visits
        return finding
    return replace(finding, first_run=showing[0].run, first_at=showing[0].at, times=len(showing))


def _failures(runs: Runs, serial: str) -> int:
    return sum(f.status == "fail" for f in _findings_on(runs, runs.parts(serial)))


def _findings_on(runs: Runs, slots: Iterable[KeptPart]) -> list[KeptFinding]:
    return [f for slot in slots for f in runs.findings(slot.node) if _was_in(slot, f.key.part, f.first_run)]


def of_fleet(path: Path) -> FleetHistory:
    """Return the failures of all nodes, parts and models."""
    with Runs(path, create=False) as runs:
        findings, parts, watched = runs.findings(), runs.parts_there(), runs.watched()
        count, reached = runs.count(), runs.reached()
    days = {node: (last - first).total_seconds() / _DAY_SECONDS for node, (first, last, _) in watched.items()}
    failed = [record for record in part_failures(findings, parts) if record.failures]
    nodes, models = tuple(offenders(findings, days)), tuple(model_failures(findings, parts))
    return FleetHistory(count, nodes, tuple(failed), models, tuple(node for node in watched if node not in reached))


def of_node(path: Path, node: str) -> NodeHistory:
    """Return the history of a node; raise `InputError` if no run visited it."""
    with Runs(path, create=False) as runs:
        node, watched = runs.name_now(node), runs.watched()
        if node not in watched:
            raise InputError(f'no run visited "{node}"{did_you_mean(node, watched) or _to_list(runs)}')
        visits = tuple(runs.visits(node, LATEST_VISITS))
        shared = [_on_node(finding, visits) for finding in runs.findings(FLEET) if node in finding.nodes]
        found, parts = (*runs.findings(node), *shared), tuple(runs.parts_of(node))
        return NodeHistory(node, found, parts, visits, _renames(runs, node))


def of_part(path: Path, serial: str) -> PartHistory:
    """Return the history of the part with a serial number, in all its slots; raise `InputError` if none has it."""
    with Runs(path, create=False) as runs:
        slots = tuple(runs.parts(serial))
        if not slots:
            raise InputError(f'no part with the serial number "{serial}" was seen{_to_list(runs)}')
        findings = tuple(_findings_on(runs, slots))
        figures: dict[str, list[tuple[dt.datetime, float]]] = {}
        for slot in slots:
            visits = [v for v in runs.visits(slot.node, LATEST_VISITS) if slot.first_run <= v.run <= slot.last_run]
            for name, values in series(visits, f"{slot.slot}.").items():
                figures.setdefault(name.removeprefix(f"{slot.slot}."), []).extend(values)
        return PartHistory(serial, slots, findings, figures)


def _was_in(slot: KeptPart, part: str, run: int) -> bool:
    is_in = slot.first_run <= run and (slot.is_there or run <= slot.last_run + 1)
    return is_in and slot.slot in (part, f"{part} {CABLE}")


def of_link(path: Path, a: str, b: str) -> LinkHistory:
    """Return what was measured between two nodes; raise `InputError` if nothing was."""
    with Runs(path, create=False) as runs:
        a, b = runs.name_now(a), runs.name_now(b)
        measured = tuple(runs.links(a, b))
        if not measured:
            raise InputError(_why_not_measured(runs, a, b))
    return LinkHistory(a, b, measured)


def _why_not_measured(runs: Runs, a: str, b: str) -> str:
    watched = runs.watched()
    for node in (a, b):
        if node not in watched:
            return f'no run visited "{node}"{did_you_mean(node, watched) or _to_list(runs)}'
    if a == b:
        return f'a link has two nodes, found "{a}" twice'
    to_measure = propose("allreduce", f"{a},{b}", "--scope", "pairs")
    return f"nothing was measured between {a} and {b}; to measure it: {to_measure}"

"""The past of nodes, from the store, for the checks that judge over time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from gpuops.catalogue import Catalogue
from gpuops.errors import LockedError, OutputError
from gpuops.facts import Facts
from gpuops.judging import Check, Verdict, judge_node, probes_of, worst
from gpuops.probes.host.system import system
from gpuops.probing import Probe, Unknown
from gpuops.profile import NO_PROFILE
from gpuops.results import figures, parts
from gpuops.results.history import part_that_failed
from gpuops.results.recorded import seen_finding, visit_of
from gpuops.store import Runs
from gpuops.store.records import KeptFinding, KeptPart, KeptVisit, RunRecord, Visit
from gpuops.trends.counters import tallies
from gpuops.trends.drift import usual
from gpuops.trends.past import COUNTERS, OWN_CHECKS, Failure, NodePast, Record, Sight, Watch, past
from gpuops.workspace import Workspace

MOST_RUNS = 60
"""The latest runs of a node that are read: 12 days of five runs."""
_DAY = 86400.0
_SAVED = "saved answers are judged without their past"
_Group = tuple[str, ...]


def recalled(work: Workspace, checks: Iterable[Check], facts: Mapping[str, Facts]) -> dict[str, Facts]:
    """Return the facts with the past of each node, if a check needs it; unknown if the store cannot be read."""
    if past not in probes_of(checks):
        return dict(facts)
    values: Mapping[str, Record | Unknown]
    now = dt.datetime.now(dt.timezone.utc)
    if work.nodes.source == "saved":
        values = {node: Record(NodePast(node, Sight(0, now, "", {}), why=_SAVED)) for node in facts}
    else:
        try:
            with Runs(work.project.store_path, create=False) as runs:
                values = records(runs, {node: visit_of(own) for node, own in facts.items()}, now)
        except (OutputError, LockedError) as error:
            values = dict.fromkeys(facts, Unknown(str(error)))
    return {node: replace(own, values={**own.values, past.name: values[node]}) for node, own in facts.items()}


def with_figures(probes: Sequence[Probe[Any]]) -> list[Probe[Any]]:
    """Return the probes, and if the past is one of them, those of the figures and parts that the store keeps.

    A slow question is not asked for figures alone: they count if a check asked it.
    """
    kept = (*figures.PROBES, *parts.PROBES, system) if past in probes else ()
    asked = {probe.question for probe in (*probes, *kept) if probe in probes or probe.cost != "slow"}
    return list(dict.fromkeys([*probes, *(probe for probe in kept if probe.question in asked)]))


def judge_over_time(runs: Runs, record: RunRecord) -> list[Verdict]:
    """Return the verdicts of the built-in checks over time on the nodes of a run that is not saved yet."""
    known = Catalogue().checks()
    checks = [known[name] for name in sorted(OWN_CHECKS)]
    judged = records(runs, {n: v for n, v in record.nodes.items() if v.status != "skipped"}, record.began)
    facts = (Facts(node, record.began, {past.name: value}) for node, value in judged.items())
    return [verdict for own in facts for verdict in judge_node(checks, own, NO_PROFILE)]


def with_verdicts(record: RunRecord, verdicts: Iterable[Verdict]) -> RunRecord:
    """Return the run with these verdicts as those of its nodes."""
    nodes = dict(record.nodes)
    for verdict in verdicts:
        visit = nodes[verdict.node]
        found = tuple(seen_finding(finding, verdict.node) for finding in verdict.findings)
        graver = worst(verdict.findings) if visit.status in ("pass", "warn") and found else "pass"
        status = visit.status if graver == "pass" or visit.status == "fail" else graver
        checks = {**visit.checks, verdict.check: verdict.status}
        nodes[verdict.node] = replace(visit, status=status, checks=checks, findings=(*visit.findings, *found))
    return replace(record, nodes=nodes)


def records(runs: Runs, present: Mapping[str, Visit], now: dt.datetime) -> dict[str, Record]:
    """Return the past of each node as it is ``present`` now; nodes with the same GPUs are of one group."""
    latest = runs.runs(1)
    number = latest[0].number + 1 if latest else 1
    every_slot = runs.parts_there()
    by_place, by_serial = _by_place(every_slot), _by_serial(every_slot)
    findings = runs.findings()
    failures, open_counters = _failures(findings, by_place, now), _open_counters(findings)
    watched = {node: _days(first, last) for node, (first, last, _) in runs.watched().items()}
    part_days = {s: sum(_days(p.first_at, p.last_at) for p in slots) for s, slots in by_serial.items()}
    of_parts: dict[str, list[Failure]] = {}
    for failure in (each for own in failures.values() for each in own if each.serial):
        of_parts.setdefault(failure.serial, []).append(failure)
    everywhere = Watch(sum(map(len, failures.values())), sum(watched.values()))
    every_part = Watch(sum(map(len, of_parts.values())), sum(part_days.values()))
    visits = cache(lambda node: [kept for kept in runs.visits(node, MOST_RUNS) if kept.visit.boot])
    pasts = {}
    for node, visit in present.items():
        serials = {part.slot: part.serial for part in visit.parts}
        before = tuple(_sight(kept, by_place.get(node, {})) for kept in visits(node))
        own, days = tuple(failures.get(node, ())), watched.get(node, 0.0)
        mine = {serial: tuple(of_parts[serial]) for serial in serials.values() if serial in of_parts}
        mine_days = sum(part_days.get(serial, 0.0) for serial in mine)
        pasts[node] = NodePast(
            node,
            Sight(number, now, visit.boot, visit.figures, serials),
            before,
            _elsewhere(visits, node, serials, by_serial, before[0].run if before else 0),
            own,
            days,
            mine,
            {serial: part_days.get(serial, 0.0) for serial in mine},
            Watch(everywhere.failures - len(own), everywhere.days - days),
            Watch(every_part.failures - sum(map(len, mine.values())), every_part.days - mine_days),
            gpus_before=_gpus_before(by_place.get(node, {}), serials.values()),
            open_counters=frozenset(open_counters.get(node, ())),
        )
    return _grouped(pasts, present)


def _grouped(pasts: Mapping[str, NodePast], present: Mapping[str, Visit]) -> dict[str, Record]:
    groups: dict[_Group, list[NodePast]] = {}
    kinds = {node: tuple(sorted(p.model for p in visit.parts if p.kind == "gpu")) for node, visit in present.items()}
    for node, own in pasts.items():
        groups.setdefault(kinds[node], []).append(own)
    common = {kind: (tallies(own), usual(own)) for kind, own in groups.items()}
    return {node: Record(own, *common[kinds[node]]) for node, own in pasts.items()}


def _sight(kept: KeptVisit, places: Mapping[str, Sequence[KeptPart]]) -> Sight:
    serials = {slot: part.serial for slot, own in places.items() for part in own if _was_there(part, kept.run)}
    return Sight(kept.run, kept.at, kept.visit.boot, kept.visit.figures, serials)


def _gpus_before(places: Mapping[str, Sequence[KeptPart]], serials: Collection[str]) -> int:
    """Return how many slots of the node had a GPU; 0 if no part of then is there now, so it is another machine."""
    is_same = any(part.serial in serials for own in places.values() for part in own)
    return sum(any(part.kind == "gpu" for part in own) for own in places.values()) if is_same else 0


def _was_there(part: KeptPart, run: int) -> bool:
    return part.first_run <= run and (part.is_there or run <= part.last_run)


def _by_place(parts: Iterable[KeptPart]) -> dict[str, dict[str, list[KeptPart]]]:
    found: dict[str, dict[str, list[KeptPart]]] = {}
    for part in parts:
        found.setdefault(part.node, {}).setdefault(part.slot, []).append(part)
    return found


def _by_serial(parts: Iterable[KeptPart]) -> dict[str, list[KeptPart]]:
    found: dict[str, list[KeptPart]] = {}
    for part in parts:
        found.setdefault(part.serial, []).append(part)
    return found


def _failures(
    findings: Iterable[KeptFinding], places: Mapping[str, Mapping[str, Sequence[KeptPart]]], now: dt.datetime
) -> dict[str, list[Failure]]:
    """Return the failures of each node, without those that only judging over time saw."""
    found: dict[str, list[Failure]] = {}
    for finding in findings:
        node, check, slot, _ = finding.key
        if finding.status == "fail" and node and check not in OWN_CHECKS:
            failed = part_that_failed(finding, places.get(node, {}).get(slot, ()))
            until = finding.gone_at or now
            serial = failed.serial if failed else ""
            found.setdefault(node, []).append(Failure(finding.first_at, until, check, slot, serial, node))
    return found


def _open_counters(findings: Iterable[KeptFinding]) -> dict[str, set[tuple[str, str]]]:
    found: dict[str, set[tuple[str, str]]] = {}
    for finding in findings:
        node, check, part, code = finding.key
        if check == COUNTERS and finding.gone_run is None:
            found.setdefault(node, set()).add((part, code))
    return found


def _elsewhere(
    visits: Callable[[str], Iterable[KeptVisit]],
    node: str,
    serials: Mapping[str, str],
    by_serial: Mapping[str, Sequence[KeptPart]],
    oldest: int,
) -> dict[str, tuple[tuple[str, Sight], ...]]:
    """Return the runs from ``oldest`` on that saw a part before it came to the slot that it is in."""
    found: dict[str, tuple[tuple[str, Sight], ...]] = {}
    for slot, serial in serials.items():
        others = [p for p in by_serial.get(serial, ()) if (p.node, p.slot) != (node, slot) and p.last_run >= oldest]
        sights = [
            (part.slot, _sight(kept, {part.slot: [part]}))
            for part in others
            for kept in visits(part.node)
            if part.first_run <= kept.run <= part.last_run
        ]
        if sights:
            found[serial] = tuple(sorted(sights, key=lambda each: each[1].run))
    return found


def _days(first: dt.datetime, last: dt.datetime) -> float:
    return max(0.0, (last - first).total_seconds()) / _DAY

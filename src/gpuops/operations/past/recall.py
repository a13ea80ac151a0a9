"""What the store knows of nodes: a recent validation, which spares asking them again, and what measurements blamed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuops.errors import LockedError, OutputError, format_count, format_seconds
from gpuops.inventory import Host
from gpuops.judging import Check, Finding
from gpuops.judging.brakes import covers
from gpuops.operations.health import quick_checks
from gpuops.placement import NodeShape
from gpuops.probing import Unknown
from gpuops.proposal import propose
from gpuops.reasons import Excluded
from gpuops.results.kept import ALL_REDUCE, SHADOW, WAIVED, shape_from
from gpuops.store import Runs
from gpuops.store.records import FLEET, SHARED, KeptFinding, KeptVisit
from gpuops.workspace import Workspace


@dataclass(frozen=True)
class Recalled:
    """A node as a recent validation saw it: its shape, unknown for some that fail, and the checks that it fails."""

    shape: NodeShape | Unknown
    fails: tuple[str, ...]


def recall(work: Workspace, max_age: float) -> dict[str, Recalled]:
    """Return the nodes that a validation at most ``max_age`` seconds ago judged with all quick checks; say so."""
    if max_age <= 0:
        return {}
    oldest = dt.datetime.now(dt.timezone.utc) - dt.timedelta(seconds=max_age)
    checks = {check.name: check for check in quick_checks(work.catalogue)}
    waived = {waiver.check for waiver in work.waivers()}
    visits = {
        node: visit
        for node, visit in _visits(work).items()
        if visit.at >= oldest and checks.keys() <= visit.visit.checks.keys() and _still_holds(visit, checks, waived)
    }
    host_by_name = {host.name: host for host in work.hosts}
    recalled = {
        node: Recalled(_shape(v, host_by_name[node]), _fails(v))
        for node, v in visits.items()
        if v.visit.shape or _fails(v)
    }
    if recalled:
        _note(work, [visits[node] for node in recalled])
    return recalled


def blamed(work: Workspace, nodes: Collection[str]) -> dict[str, Excluded]:
    """Return the nodes of which a measurement blamed a part, and none since found it well."""
    found: dict[str, list[KeptFinding]] = {}
    known = accusations(work)
    for finding in known:
        if finding.key.node in nodes:
            found.setdefault(finding.key.node, []).append(finding)
    note_fabric(work, known)
    return {
        node: Excluded(
            node,
            "defective",
            f"{when(findings[-1])} blamed {', '.join(_part(finding) for finding in findings)}",
            checks=(ALL_REDUCE,),
            do=f"repair it, then measure again: {propose('allreduce', node)}",
        )
        for node, findings in found.items()
    }


def note_defective(work: Workspace, nodes: Collection[str], max_age: float) -> None:
    """Note which of ``nodes``, on which ranks are placed without asking them, are not healthy by the store."""
    found = {node: why.why for node, why in blamed(work, nodes).items()}
    oldest = dt.datetime.now(dt.timezone.utc) - dt.timedelta(seconds=max_age)
    for node, kept in _visits(work).items():
        if node in nodes and kept.at >= oldest and _fails(kept):
            found.setdefault(node, f"run {kept.run} of validate found {', '.join(_fails(kept))}")
    if found:
        each = "; ".join(f"{node}: {why}" for node, why in sorted(found.items()))
        work.note(f"warning: ranks are placed on nodes that are not healthy ({each})")


def note_fabric(work: Workspace, known: Iterable[KeptFinding]) -> None:
    """Note what a measurement blamed that is not of a single node: a leaf, or one of the parts of several nodes."""
    for finding in known:
        if finding.key.node == FLEET:
            slow = "jobs that cross it may be slow, which no estimate includes"
            work.note(f"{when(finding)} blamed {finding.key.part}: {slow}")


def _visits(work: Workspace) -> Mapping[str, KeptVisit]:
    try:
        with Runs(work.project.store_path, create=False) as runs:
            return runs.latest_visits([host.name for host in work.hosts], "validate", figures=False)
    except (OutputError, LockedError) as error:
        work.note(f"an earlier validation is not used: {error}")
        return {}


def accusations(work: Workspace) -> list[KeptFinding]:
    """Return what measurements blamed and none since found well, without what is waived or in shadow."""
    try:
        with Runs(work.project.store_path, create=False) as runs:
            found = runs.findings(is_open=True)
    except (OutputError, LockedError) as error:
        work.note(f"what earlier measurements blamed is not known: {error}")
        return []
    blamed = [finding for finding in found if finding.key.check == ALL_REDUCE and finding.status == "fail"]
    return [finding for finding in blamed if not _is_set_aside(work, finding)]


def _shape(kept: KeptVisit, host: Host) -> NodeShape | Unknown:
    return (
        shape_from(kept.visit.shape, host)
        if kept.visit.shape
        else Unknown(f"not known when it failed in run {kept.run}")
    )


def _still_holds(kept: KeptVisit, checks: Mapping[str, Check], waived: Collection[str]) -> bool:
    """Return True unless a check is now in shadow, or a finding waived, otherwise than when the node was seen."""
    results = {name: result for name, result in kept.visit.checks.items() if name in checks}
    shadow = {name for name, result in results.items() if result.startswith(SHADOW)}
    now_in_shadow = {name for name, check in checks.items() if check.shadow}
    was_waived = any(result.startswith(WAIVED) for result in results.values())
    return not was_waived and not shadow - now_in_shadow and not {*_fails(kept)} & {*now_in_shadow, *waived}


def _is_set_aside(work: Workspace, kept: KeptFinding) -> bool:
    """Return True if the check of the finding is in shadow, or a waiver covers it."""
    check = work.catalogue.checks().get(kept.key.check)
    severity: Any = kept.severity
    finding = Finding(kept.message, check=kept.key.check, part=kept.key.part, code=kept.key.code, severity=severity)
    nodes = frozenset(kept.nodes if kept.key.node == FLEET else (kept.key.node,))
    return bool(check and check.shadow) or any(covers(waiver, finding, nodes) for waiver in work.waivers())


def _fails(kept: KeptVisit) -> tuple[str, ...]:
    return tuple(
        name for name, result in kept.visit.checks.items() if result in ("fail", f"{SHARED}fail", f"{WAIVED}fail")
    )


def _note(work: Workspace, visits: Sequence[KeptVisit]) -> None:
    newest = max(visits, key=lambda visit: visit.run)
    age = (dt.datetime.now(dt.timezone.utc) - min(visit.at for visit in visits)).total_seconds()
    ago = format_seconds(age)
    nodes = format_count(len(visits), "node")
    if work.nodes.source == "saved":
        work.note(f"run {newest.run} of validate ({ago} ago) also counts for {nodes}; --fresh ignores it")
    else:
        work.note(f"using run {newest.run} of validate for {nodes} ({ago} ago); --fresh queries them again")


def _part(finding: KeptFinding) -> str:
    return "the node" if finding.key.part == "node" else finding.key.part


def when(finding: KeptFinding) -> str:
    """Return the measurement that last blamed the part, with its time and run."""
    return f"the all-reduce of {finding.last_at:%Y-%m-%d %H:%M} (run {finding.last_run})"

"""What the store keeps of a result: a `gpuops.store.records.RunRecord`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import singledispatch
from typing import Any

from gpuops.collective.measurement import Measurement
from gpuops.collective.preflight.diagnosis import Diagnosis
from gpuops.facts import Facts
from gpuops.inventory import Host
from gpuops.isolation.evidence import Blame, BlamedPart, Sentence
from gpuops.isolation.remedies import fix_for, fix_in_common
from gpuops.judging import Finding, Verdict
from gpuops.judging.common import REACH
from gpuops.judging.waivers import EXPIRED
from gpuops.probes.host.system import system
from gpuops.probing import Unknown
from gpuops.reasons import SEVERITIES, Objection
from gpuops.results.figures import figures_of
from gpuops.results.health import HostReport, Report, format_exclusion
from gpuops.results.kept import ALL_GPUS, ALL_RAILS, ALL_REDUCE, SHADOW, WAIVED, blamed_figures, shape_document
from gpuops.results.life import Onboarding
from gpuops.results.parts import parts_of
from gpuops.results.repair import Repair
from gpuops.secret import redact
from gpuops.store.records import FLEET, SHARED, FindingKey, RunRecord, SeenFinding, SeenLink, Visit

_REPAIRS = SEVERITIES[SEVERITIES.index("reset") :]
_NOT_NEEDED = "nothing had to be changed"
_NOT_JUDGED = "the fix did not finish, so the check did not run again"


@singledispatch
def record(result: object, run: RunRecord, hosts: Mapping[str, Host]) -> RunRecord | None:  # noqa: ARG001 - for a kind
    """Return ``run`` with what ``result`` says about the nodes; None if results of this kind are not kept."""
    return None


@record.register
def _(result: Report, run: RunRecord, hosts: Mapping[str, Host]) -> RunRecord:
    common = [finding for verdict in result.cluster_verdicts for finding in verdict.findings]
    nodes = {}
    for host in result.hosts:
        visit = _visit(host, result.facts.get(host.name), hosts)
        nodes[host.name] = replace(visit, shared=_shared(host, visit, common))
    fleet = tuple(map(seen_finding, common))
    run = replace(run, verb="validate", level=result.run.level, began=result.run.started_at)
    return replace(run, nodes=nodes, fleet=fleet, fleet_checks=frozenset({EXPIRED}))


@record.register
def _(result: Repair, run: RunRecord, hosts: Mapping[str, Host]) -> RunRecord | None:  # noqa: ARG001
    if result.record is None and not result.verdicts and not result.excluded:
        return None  # a preview changes nothing and judges nothing
    left = {node: objection.why for node, objection in result.blocked.items()}
    left |= {node: excluded.why for node, excluded in result.excluded.items()}
    tried = {step.node: Visit("unknown", _NOT_JUDGED) for step in (result.record.results if result.record else ())}
    why = "" if result.record else _NOT_NEEDED
    judged = {
        verdict.node: Visit(
            verdict.status,
            why,
            checks={verdict.check: verdict.status},
            findings=tuple(seen_finding(finding, verdict.node) for finding in verdict.findings),
        )
        for verdict in result.verdicts
        if verdict.node
    }
    return replace(run, verb="fix", level=result.check, nodes={**tried, **_left_out(left), **judged})


@record.register
def _(result: Diagnosis, run: RunRecord, hosts: Mapping[str, Host]) -> RunRecord:  # noqa: ARG001
    causes = {node: f"{cause.test}: {cause.why}" for cause in reversed(result.causes) for node in cause.nodes}
    nodes = {host: Visit("fail", redact(causes[host])) if host in causes else Visit("pass") for host in result.hosts}
    left = {node: excluded.why for node, excluded in result.excluded.items() if node not in causes}
    return replace(run, verb="preflight", nodes={**nodes, **_left_out(left)})


@record.register
def _(result: Onboarding, run: RunRecord, hosts: Mapping[str, Host]) -> RunRecord:  # noqa: ARG001
    nodes = {
        name: Visit("fail" if each.stopped_at else "pass", _stop(each.stopped_at, each.objection))
        for name, each in result.nodes.items()
    }
    return replace(run, verb="onboard", nodes=nodes)


def _stop(gate: str | None, objection: Objection | None) -> str:
    return redact(f"stopped at {gate}: {objection.why}") if gate and objection else ""


def _left_out(reasons: Mapping[str, str]) -> dict[str, Visit]:
    return {node: Visit("skipped", redact(why)) for node, why in reasons.items()}


def _visit(host: HostReport, facts: Facts | None, hosts: Mapping[str, Host]) -> Visit:
    """Return what was seen of one host; a check whose finding the fleet has did not judge this host alone."""
    return Visit(
        host.status,
        redact(format_exclusion(host.excluded)) if host.excluded else "",
        _boot(facts),
        _reached(host) | {verdict.check: _result(verdict) for verdict in host.verdicts},
        tuple(seen_finding(finding, host.name) for finding in host.findings),
        parts_of(facts) if facts else (),
        figures_of(facts) if facts else {},
        shape_document(hosts[host.name], facts) if facts and not host.excluded else None,
    )


def _shared(host: HostReport, visit: Visit, common: Iterable[Finding]) -> tuple[SeenFinding, ...]:
    """Return what the host has of findings that nodes share, so that the record of a node and of a part has them too.

    What most of the fleet shows is a setting or a service, unless parts with a serial number need a repair.
    """
    slots = {part.slot for part in visit.parts}
    of_fleet = {(finding.check, finding.code) for finding in common if finding.scope == "fleet"}
    own = (finding for verdict in host.verdicts for finding in verdict.shared)
    kept = (f for f in own if (f.check, f.code) not in of_fleet or (f.part in slots and f.severity in _REPAIRS))
    return tuple(seen_finding(finding, host.name) for finding in kept)


def _reached(host: HostReport) -> dict[str, str]:
    """Return the result of the connection, as that of a check; none if it was not the node that ended it."""
    if host.excluded is None:
        return {REACH.name: "pass"}
    return {REACH.name: "fail"} if host.excluded.is_silent else {}


def _result(verdict: Verdict) -> str:
    if verdict.shadow:
        return f"{SHADOW}{verdict.shadow.status}"
    if verdict.waived:
        return f"{WAIVED}{verdict.status}"
    return f"{SHARED if verdict.is_shared else ''}{verdict.status}"


def _boot(facts: Facts | None) -> str:
    if facts is None:
        return ""
    machine = facts[system]
    return "" if isinstance(machine, Unknown) else machine.boot_id


def visit_of(facts: Facts) -> Visit:
    """Return what the store keeps of a node before it is judged."""
    return Visit("", boot=_boot(facts), parts=parts_of(facts), figures=figures_of(facts))


def seen_finding(finding: Finding, node: str = FLEET) -> SeenFinding:
    """Return what the store keeps of a finding."""
    key = FindingKey(node, finding.check, redact(str(finding.part)), finding.code)
    severity = finding.severity or "fail"
    return SeenFinding(key, finding.status, severity, redact(finding.message), redact(finding.fix), finding.hosts)


@record.register
def _(result: Measurement, run: RunRecord, hosts: Mapping[str, Host]) -> RunRecord:  # noqa: ARG001
    found: dict[str, list[SeenFinding]] = {}
    for each in _blamed(result):
        found.setdefault(each.key.node, []).append(each)
    measured = {node for group in _groups(result) for node in group.nodes}
    nodes = {node: _measured(node, found.get(node, ()), result) for node in sorted(measured)}
    left = _left_out({node: excluded.why for node, excluded in result.excluded.items() if node not in measured})
    fleet, links = tuple(found.get(FLEET, ())), tuple(_links(result))
    return replace(run, verb="allreduce", level=_load(result), nodes={**nodes, **left}, fleet=fleet, links=links)


def _load(measurement: Measurement) -> str:
    """Return what was measured, and how, if it was not the usual payload's all-reduce over NCCL: nothing compares."""
    evidence, engine = measurement.evidence, measurement.engine
    if evidence.operation == "all_reduce" and evidence.size_bytes is None and engine != "tcp":
        return ""
    payload = f"{evidence.size_bytes} bytes" if evidence.size_bytes else "the usual payload"
    return f"{evidence.operation} of {payload} by {engine}"


def _blamed(measurement: Measurement) -> Iterator[SeenFinding]:
    nodes = measurement.evidence.fabric.nodes.keys()
    for blamed in measurement.blame.blamed:
        owner, part = _place_of(blamed)
        where = (owner, part or "node") if owner in nodes else (FLEET, " or ".join((blamed.part, *blamed.alternatives)))
        found, expected = blamed.found_gb_per_s, blamed.expected_gb_per_s
        speed = f"{found:.3g} of {expected:.3g} GB/s" if found is not None and expected else blamed.kind
        key = FindingKey(where[0], ALL_REDUCE, redact(where[1]), blamed.kind)
        yield SeenFinding(key, "fail", "fail", f"all-reduce: {blamed.kind}, {speed}", redact(fix_for(blamed)))
    for cause in measurement.blame.fleet:
        key = FindingKey(FLEET, ALL_REDUCE, "fabric", cause.kind)
        told = redact("; ".join(cause.evidence))
        yield SeenFinding(key, "fail", "fail", told, redact(fix_in_common(cause)), tuple(cause.nodes))


def _place_of(blamed: BlamedPart) -> tuple[str, str]:
    """Return the node, or what else it is, in which the fault is for certain, and the parts of it that may have it.

    The parts are empty if the node itself may have it, since it includes them; both are if two nodes may have it.
    """
    names = [name.partition(":") for name in (blamed.part, *blamed.alternatives)]
    if len({owner for owner, _, _ in names}) > 1:
        return "", ""
    parts = [part for _, _, part in names]
    return names[0][0], " or ".join(parts) if all(parts) else ""


def _measured(node: str, findings: Iterable[SeenFinding], measurement: Measurement) -> Visit:
    """Return the visit of a measured node; if it, or a part of it, is only one of several, nothing was decided."""
    found = tuple(findings)
    open_question = node in {part.partition(":")[0] for part in _undecided(measurement.blame)}
    result = "fail" if found else "unknown" if open_question or measurement.interrupted else "pass"
    figures = {
        f"{'node' if not group.gpus else 'gpus-' + '-'.join(map(str, group.gpus))}.gb_per_s": rate
        for group, rate in _best(measurement).items()
        if group.nodes == (node,)
    }
    figures |= dict(_of_blamed(node, measurement.blame.blamed))
    return Visit(result, checks={ALL_REDUCE: result}, findings=found, figures=figures)


def _of_blamed(node: str, blamed: Iterable[BlamedPart]) -> Iterator[tuple[str, float]]:
    """Yield what each blamed part of the node reached and what its peers did; see `blamed_figures`."""
    for each in blamed:
        owner, part = _place_of(each)
        if owner == node and each.found_gb_per_s and each.expected_gb_per_s:
            reached, usual = blamed_figures(part or (ALL_GPUS if each.where == "within nodes" else ALL_RAILS))
            yield from ((reached, each.found_gb_per_s), (usual, each.expected_gb_per_s))


def _undecided(blame: Blame) -> Iterator[str]:
    """Yield the parts that are suspected, named in what is unclear, or blamed as one of several."""
    yield from blame.suspects
    yield from (part for sentence in blame.unclear if isinstance(sentence, Sentence) for part in sentence.parts)
    yield from (part for each in blame.blamed if each.alternatives for part in (each.part, *each.alternatives))


def _groups(measurement: Measurement) -> list[Any]:
    return [figure.group for each in measurement.evidence.rounds for figure in each.figures]


def _best(measurement: Measurement) -> dict[Any, float]:
    """Return the best GB/s of each group."""
    best: dict[Any, float] = {}
    for each in measurement.evidence.rounds:
        for figure in each.figures:
            if figure.gb_per_s is not None and not figure.trouble:
                best[figure.group] = max(figure.gb_per_s, best.get(figure.group, 0.0))
    return best


def _links(measurement: Measurement) -> Iterator[SeenLink]:
    for group, rate in _best(measurement).items():
        if len(group.nodes) == 2:
            expected = measurement.expected.get(group)
            a, b = group.nodes
            yield SeenLink(a, b, group.rail, rate, expected.gb_per_s if expected else None)

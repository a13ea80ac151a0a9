"""Checks and verdicts: judging is a pure function of facts and a profile.

A check is a generator. It yields a `Finding` for each fault, `Unknown` if it could not see what it judges, and
`NotApplicable` if the machine does not have it. A check that yields nothing passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpuops.facts import Facts
from gpuops.judging.brakes import expired, fold_live, in_shadow, put_in_shadow, unused, waive, why_unused
from gpuops.judging.check import Check, check, choose, probes_of
from gpuops.judging.discovery import discover
from gpuops.judging.effects import fold_effects
from gpuops.judging.finding import (
    LEVELS,
    Finding,
    Judgement,
    Level,
    NotApplicable,
    Scope,
    Status,
    Verdict,
    Waived,
    worst,
)
from gpuops.judging.waivers import Waiver, load_waivers
from gpuops.probes.host.uptime import uptime
from gpuops.probing import Probe, Unknown, or_unknown
from gpuops.profile import Profile
from gpuops.reasons import SEVERITIES, Severity

__all__ = [
    "LEVELS",
    "SEVERITIES",
    "Check",
    "Finding",
    "Judgement",
    "Level",
    "NotApplicable",
    "Scope",
    "Severity",
    "Status",
    "Verdict",
    "Waived",
    "Waiver",
    "check",
    "choose",
    "discover",
    "expired",
    "fold_effects",
    "judge",
    "judge_group",
    "judge_node",
    "load_waivers",
    "probes_of",
    "put_in_shadow",
    "unused",
    "waive",
    "why_unused",
    "worst",
]


def judge_node(checks: Iterable[Check], facts: Facts, profile: Profile) -> list[Verdict]:
    """Return the verdicts of all node-scope checks on one node, with effects folded into their causes."""
    checks = [c for c in checks if c.scope != "group"]
    return fold_live([judge(c, facts, profile) for c in checks], {c.name: c for c in checks})


def judge(check: Check, facts: Facts, profile: Profile) -> Verdict:
    """Return the verdict of ``check`` on one node; it never passes if everything that it needs is unknown."""
    values = [facts[probe] for probe in check.needs]
    missing = _missing(check, profile) or _not_recalled(check, facts)
    if missing:
        return Verdict(check.name, facts.node, "skipped", why=missing, scope=check.scope)
    unknown = [value for value in values if isinstance(value, Unknown)]
    if unknown and (unread := _unread_need(check, facts)):
        return unread
    verdict = _settling(check, _verdict(check, facts.node, _judgements(check, *values, profile), profile), facts)
    if verdict.status == "pass" and unknown and len(unknown) == len(values):
        return _unknown(check, facts.node, unknown[0])
    return verdict


def _settling(check: Check, verdict: Verdict, facts: Facts) -> Verdict:
    """Return the verdict with its findings as warnings if the node has only just booted."""
    if not check.settles_seconds or verdict.status != "fail":
        return verdict
    seconds = facts[uptime]
    if isinstance(seconds, Unknown) or seconds >= check.settles_seconds:
        return verdict
    since = f"; the node booted {seconds:.0f} s ago"
    fix = f"look again {check.settles_seconds - seconds:.0f} s from now"
    findings = tuple(
        replace(f, severity="warn", message=f.message + since, fix=fix) if f.status == "fail" else f
        for f in verdict.findings
    )
    return replace(verdict, status="warn", findings=findings)


def _missing(check: Check, profile: Profile) -> str:
    absent = [key for key in check.expects if key not in profile.values]
    return f"profile {profile.name} does not set {', '.join(absent)}" if absent else ""


def _not_recalled(check: Check, facts: Facts) -> str:
    """Return why a check of the past is skipped by operations that do not read the store."""
    for probe in check.needs:
        if probe.cost == "recalled" and probe not in check.tolerates and probe.name not in facts.values:
            return "only validate reads the past of a node"
    return ""


def _unknown(check: Check, node: str, value: Unknown) -> Verdict:
    return Verdict(check.name, node, "unknown", why=value.why, scope=check.scope, needs_root=value.needs_root)


def _unread(check: Check, node: str, probe: Probe[Any], value: Unknown) -> Verdict:
    """Return the verdict if ``check`` needs ``probe``, and its value is unknown."""
    return replace(_unknown(check, node, value), not_measured=probe.cost == "heavy")


def _judgements(check: Check, *arguments: Any) -> list[Judgement]:
    """Return what ``check`` yields; a check that raises is unknown, never a pass."""
    judgements = or_unknown(lambda: list(check.judge(*arguments)), "the check itself failed", str(check.path))
    return [judgements] if isinstance(judgements, Unknown) else judgements


def _verdict(check: Check, node: str, judgements: list[Judgement], profile: Profile) -> Verdict:
    if not judgements:
        return Verdict(check.name, node, "pass", scope=check.scope)
    findings = tuple(_complete(check, f, node, profile) for f in judgements if isinstance(f, Finding))
    unknown = next((u for u in judgements if isinstance(u, Unknown)), None)
    absent = next((n for n in judgements if isinstance(n, NotApplicable)), None)
    status = worst(findings)
    if status == "pass" and unknown:
        return replace(_unknown(check, node, unknown), findings=findings)
    if status == "pass" and absent:
        return Verdict(check.name, node, "skipped", findings, absent.why, check.scope)
    return Verdict(check.name, node, status, findings, unknown.why if unknown else "", check.scope)


def _complete(check: Check, finding: Finding, host: str, profile: Profile) -> Finding:
    """Fill in a finding's host, check, severity and fix; a guess in the profile can warn, but never fail."""
    severity = finding.severity or check.severity
    if profile.grade(check.reads) == "guess" and severity != "info":
        severity = "warn"
    fix = finding.fix or check.fix
    fault_of = finding.fault_of or check.fault_of
    return replace(
        finding, severity=severity, fix=fix, host=host, check=check.name, scope=check.scope, fault_of=fault_of
    )


def judge_group(check: Check, facts: Mapping[str, Facts], profile: Profile) -> list[Verdict]:
    """Return one verdict per node from a check that compares a profile's nodes; findings without a host get node ""."""
    missing = _missing(check, profile)
    if missing:
        return [Verdict(check.name, node, "skipped", why=missing, scope="group") for node in facts]
    unread = {node: verdict for node, own in facts.items() if (verdict := _unread_need(check, own))}
    values = {node: tuple(own[probe] for probe in check.needs) for node, own in facts.items() if node not in unread}
    usable = {node: own if len(own) > 1 else own[0] for node, own in values.items()}
    verdicts = [*unread.values(), *_group_verdicts(check, _judgements(check, usable, profile), usable, profile)]
    return [in_shadow(verdict) for verdict in verdicts] if check.shadow else verdicts


def _unread_need(check: Check, facts: Facts) -> Verdict | None:
    """Return the verdict if a need that ``check`` does not tolerate is unknown; None if there is none."""
    unknown = ((probe, value) for probe in check.needs if isinstance(value := facts[probe], Unknown))
    return next((_unread(check, facts.node, p, value) for p, value in unknown if p not in check.tolerates), None)


def _group_verdicts(
    check: Check, judgements: list[Judgement], nodes: Iterable[str], profile: Profile
) -> Iterator[Verdict]:
    common = [j for j in judgements if not isinstance(j, Finding)]
    for node in nodes:
        own = [j for j in judgements if isinstance(j, Finding) and j.host == node]
        yield _verdict(check, node, [*own, *common], profile)
    hostless = [j for j in judgements if isinstance(j, Finding) and not j.host]
    if hostless:
        yield _verdict(check, "", list(hostless), profile)

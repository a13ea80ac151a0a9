"""Cause and effect among the findings of one node: one fault is one finding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpuops.judging.check import Check
from gpuops.judging.finding import Finding, Verdict, severity_rank, worst


def fold_effects(verdicts: list[Verdict], checks: Mapping[str, Check]) -> list[Verdict]:
    """Return one node's verdicts with effects folded into their causes, so that one fault is one finding.

    A finding is an effect if a check with a finding on the same part explains it, directly or through other checks,
    and that finding is at least as severe. Of two checks that explain each other, the more severe is the cause. A check
    that could not look because of a fault is skipped. The order of ``verdicts`` does not matter.
    """
    if not any(v.findings for v in verdicts):
        return verdicts
    explained = {v.check: _explained_by(v.check, checks) for v in verdicts}
    findings = [finding for v in verdicts for finding in v.findings]
    findings.sort(key=lambda finding: (-severity_rank(finding), finding.check))
    roots = [(_root_cause(finding, findings, explained), finding) for finding in findings]
    failing = [finding.check for finding in findings if finding.status == "fail"]
    blinded = {name: by for by in reversed(failing) for name in _spelled_out(checks[by].blinds, checks)}
    return [_folded(v, roots, blinded.get(v.check, "")) for v in verdicts]


_Explained = Mapping[str, set[str]]
_Roots = list[tuple[Finding, Finding]]
"""Pairs of root cause and finding; a finding without another cause is its own root cause."""


def _explained_by(name: str, checks: Mapping[str, Check]) -> set[str]:
    """Return the words that ``name`` explains, directly or through checks that it explains."""
    explained: set[str] = set()
    edge = [name]
    while edge:
        new = _spelled_out(checks[edge.pop()].explains, checks) - explained
        explained |= new
        edge += sorted(new & set(checks))
    return explained


def _spelled_out(words: tuple[str, ...], checks: Mapping[str, Check]) -> set[str]:
    """Return the words, and for each tag also the checks that have it."""
    return {*words, *(c.name for c in checks.values() if set(words) & set(c.tags))}


def _may_explain(cause: Finding, effect: Finding, explained: _Explained) -> bool:
    named = explained[cause.check] & {effect.check, f"{effect.check}:{effect.code}"}
    return (
        bool(named)
        and cause.check != effect.check
        and cause.part == effect.part
        and severity_rank(cause) >= severity_rank(effect)
    )


def _root_cause(effect: Finding, findings: list[Finding], explained: _Explained) -> Finding:
    """Return the unexplained finding that explains ``effect``; if two explain each other, the first by name."""
    for cause in findings:
        mutual = _may_explain(effect, cause, explained)
        if _may_explain(cause, effect, explained) and (not mutual or cause.check < effect.check):
            return _root_cause(cause, findings, explained)
    return effect


def _folded(verdict: Verdict, roots: _Roots, blinded_by: str) -> Verdict:
    own = [(root, finding) for root, finding in roots if finding.check == verdict.check]
    kept = tuple(_with_effects(finding, roots) for root, finding in own if root is finding)
    cause = next((root.check for root, finding in own if root is not finding), "")
    status, why = verdict.status, verdict.why
    if cause and status in {"warn", "fail"}:
        status = worst(kept)
        if status == "pass":
            status, why = ("unknown", why) if why else ("skipped", f"an effect of {cause}")
    if status == "unknown" and blinded_by:
        why = f"an effect of {blinded_by}"
        return replace(verdict, findings=kept, status="skipped", why=why, blinded_by=blinded_by)
    return replace(verdict, findings=kept, status=status, why=why)


def _with_effects(cause: Finding, roots: _Roots) -> Finding:
    effects = [f"{effect.check}: {effect.message}" for root, effect in roots if root is cause and effect is not cause]
    return replace(cause, effects=(*cause.effects, *effects))

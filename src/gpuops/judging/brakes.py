"""Brakes: what a check in shadow found, and what a waiver covers, is set aside and counts for nothing; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from gpuops.document import Where
from gpuops.errors import DocumentError, did_you_mean
from gpuops.judging.check import Check
from gpuops.judging.effects import fold_effects
from gpuops.judging.finding import Finding, Verdict, Waived, worst
from gpuops.judging.waivers import EXPIRED, Waiver
from gpuops.probing import PartName

_FATAL = frozenset({"isolate", "rma"})
"""Severities of a part that must not be used: a waiver has to name that part."""


def put_in_shadow(checks: Mapping[str, Check], names: Iterable[tuple[str, Where]]) -> dict[str, Check]:
    """Return the checks with those of ``names`` in shadow; raise `DocumentError` if there is no such check."""
    shadow = dict(names)
    for name, where in shadow.items():
        if name not in checks:
            hint = did_you_mean(name, checks) or "; to list them: gpuops checks list"
            raise DocumentError(where, f'no check named "{name}"{hint}')
    return {name: replace(check, shadow=check.shadow or name in shadow) for name, check in checks.items()}


def fold_live(verdicts: Sequence[Verdict], checks: Mapping[str, Check]) -> list[Verdict]:
    """Return one node's verdicts with effects folded; those of checks in shadow explain and blind no other."""
    shadow = {check.name for check in checks.values() if check.shadow}
    if not shadow:
        return fold_effects(list(verdicts), checks)
    live = [verdict for verdict in verdicts if verdict.check not in shadow]
    counted = {v.check: v for v in fold_effects(live, {name: c for name, c in checks.items() if name not in shadow})}
    judged = fold_effects(list(verdicts), checks)
    return [in_shadow(verdict) if verdict.check in shadow else counted[verdict.check] for verdict in judged]


def in_shadow(verdict: Verdict) -> Verdict:
    """Return what counts of the verdict of a check in shadow: it was skipped."""
    why = "in shadow, counts for nothing"
    return Verdict(verdict.check, verdict.node, "skipped", why=why, scope=verdict.scope, shadow=verdict)


def waive(verdicts: Iterable[Verdict], waivers: Sequence[Waiver]) -> list[Verdict]:
    """Return the verdicts without the findings that ``waivers`` cover, which become their ``waived``.

    What could not look because of such a finding is unknown again: that was not waived.
    """
    verdicts = list(verdicts)
    if not waivers:
        return verdicts
    rest = [_without_waived(verdict, waivers) for verdict in verdicts]
    excused = {(verdict.node, verdict.check) for verdict in rest if verdict.waived and verdict.status != "fail"}
    return [_looking_again(v) if (v.node, v.blinded_by) in excused else v for v in rest]


def _looking_again(verdict: Verdict) -> Verdict:
    why = f"{verdict.blinded_by} fails, which is waived, so this could not look"
    return replace(verdict, status="unknown", why=why, blinded_by="")


def _without_waived(verdict: Verdict, waivers: Sequence[Waiver]) -> Verdict:
    pairs = [(finding, _waiver_of(finding, verdict.node, waivers)) for finding in verdict.findings]
    waived = tuple(Waived(finding, waiver) for finding, waiver in pairs if waiver)
    if not waived:
        return verdict
    kept = tuple(finding for finding, waiver in pairs if not waiver)
    status, why = worst(kept), verdict.why
    if status == "pass":
        status, why = ("unknown", why) if why else ("skipped", waived[0].waiver.note)
    return replace(verdict, findings=kept, status=status, why=why, waived=waived)


def _waiver_of(finding: Finding, node: str, waivers: Sequence[Waiver]) -> Waiver | None:
    nodes = frozenset({node} if node else finding.hosts)
    return next((waiver for waiver in waivers if covers(waiver, finding, nodes)), None)


def covers(waiver: Waiver, finding: Finding, nodes: frozenset[str]) -> bool:
    """Return True if the waiver is for this finding on ``nodes``; empty for a finding that blames none."""
    return (
        waiver.check == finding.check
        and finding.status != "pass"
        and (waiver.nodes is None or (bool(nodes) and nodes <= waiver.nodes))
        and waiver.part in ("", str(finding.part))
        and waiver.code in ("", finding.code)
        and (bool(waiver.part) or finding.severity not in _FATAL)
    )


def unused(verdicts: Iterable[Verdict], waivers: Iterable[Waiver]) -> list[Waiver]:
    """Return the ``waivers`` that cover none of the findings."""
    used = {waived.waiver for verdict in verdicts for waived in verdict.waived}
    return [waiver for waiver in waivers if waiver not in used]


def why_unused(waiver: Waiver, verdicts: Iterable[Verdict]) -> str:
    """Return why ``waiver`` covers none of the findings of ``verdicts``; empty if its check looked at no node of it."""
    if waiver.nodes is not None and not waiver.nodes:
        return f'"{waiver.hosts}" selects no host'
    own = [v for v in verdicts if v.check == waiver.check and (waiver.nodes is None or v.node in waiver.nodes)]
    for verdict in own:
        for finding in verdict.findings:
            if covers(replace(waiver, part=str(finding.part)), finding, frozenset({verdict.node})) and not waiver.part:
                return f"{finding.severity} findings need their part; add to it: part: {finding.part}"
    has_looked = any(verdict.status != "unknown" and not verdict.shadow for verdict in own)
    return "no such finding in this run" if has_looked else ""


def expired(waivers: Iterable[Waiver]) -> Iterator[Verdict]:
    """Yield one warning about the fleet for each of these waivers, which have expired."""
    for waiver in waivers:
        finding = Finding(
            f"{waiver.where}: the waiver for {waiver.check} expired on {waiver.expires} ({waiver.author}: "
            f"{waiver.reason}); its findings count again",
            fix=f"delete it from {waiver.where.file}, or give it another day after looking at the nodes",
            part=PartName(f"waiver:{waiver.check}", f"{waiver.where.file}, line {waiver.where.line}"),
            code=" ".join(filter(None, (waiver.hosts, waiver.part, waiver.code))),
            severity="warn",
            check=EXPIRED,
            scope="fleet",
            fault_of="user",
        )
        yield Verdict(EXPIRED, "", "warn", (finding,), scope="fleet")

"""Checks and verdicts: judging is a pure function of facts and a profile.

A check is a generator. It yields a `Finding` for each fault, `Unknown` if it could not see what it judges, and
`NotApplicable` if the machine does not have it. A check that yields nothing passes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, InitVar, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from gpuops.content import ContentFile, listing, load_python
from gpuops.errors import ContentError, did_you_mean
from gpuops.facts import Facts
from gpuops.probing import PartName, Probe, Unknown, or_unknown
from gpuops.profile import Profile

Status = Literal["pass", "warn", "fail", "unknown", "skipped"]
Severity = Literal["info", "warn", "fail", "reset", "reboot", "isolate"]
Scope = Literal["node", "group"]
Level = Literal["quick", "standard", "burnin"]

LEVELS: tuple[Level, ...] = ("quick", "standard", "burnin")
SEVERITIES: tuple[Severity, ...] = ("info", "warn", "fail", "reset", "reboot", "isolate")
"""From mild to severe. ``info`` and ``warn`` do not fail the node; the others do, and name the repair that it needs."""


@dataclass(frozen=True)
class Finding:
    """One fault: what was expected, what was found (both in ``unit``), and the ``fix``.

    ``part`` is the part at fault: ``driver``, ``node``, or a `PartName` with a label. ``severity`` and ``fix`` default
    to those of the check. ``code`` distinguishes the findings of one check (an Xid's number), so that another check can
    explain ``xid:79`` but not all of ``xid``. gpuops fills in ``check``, ``scope`` and ``host``; only a check that
    compares a group sets the host at fault itself, or leaves it empty.
    """

    message: str
    _: KW_ONLY
    expected: object = None
    found: object = None
    unit: str = ""
    fix: str = ""
    part: str = "node"
    severity: Severity | None = None
    code: str = ""
    effects: tuple[str, ...] = ()
    host: str = ""
    check: str = ""
    scope: Scope = "node"
    subject: InitVar[str | None] = None
    label: InitVar[str | None] = None

    def __post_init__(self, subject: str | None, label: str | None) -> None:
        """Accept the former names of ``part``, which are removed in 0.2."""
        if subject is not None or label is not None:
            advice = "Finding: subject= and label= are deprecated; pass part=, a str or gpuops.PartName(name, label)"
            warnings.warn(advice, DeprecationWarning, stacklevel=3)
            object.__setattr__(self, "part", PartName(subject or self.part, label or ""))

    @property
    def part_label(self) -> str:
        """Description of the part for people; empty if there is only its short name."""
        return self.part.label if isinstance(self.part, PartName) else ""

    @property
    def status(self) -> Status:
        """Status of a node with this finding alone; ``pass`` if it is only information."""
        return worst([self])


@dataclass(frozen=True)
class NotApplicable:
    """Answer of a check if the machine does not have what it judges."""

    why: str


Judgement = Finding | Unknown | NotApplicable


@dataclass(frozen=True)
class Check:
    """One check: the probes that it ``needs``, the profile keys that it ``expects``, and its function ``judge``.

    Keys that it ``uses`` may be missing.
    """

    name: str
    needs: tuple[Probe[Any], ...]
    judge: Callable[..., Iterator[Judgement]]
    severity: Severity = "fail"
    tags: tuple[str, ...] = ("quick",)
    scope: Scope = "node"
    expects: tuple[str, ...] = ()
    tolerates: tuple[Probe[Any], ...] = ()
    explains: tuple[str, ...] = ()
    blinds: tuple[str, ...] = ()
    catches: str = ""
    fix: str = ""
    doc: str = ""
    path: Path = Path()
    uses: tuple[str, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        """The profile keys that it reads."""
        return (*self.expects, *self.uses)

    @property
    def level(self) -> Level:
        """Lowest level that runs this check, from its tags; quick by default."""
        return next((level for level in LEVELS if level in self.tags), "quick")


@dataclass(frozen=True)
class Verdict:
    """Result of one check on one node. ``why`` explains unknown and skipped.

    ``not_measured`` is set if the check is unknown because a load that it needs was not put on the node, or revealed
    nothing (the node is busy, or runs no engine). Such a node is not assessed, whatever its profile requires.
    """

    check: str
    node: str
    status: Status
    findings: tuple[Finding, ...] = ()
    why: str = ""
    scope: Scope = "node"
    needs_root: bool = False
    not_measured: bool = False


def check(  # noqa: PLR0913 - each word is one line of what `checks explain` prints
    *,
    needs: Probe[Any] | tuple[Probe[Any], ...],
    severity: Severity = "fail",
    tags: tuple[str, ...] = ("quick",),
    scope: Scope = "node",
    expects: tuple[str, ...] = (),
    uses: tuple[str, ...] = (),
    tolerates: tuple[Probe[Any], ...] = (),
    explains: tuple[str, ...] = (),
    blinds: tuple[str, ...] = (),
    catches: str = "",
    fix: str = "",
) -> Callable[[Callable[..., Iterator[Judgement]]], Check]:
    """Turn a generator function ``judge(value of each need …, profile)`` into a check of the same name.

    With ``scope="group"`` the function is called as ``judge({node: value}, profile)`` for the nodes of one profile;
    with several needs, a node's value is the tuple of them. A need in ``tolerates`` is passed as `Unknown` if it is
    unknown; any other unknown need makes the check unknown. If the profile lacks a key in ``expects``, the check is
    skipped; those that it ``uses`` may be missing. ``explains`` names checks, tags or ``check:code``: their findings on
    the same part are reported as effects of this check's findings. ``blinds`` (Alertmanager: inhibits) names checks or
    tags that cannot look while this check fails: if unknown, they are reported as skipped.
    """
    probes = (needs,) if isinstance(needs, Probe) else needs

    def make(judge: Callable[..., Iterator[Judgement]]) -> Check:
        name = judge.__name__.replace("_", "-")
        words = (severity, tags, scope, expects, tolerates, explains, blinds, catches, fix, _doc(judge))
        return Check(name, probes, judge, *words, uses=uses)

    return make


def _doc(judge: Callable[..., Any]) -> str:
    return " ".join((judge.__doc__ or "").split())


def discover(project: Path | None = None) -> dict[str, Check]:
    """Return all checks by name: one per Python file in ``checks/``; the project's hide built-in ones."""
    return {file.name: _load(file) for file in listing("checks", ".py", project).values()}


def _load(file: ContentFile) -> Check:
    module = load_python(file)
    checks = [value for value in vars(module).values() if isinstance(value, Check)]
    if len(checks) != 1 or checks[0].name != file.name:
        raise ContentError(f"{file.path}: expected exactly one @check function, named {file.name.replace('-', '_')}")
    about = " ".join((module.__doc__ or "").split())
    return replace(checks[0], path=file.path, doc=" ".join(filter(None, (about, checks[0].doc))))


def choose(
    checks: Mapping[str, Check], level: Level, only: Iterable[str] = (), skip: Iterable[str] = ()
) -> list[Check]:
    """Return the checks of ``level`` and below.

    ``only`` and ``skip`` name checks or tags. In ``only``, the name of a check or of a level counts whatever ``level``
    is; any other tag chooses within ``level``. Raise `ContentError` for an unknown name, and for a tag in ``only``
    that chooses nothing.
    """
    only, skip = set(only), set(skip)
    words = set(checks) | {tag for c in checks.values() for tag in c.tags}
    for word in (only | skip) - words:
        raise ContentError(f'no check or tag named "{word}"{did_you_mean(word, words) or "; gpuops checks list"}')
    at_level = [c for c in checks.values() if LEVELS.index(c.level) <= LEVELS.index(level)]
    for tag in only.difference(checks, LEVELS, *(c.tags for c in at_level)):
        needed = min((c.level for c in checks.values() if tag in c.tags), key=LEVELS.index)
        raise ContentError(f'no check of level {level} has the tag "{tag}"; add --level {needed}')
    by_tag = [c for c in at_level if not only or only & set(c.tags)]
    return [c for c in checks.values() if only & {c.name, c.level} or c in by_tag if not skip & {c.name, *c.tags}]


def probes_of(checks: Iterable[Check]) -> list[Probe[Any]]:
    """Return each probe that ``checks`` need, once."""
    return list(dict.fromkeys(probe for c in checks for probe in c.needs))


def judge_node(checks: Iterable[Check], facts: Facts, profile: Profile) -> list[Verdict]:
    """Return the verdicts of all node-scope checks on one node, with effects folded into their causes."""
    checks = [c for c in checks if c.scope != "group"]
    return fold_effects([judge(c, facts, profile) for c in checks], {c.name: c for c in checks})


def judge(check: Check, facts: Facts, profile: Profile) -> Verdict:
    """Return the verdict of ``check`` on one node; it never passes if everything that it needs is unknown."""
    values = [facts[probe] for probe in check.needs]
    missing = _missing(check, profile)
    if missing:
        return Verdict(check.name, facts.node, "skipped", why=missing, scope=check.scope)
    if unread := _unread_need(check, facts):
        return unread
    verdict = _verdict(check, facts.node, _judgements(check, *values, profile), profile)
    unknown = [value for value in values if isinstance(value, Unknown)]
    if verdict.status == "pass" and unknown and len(unknown) == len(values):
        return _unknown(check, facts.node, unknown[0])
    return verdict


def _missing(check: Check, profile: Profile) -> str:
    absent = [key for key in check.expects if key not in profile.values]
    return f"profile {profile.name} does not set {', '.join(absent)}" if absent else ""


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
    return replace(finding, severity=severity, fix=fix, host=host, check=check.name, scope=check.scope)


def worst(findings: Iterable[Finding]) -> Status:
    """Return the status that follows from the most severe of ``findings``."""
    rank = max(map(_rank, findings), default=0)
    return "pass" if rank == 0 else "warn" if rank == 1 else "fail"


def judge_group(check: Check, facts: Mapping[str, Facts], profile: Profile) -> list[Verdict]:
    """Return one verdict per node from a check that compares a profile's nodes; findings without a host get node ""."""
    missing = _missing(check, profile)
    if missing:
        return [Verdict(check.name, node, "skipped", why=missing, scope="group") for node in facts]
    unread = {node: verdict for node, own in facts.items() if (verdict := _unread_need(check, own))}
    values = {node: tuple(own[probe] for probe in check.needs) for node, own in facts.items() if node not in unread}
    usable = {node: own if len(own) > 1 else own[0] for node, own in values.items()}
    return [*unread.values(), *_group_verdicts(check, _judgements(check, usable, profile), usable, profile)]


def _unread_need(check: Check, facts: Facts) -> Verdict | None:
    """Return the verdict if a need that ``check`` does not tolerate is unknown; None if there is none."""
    values = ((probe, facts[probe]) for probe in check.needs if probe not in check.tolerates)
    return next((_unread(check, facts.node, p, value) for p, value in values if isinstance(value, Unknown)), None)


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
    findings.sort(key=lambda finding: (-_rank(finding), finding.check))
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


def _rank(finding: Finding) -> int:
    return SEVERITIES.index(finding.severity or "fail")


def _may_explain(cause: Finding, effect: Finding, explained: _Explained) -> bool:
    named = explained[cause.check] & {effect.check, f"{effect.check}:{effect.code}"}
    return bool(named) and cause.check != effect.check and cause.part == effect.part and _rank(cause) >= _rank(effect)


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
        status, why = "skipped", f"an effect of {blinded_by}"
    return replace(verdict, findings=kept, status=status, why=why)


def _with_effects(cause: Finding, roots: _Roots) -> Finding:
    effects = [f"{effect.check}: {effect.message}" for root, effect in roots if root is cause and effect is not cause]
    return replace(cause, effects=(*cause.effects, *effects))

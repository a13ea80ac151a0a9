"""Health report of one run, host by host, and its JSON document ``gpuops.report/1``."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gpuops.errors import ConnectError
from gpuops.facts import Facts
from gpuops.judging import Finding, Level, Status, Verdict, Waived, Waiver
from gpuops.profile import Profile
from gpuops.reasons import Conclusion, Excluded, FailOn, Result
from gpuops.results.changes import changes_document
from gpuops.results.plain import plain
from gpuops.secret import redact
from gpuops.store.records import Changes

STATUSES: tuple[Status, ...] = ("pass", "warn", "fail", "unknown", "skipped")
_GRAVE: dict[FailOn, frozenset[Status]] = {
    "fail": frozenset({"fail"}),
    "new": frozenset({"fail"}),
    "warn": frozenset({"fail", "warn"}),
    "never": frozenset(),
}


@dataclass(frozen=True)
class Run:
    """Data about a run. ``started_at`` has a time zone, ``seconds`` is wall time, ``inventory`` is a display name."""

    version: str
    started_at: dt.datetime
    inventory: str
    level: Level
    seconds: float
    command: str = ""


@dataclass(frozen=True)
class HostReport:
    """Verdicts on one host under its profile, or the reason why it was ``excluded``."""

    name: str
    verdicts: tuple[Verdict, ...] = ()
    profile: str = ""
    required: frozenset[str] = frozenset()
    excluded: Excluded | None = None

    @property
    def status(self) -> Status:
        """The most severe status: fail, warn, unknown, pass; skipped if there was nothing to judge."""
        statuses = {v.status for v in self.verdicts}
        if statuses & {"fail", "warn"}:
            return "fail" if "fail" in statuses else "warn"
        if self.not_assessed:
            return "unknown"
        return "pass" if "pass" in statuses else "skipped"

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all verdicts, in their order."""
        return _findings(self.verdicts)

    @property
    def shared(self) -> tuple[Verdict, ...]:
        """The verdicts whose findings are reported once, for all the hosts that share them."""
        return tuple(v for v in self.verdicts if v.is_shared)

    @property
    def unknown(self) -> tuple[Verdict, ...]:
        """The verdicts of checks that could not look."""
        return tuple(v for v in self.verdicts if v.status == "unknown")

    @property
    def required_unknown(self) -> tuple[Verdict, ...]:
        """The unknown verdicts that do not count as a pass, or all if no check could look.

        They are those of checks that the profile requires, and of checks whose load the node did not take.
        """
        if all(v.status in ("unknown", "skipped") for v in self.verdicts):
            return self.unknown
        return tuple(v for v in self.unknown if v.not_measured or v.check in self.required)

    @property
    def not_assessed(self) -> bool:
        """True if too little is known about this host to judge it."""
        return self.excluded is not None or bool(self.required_unknown)


@dataclass(frozen=True)
class Unmatched:
    """Hosts of one ``kind`` of machine that no profile matches.

    ``checks`` were skipped because they compare with numbers. ``do`` is the command that learns a profile, if possible.
    """

    kind: str
    hosts: tuple[str, ...]
    checks: tuple[str, ...]
    do: str = ""


@dataclass(frozen=True)
class Report(Result):
    """Result of one run over many hosts, in inventory order. ``cluster_verdicts`` blame no host.

    ``not_run`` has the names of the checks of higher levels, by level. ``unmatched`` are hosts without a profile.
    ``facts`` has the facts that were judged, by host, and is not part of the document. ``interrupted`` is true if the
    run was stopped before its end. ``number`` is the run's in the store, and None if it was not saved. ``changes``
    is what is new since the runs before, and None if these are not known. ``unused_waivers`` covered nothing.
    """

    SCHEMA: ClassVar[str] = "gpuops.report/1"
    """Fields may be added under the same number; none is removed or changes its meaning."""

    run: Run
    hosts: tuple[HostReport, ...]
    cluster_verdicts: tuple[Verdict, ...] = ()
    not_run: Mapping[Level, tuple[str, ...]] = field(default_factory=dict, hash=False)
    unmatched: tuple[Unmatched, ...] = ()
    facts: Mapping[str, Facts] = field(default_factory=dict, hash=False, repr=False)
    interrupted: bool = False
    number: int | None = None
    changes: Changes | None = None
    unused_waivers: tuple[Waiver, ...] = ()

    @property
    def seconds(self) -> float:
        """The wall time of the run."""
        return self.run.seconds

    @property
    def summary(self) -> dict[Status, int]:
        """The number of hosts by status."""
        statuses = [host.status for host in self.hosts]
        return {status: statuses.count(status) for status in STATUSES}

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every finding, host by host; those that blame no host come last."""
        by_host = tuple(finding for host in self.hosts for finding in host.findings)
        return by_host + _findings(self.cluster_verdicts)

    @property
    def shadow(self) -> tuple[Finding, ...]:
        """The findings of checks in shadow, which are not among ``findings``."""
        return _findings(verdict.shadow for verdict in self._verdicts if verdict.shadow)

    @property
    def waived(self) -> tuple[Waived, ...]:
        """The findings that waivers cover, which are not among ``findings``."""
        return tuple(waived for verdict in self._verdicts for waived in verdict.waived)

    @property
    def _verdicts(self) -> tuple[Verdict, ...]:
        return (*(verdict for host in self.hosts for verdict in host.verdicts), *self.cluster_verdicts)

    @property
    def healthy(self) -> tuple[str, ...]:
        """The hosts that have neither a failure nor an unknown required check."""
        return tuple(host.name for host in self.hosts if host.status != "fail" and not host.not_assessed)

    @property
    def excluded(self) -> Mapping[str, Excluded]:
        """The hosts that could not be judged, each with the reason."""
        return {host.name: host.excluded for host in self.hosts if host.excluded is not None}

    def conclusion(self, fail_on: FailOn = "fail") -> Conclusion:
        """Return ``failed`` for a finding at or above ``fail_on``, else ``incomplete`` if a host was not assessed.

        With ``new``, only what the runs before did not have counts; everything does if these are not known.
        """
        if self.interrupted:
            return "interrupted"
        if fail_on == "new" and self.changes:
            is_failed = any(finding.status == "fail" for finding in self.changes.new)
            return "failed" if is_failed else "incomplete" if self.changes.no_longer_assessed else "ok"
        if any(finding.status in _GRAVE[fail_on] for finding in self.findings):
            return "failed"
        return "incomplete" if any(host.not_assessed for host in self.hosts) else "ok"

    def to_document(self) -> dict[str, Any]:
        """Return the report as plain dicts, lists and scalars, secrets masked; see docs/schemas/report-1.json."""
        not_run = {level: list(names) for level, names in self.not_run.items()}
        return {
            "schema": self.SCHEMA,
            "run": _run_document(self.run) | {"not_run": not_run},
            "unmatched": [plain(each) for each in self.unmatched],
            "summary": {"nodes": len(self.hosts), **self.summary, "findings": len(self.findings)},
            "hosts": {host.name: _host_document(host) for host in self.hosts},
            "findings": [_finding_document(finding) for finding in self.findings],
            "shadow": [_finding_document(finding) for finding in self.shadow],
            "waived": [_finding_document(f) | {"waiver": _waiver_document(waiver)} for f, waiver in self.waived],
            "unused_waivers": [_waiver_document(waiver) for waiver in self.unused_waivers],
            **({"changes": changes_document(self.changes)} if self.changes else {}),
        }


def build(run: Run, hosts: Mapping[str, Profile | Excluded], verdicts: Iterable[Verdict]) -> Report:
    """Return the report of a run over ``hosts``, in their order: each with its profile, or why it was excluded.

    ``verdicts`` are those of all hosts and groups; a verdict on a node that is not in ``hosts`` is about the cluster.
    """
    by_host: dict[str, list[Verdict]] = {name: [] for name in hosts}
    cluster: list[Verdict] = []
    for verdict in verdicts:
        by_host.get(verdict.node, cluster).append(verdict)
    return Report(run, tuple(_host(name, hosts[name], by_host[name]) for name in hosts), tuple(cluster))


def _host(name: str, outcome: Profile | Excluded, verdicts: list[Verdict]) -> HostReport:
    if isinstance(outcome, Excluded):
        return HostReport(name, tuple(verdicts), excluded=outcome)
    excluded = None if verdicts else Excluded(name, "unknown", "no check judged this host")
    return HostReport(name, tuple(verdicts), outcome.name, outcome.required, excluded)


def format_exclusion(excluded: Excluded) -> str:
    """Return the reason as reports print it; a host without an answering SSH server is called unreachable."""
    return f"{'unreachable: ' if isinstance(excluded.cause, ConnectError) else ''}{excluded.why}"


def _findings(verdicts: Iterable[Verdict]) -> tuple[Finding, ...]:
    return tuple(finding for verdict in verdicts for finding in verdict.findings)


def _run_document(run: Run) -> dict[str, Any]:
    return {
        "version": run.version,
        "started_at": run.started_at.astimezone(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "seconds": round(run.seconds, 3),
        "inventory": redact(run.inventory),
        "level": run.level,
        "command": redact(run.command),
    }


def _host_document(host: HostReport) -> dict[str, Any]:
    return {
        "status": host.status,
        "profile": host.profile or None,
        "error": redact(format_exclusion(host.excluded)) if host.excluded else None,
        "skipped_why": None,  # no longer set, but the schema number promises it
        "unreachable": host.excluded.unreachable if host.excluded else None,
        "excluded": plain(host.excluded),
        "findings": [_finding_document(finding) for finding in host.findings],
        "shared": [{"check": v.check, "why": redact(v.why)} for v in host.shared],
        "unknown": [_unknown_document(host, verdict) for verdict in host.unknown],
        "skipped": [{"check": v.check, "why": redact(v.why)} for v in host.verdicts if v.status == "skipped"],
        "passed": [v.check for v in host.verdicts if v.status == "pass"],
    }


def _unknown_document(host: HostReport, verdict: Verdict) -> dict[str, Any]:
    return {
        "check": verdict.check,
        "why": redact(verdict.why),
        "required": verdict.not_measured or verdict.check in host.required,
        "needs_root": verdict.needs_root,
    }


def _waiver_document(waiver: Waiver) -> dict[str, Any]:
    return {
        "check": waiver.check,
        "hosts": waiver.hosts,
        "part": waiver.part,
        "code": waiver.code,
        "reason": redact(waiver.reason),
        "author": waiver.author,
        "expires": waiver.expires.isoformat(),
        "where": str(waiver.where),
    }


def _finding_document(finding: Finding) -> dict[str, Any]:
    return {
        "check": finding.check,
        "code": finding.code,
        "scope": finding.scope,
        "host": finding.host or None,
        "hosts": list(finding.hosts),
        "fault_of": finding.fault_of or "node",
        "part": redact(str(finding.part)),
        "subject": redact(str(finding.part)),  # the former name of `part`
        "label": redact(finding.part_label),
        "status": finding.status,
        "severity": finding.severity or "fail",
        "message": redact(finding.message),
        "measured": plain(finding.found),
        "expected": plain(finding.expected),
        "unit": finding.unit,
        "fix": redact(finding.fix),
        "effects": [redact(effect) for effect in finding.effects],
    }

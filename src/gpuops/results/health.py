"""Report: what one run judged, node by node, and the exit code that it earns."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpuops.errors import ConnectError, GpuopsError, NodeError
from gpuops.judging import Check, Finding, Level, Scope, Status, Verdict, worst
from gpuops.profile import Profile

FailOn = Literal["fail", "warn", "never"]
STATUSES: tuple[Status, ...] = ("pass", "warn", "fail", "unknown", "skipped")


@dataclass(frozen=True)
class Run:
    """What was run: ``started_at`` has a time zone, ``seconds`` is wall time, ``inventory`` as a person names it."""

    version: str
    started_at: dt.datetime
    inventory: str
    level: Level
    seconds: float
    command: str = ""


@dataclass(frozen=True)
class Entry:
    """One finding with the check that told it; ``host`` is empty where nobody is accused."""

    host: str
    check: str
    scope: Scope
    finding: Finding

    @property
    def status(self) -> Status:
        """What this finding alone makes of its node; ``pass`` is mere information."""
        return worst([self.finding])

    @property
    def comparison(self) -> str:
        """``measured 200 Gbit/s, expected 400 Gbit/s``, as far as the finding gives them."""
        values = {"measured": self.finding.found, "expected": self.finding.expected}
        said = (f"{word} {_say(value)} {self.finding.unit}" for word, value in values.items() if value is not None)
        return ", ".join(text.rstrip() for text in said)


def _say(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(_say(item) for item in value) or "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class HostReport:
    """What became of one node: its verdicts, or the ``error`` that kept us out, or why it was left alone."""

    name: str
    verdicts: tuple[Verdict, ...] = ()
    profile: str = ""
    required: frozenset[str] = frozenset()
    error: str | None = None
    skipped_why: str | None = None

    @property
    def status(self) -> Status:
        """Fail before warn before unknown before pass; left alone, or with nothing to judge, it is skipped."""
        said = {v.status for v in self.verdicts}
        if self.skipped_why is not None:
            return "skipped"
        if said & {"fail", "warn"}:
            return "fail" if "fail" in said else "warn"
        if self.blind:
            return "unknown"
        return "pass" if "pass" in said else "skipped"

    @property
    def unknown(self) -> tuple[Verdict, ...]:
        """The verdicts of checks that could not look."""
        return tuple(v for v in self.verdicts if v.status == "unknown")

    @property
    def unseen(self) -> tuple[Verdict, ...]:
        """The unknown verdicts that are no pass: those of required checks, and all where no check saw anything."""
        if all(v.status in ("unknown", "skipped") for v in self.verdicts):
            return self.unknown
        return tuple(v for v in self.unknown if v.check in self.required)

    @property
    def blind(self) -> bool:
        """Whether nothing, or not enough, is known of this node."""
        return self.skipped_why is None and (self.error is not None or bool(self.unseen))


@dataclass(frozen=True)
class Report:
    """One run over many nodes, in inventory order. ``fleet`` are verdicts that accuse no node.

    ``not_run`` names the checks of higher levels, under the level that runs them.
    """

    run: Run
    hosts: tuple[HostReport, ...]
    fleet: tuple[Verdict, ...] = ()
    not_run: Mapping[Level, tuple[str, ...]] = field(default_factory=dict, hash=False)

    @property
    def summary(self) -> dict[Status, int]:
        """How many nodes are of each status."""
        found = [host.status for host in self.hosts]
        return {status: found.count(status) for status in STATUSES}

    @property
    def findings(self) -> tuple[Entry, ...]:
        """Every finding, node by node, the fleet's last."""
        return tuple(entry for host in self.hosts for entry in entries(host.verdicts)) + entries(self.fleet)

    def exit_code(self, fail_on: FailOn = "fail") -> int:
        """1 for findings at or above ``fail_on``, else 3 for a node of which not enough is known, else 0."""
        grave = {"fail": {"fail"}, "warn": {"fail", "warn"}, "never": set()}[fail_on]
        if any(entry.status in grave for entry in self.findings):
            return 1
        return 3 if any(host.blind for host in self.hosts) else 0


def entries(verdicts: Iterable[Verdict]) -> tuple[Entry, ...]:
    """The findings of ``verdicts``, each with its check."""
    return tuple(Entry(v.node, v.check, v.scope, finding) for v in verdicts for finding in v.findings)


def build(
    run: Run,
    nodes: Mapping[str, Profile | GpuopsError | str],
    verdicts: Iterable[Verdict],
    not_run: Iterable[Check] = (),
) -> Report:
    """The report of a run over ``nodes``, in their order.

    Each node stands with the profile it was judged by, the error that kept us out, or a text: why it was left alone.
    ``verdicts`` are those of all nodes and groups; one whose node is not in ``nodes`` concerns the fleet.
    """
    said: dict[str, list[Verdict]] = {name: [] for name in nodes}
    fleet: list[Verdict] = []
    for verdict in verdicts:
        said.get(verdict.node, fleet).append(verdict)
    later: dict[Level, tuple[str, ...]] = {}
    for check in not_run:
        later[check.level] = (*later.get(check.level, ()), check.name)
    return Report(run, tuple(_host(name, nodes[name], said[name]) for name in nodes), tuple(fleet), later)


def _host(name: str, outcome: Profile | GpuopsError | str, verdicts: list[Verdict]) -> HostReport:
    if isinstance(outcome, str):
        return HostReport(name, tuple(verdicts), skipped_why=outcome)
    if isinstance(outcome, GpuopsError):
        lead = "unreachable: " if isinstance(outcome, ConnectError) else ""
        what = outcome.what if isinstance(outcome, NodeError) else str(outcome)
        return HostReport(name, tuple(verdicts), error=f"{lead}{what}")
    error = None if verdicts else "nothing was judged here"
    return HostReport(name, tuple(verdicts), outcome.name, outcome.required, error)

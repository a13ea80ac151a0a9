"""Findings, and the verdicts that consist of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import KW_ONLY, InitVar, dataclass
from typing import Literal, NamedTuple

from gpuops.judging.waivers import Waiver
from gpuops.probing import PartName, Unknown
from gpuops.reasons import SEVERITIES, Severity

Status = Literal["pass", "warn", "fail", "unknown", "skipped"]
Scope = Literal["node", "group"]
SharedScope = Literal["leaf", "rail", "rack", "nvlink-domain", "fleet"]
Owner = Literal["node", "user"]
Level = Literal["quick", "standard", "burnin"]

LEVELS: tuple[Level, ...] = ("quick", "standard", "burnin")


@dataclass(frozen=True)
class Finding:
    """One fault: what was expected, what was found (both in ``unit``), and the ``fix``.

    ``part`` is the part at fault: ``driver``, ``node``, or a `PartName` with a label. ``severity`` and ``fix`` default
    to those of the check. ``code`` distinguishes the findings of one check (an Xid's number), so that another check can
    explain ``xid:79`` but not all of ``xid``. ``fault_of`` is ``user`` if a job or a person caused it, so that the node
    is healthy. ``waits_for`` are nodes that this one reports as not ready. gpuops fills in ``check``, ``scope`` and
    ``host``; only a check that compares a group sets the host at fault itself, or leaves it empty. A finding that many
    ``hosts`` share names no ``host``, and its ``scope`` is what they have in common.
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
    scope: Scope | SharedScope = "node"
    fault_of: Owner | None = None
    hosts: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
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


class Waived(NamedTuple):
    """A finding that does not count, because of its waiver."""

    finding: Finding
    waiver: Waiver


@dataclass(frozen=True)
class Verdict:
    """Result of one check on one node. ``why`` explains unknown and skipped.

    ``not_measured`` is set if the check is unknown because a load that it needs was not put on the node, or revealed
    nothing (the node is busy, or runs no engine). Such a node is not assessed, whatever its profile requires.
    ``blinded_by`` is the check whose finding kept it from looking. ``shadow`` is what a check in shadow found; its own
    verdict is skipped. ``waived`` are findings that do not count. ``shared`` are those of this node that are part
    of a finding on a leaf, a rack or the fleet.
    """

    check: str
    node: str
    status: Status
    findings: tuple[Finding, ...] = ()
    why: str = ""
    scope: Scope | SharedScope = "node"
    needs_root: bool = False
    not_measured: bool = False
    blinded_by: str = ""
    shadow: Verdict | None = None
    waived: tuple[Waived, ...] = ()
    shared: tuple[Finding, ...] = ()

    @property
    def is_shared(self) -> bool:
        """True if its findings are reported once, for all the nodes that share them."""
        return self.status in {"warn", "fail"} and not self.findings


def worst(findings: Iterable[Finding]) -> Status:
    """Return the status that follows from the most severe of ``findings``."""
    rank = max(map(severity_rank, findings), default=0)
    return "pass" if rank == 0 else "warn" if rank == 1 else "fail"


def severity_rank(finding: Finding) -> int:
    """Return the place of the severity among `SEVERITIES`."""
    return SEVERITIES.index(finding.severity or "fail")

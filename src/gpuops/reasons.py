"""Reasons as types: why a host is excluded, why a node is held back, how severe a fault is, and the exit code.

Sentences are for people only: editing one never changes what a program decides.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar, get_args

from gpuops.errors import AbandonedError, CancelledError, GpuopsError, LockedError, NodeError, UnreachableKind

R = TypeVar("R")

ExclusionKind = Literal[
    "unreachable",  # no answer, or the login failed; `Excluded.cause` has the kind
    "unhealthy",  # it fails a quick check
    "busy",  # in use by a process or a job
    "unproved",  # not proved idle
    "leased",  # its scheduler does not lease it to gpuops
    "unsupported",  # the engine cannot run there
    "defective",  # a network test failed, or one of its parts is to blame
    "lost",  # the connection broke during a round
    "unknown",  # a fact that decides is unknown
    "not_saved",  # there are no saved facts of it
    "locked",  # another run holds its lock
    "interrupted",  # Ctrl-C before it answered
]
ON_PURPOSE: frozenset[ExclusionKind] = frozenset({"busy", "unproved", "leased", "unhealthy"})
"""Kinds of hosts that gpuops skips by design; hosts of the other kinds could not be assessed or are faulty."""

Severity = Literal["info", "warn", "fail", "reset", "reboot", "isolate", "rma"]
SEVERITIES: tuple[Severity, ...] = ("info", "warn", "fail", "reset", "reboot", "isolate", "rma")
"""From mild to severe. ``info`` and ``warn`` do not fail the node; the others do, and name the repair that it needs.

``isolate`` takes the node out of use for an inspection, ``rma`` returns the part to its maker.
"""
Conclusion = Literal["ok", "failed", "incomplete", "locked", "interrupted"]
EXIT_CODES: dict[Conclusion, int] = {"ok": 0, "failed": 1, "incomplete": 3, "locked": 4, "interrupted": 130}
EXIT_MEANINGS = {
    0: "no problems",
    1: "findings",
    2: "invalid input: command line, inventory or file",
    3: "a node was unreachable or could not be fully assessed, and nothing failed",
    4: "locked by another run",
    70: "internal error in gpuops",
    130: "interrupted",
}
"""Every exit code in words, as the help of the commands shows it."""
_BY_WEIGHT: tuple[Conclusion, ...] = ("interrupted", "locked", "failed", "incomplete", "ok")


class Request(Generic[R]):
    """User request as data; ``R`` is the type of result that `gpuops.Cluster.ask` returns for it."""


@dataclass(frozen=True)
class Excluded:
    """Excluded host. ``checks`` are the checks that it fails, ``do`` is the remedy."""

    host: str
    kind: ExclusionKind
    why: str
    cause: GpuopsError | None = None
    checks: tuple[str, ...] = ()
    do: str = ""

    @property
    def on_purpose(self) -> bool:
        """True if gpuops skipped the host by design."""
        return self.kind in ON_PURPOSE

    @property
    def unreachable(self) -> UnreachableKind | None:
        """Kind of the failure to reach the host; None if it was reached."""
        return self.cause.kind if self.kind == "unreachable" and isinstance(self.cause, NodeError) else None

    @property
    def is_silent(self) -> bool:
        """True if the host did not answer, although the run had the time for it."""
        return self.kind == "unreachable" and not isinstance(self.cause, AbandonedError)

    def to_document(self) -> dict[str, object]:
        """Return ``{kind, why, ...}`` as in reports."""
        document: dict[str, object] = {"kind": self.kind, "why": self.why}
        if self.unreachable:
            document["unreachable"] = self.unreachable
        if self.checks:
            document["checks"] = list(self.checks)
        return {**document, "do": self.do} if self.do else document

    @classmethod
    def from_document(cls, host: str, document: Mapping[str, Any]) -> Excluded:
        """Read what `to_document` wrote, without the error itself; a kind from a newer version becomes ``unknown``."""
        kind: ExclusionKind = document["kind"] if document["kind"] in get_args(ExclusionKind) else "unknown"
        checks = tuple(str(check) for check in document.get("checks", ()))
        return cls(host, kind, str(document["why"]), checks=checks, do=str(document.get("do", "")))


def excluded_by(host: str, error: GpuopsError) -> Excluded:
    """Return the exclusion of ``host`` because of ``error``."""
    if isinstance(error, CancelledError):
        return Excluded(host, "interrupted", str(error), error)
    if isinstance(error, LockedError):
        return Excluded(host, "locked", str(error), error)
    return Excluded(host, "unreachable", error.what if isinstance(error, NodeError) else str(error), error)


@dataclass(frozen=True)
class Objection:
    """Reason why a node does not get further, and what to ``do``; severity ``left_out`` does not hold a node back.

    ``excluded`` is set if the node was excluded from the operation. ``checks`` are those that failed at ``level``.
    """

    why: str
    do: str = ""
    severity: Literal["failed", "incomplete", "locked", "left_out"] = "failed"
    excluded: Excluded | None = None
    checks: tuple[str, ...] = ()
    level: str = "quick"

    def to_document(self) -> dict[str, object]:
        """Return ``{why, do, severity, ...}`` as in results."""
        document: dict[str, object] = {"why": self.why, "do": self.do, "severity": self.severity}
        if self.checks:
            document |= {"checks": list(self.checks), "level": self.level}
        return {**document, "excluded": self.excluded.to_document()} if self.excluded else document


FailOn = Literal["fail", "warn", "never", "new"]


class Result(Protocol):
    """Result of an operation: its conclusion, and its JSON document with a ``schema``."""

    def conclusion(self, fail_on: FailOn = "fail") -> Conclusion:
        """Return how the operation ended."""

    def to_document(self) -> dict[str, Any]:
        """Return the JSON document of the result."""

    def to_json(self, indent: int = 1) -> str:
        """Return the document as ASCII text, with the keys in the schema's order."""
        return json.dumps(self.to_document(), indent=indent, allow_nan=False)


def exit_code(result: Result, fail_on: FailOn = "fail") -> int:
    """Return the exit code for ``result``; ``fail_on`` is ``fail``, ``warn`` or ``never``."""
    return EXIT_CODES[result.conclusion(fail_on)]


def most_severe(conclusions: Iterable[Conclusion]) -> Conclusion:
    """Return the most severe: interrupted, then locked, failed, incomplete and ok."""
    present = set(conclusions)
    return next((conclusion for conclusion in _BY_WEIGHT if conclusion in present), "ok")

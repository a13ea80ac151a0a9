"""Reasons as types: why a host takes no part, what objects to a node, and the exit code that follows.

A sentence is for people: whoever edits one changes nothing that a program decides.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar, get_args

from gpuops.errors import CancelledError, GpuopsError, LockedError, NodeError, UnreachableKind

R = TypeVar("R")

ExclusionKind = Literal[
    "unreachable",  # nobody answered, or the login failed; `Excluded.cause` has the kind
    "unhealthy",  # it fails a quick check
    "busy",  # somebody uses it
    "unproved",  # it is not proved to be idle
    "leased",  # its scheduler does not lend it to us
    "unsupported",  # the engine cannot run there
    "defective",  # a network test failed, or one of its parts is to blame
    "lost",  # gone in the middle of a round
    "unknown",  # what would decide is not known
    "not_saved",  # no saved facts of it
    "locked",  # another run works on it
    "interrupted",  # Ctrl-C came before its answer
]
ON_PURPOSE: frozenset[ExclusionKind] = frozenset({"busy", "unproved", "leased", "unhealthy"})
"""A host excluded for one of these is left alone by design; the others could not be seen, or are at fault."""

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
    """What a user asks for, as data; ``R`` is the result that `gpuops.Cluster.ask` gives for it."""


@dataclass(frozen=True)
class Excluded:
    """A host that takes no part. ``checks`` are those that it fails, ``do`` is what to do about it."""

    host: str
    kind: ExclusionKind
    why: str
    cause: GpuopsError | None = None
    checks: tuple[str, ...] = ()
    do: str = ""

    @property
    def on_purpose(self) -> bool:
        """It was left alone by design."""
        return self.kind in ON_PURPOSE

    @property
    def unreachable(self) -> UnreachableKind | None:
        """Why it could not be reached; None if it was."""
        return self.cause.kind if self.kind == "unreachable" and isinstance(self.cause, NodeError) else None

    def to_document(self) -> dict[str, object]:
        """``{kind, why, ...}`` as reports have it."""
        document: dict[str, object] = {"kind": self.kind, "why": self.why}
        if self.unreachable:
            document["unreachable"] = self.unreachable
        if self.checks:
            document["checks"] = list(self.checks)
        return {**document, "do": self.do} if self.do else document

    @classmethod
    def from_document(cls, host: str, document: Mapping[str, Any]) -> Excluded:
        """What `to_document` wrote, without the error behind it; a kind of a newer version becomes ``unknown``."""
        kind: ExclusionKind = document["kind"] if document["kind"] in get_args(ExclusionKind) else "unknown"
        checks = tuple(str(check) for check in document.get("checks", ()))
        return cls(host, kind, str(document["why"]), checks=checks, do=str(document.get("do", "")))


def excluded_by(host: str, error: GpuopsError) -> Excluded:
    """The exclusion that ``error`` of a host means."""
    if isinstance(error, CancelledError):
        return Excluded(host, "interrupted", str(error), error)
    if isinstance(error, LockedError):
        return Excluded(host, "locked", str(error), error)
    return Excluded(host, "unreachable", error.what if isinstance(error, NodeError) else str(error), error)


@dataclass(frozen=True)
class Objection:
    """Why a node stops where it is, and what to ``do``; ``left_out`` stops no node.

    ``excluded`` is the reason's kind if the node took no part in what was asked.
    """

    why: str
    do: str = ""
    severity: Literal["failed", "incomplete", "locked", "left_out"] = "failed"
    excluded: Excluded | None = None

    def to_document(self) -> dict[str, object]:
        """``{why, do, severity, ...}`` as results have it."""
        document: dict[str, object] = {"why": self.why, "do": self.do, "severity": self.severity}
        return {**document, "excluded": self.excluded.to_document()} if self.excluded else document


FailOn = Literal["fail", "warn", "never"]


class Result(Protocol):
    """What an operation gives: how it ended, and itself as a document with a ``schema``."""

    def conclusion(self, fail_on: FailOn = "fail") -> Conclusion:
        """How it ended."""

    def to_document(self) -> dict[str, Any]:
        """The result as JSON holds it."""

    def to_json(self, indent: int = 1) -> str:
        """The document as ASCII text, keys in the order of the schema."""
        return json.dumps(self.to_document(), indent=indent, allow_nan=False)


def exit_code(result: Result, fail_on: FailOn = "fail") -> int:
    """The exit code that ``result`` earns; ``fail_on`` is ``fail``, ``warn`` or ``never``."""
    return EXIT_CODES[result.conclusion(fail_on)]


def gravest(conclusions: Iterable[Conclusion]) -> Conclusion:
    """The one that decides: interrupted before locked, failed, incomplete and ok."""
    present = set(conclusions)
    return next((conclusion for conclusion in _BY_WEIGHT if conclusion in present), "ok")

"""Bundles of evidence: the archive of each host, and what it lacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gpuops.reasons import Conclusion, Excluded, FailOn, Result
from gpuops.results.plain import plain


@dataclass(frozen=True)
class Bundle:
    """One archive at ``path``. ``manifest`` is the one in it: files, serial numbers, and what was left out."""

    path: str
    size_bytes: int
    manifest: Mapping[str, Any] = field(hash=False)

    @property
    def lacks(self) -> dict[str, tuple[str, ...]]:
        """What could not be collected, by reason; what is never asked for is not counted."""
        reasons: dict[str, tuple[str, ...]] = {}
        for each in self.manifest["left_out"]:
            if each["reason"] != "user_data":
                reasons[each["reason"]] = (*reasons.get(each["reason"], ()), each["what"])
        return reasons


@dataclass(frozen=True)
class Bundles(Result):
    """The bundle of each host, in inventory order; ``excluded`` are hosts without one."""

    SCHEMA: ClassVar[str] = "gpuops.bundles/1"
    bundles: Mapping[str, Bundle]
    excluded: Mapping[str, Excluded] = field(default_factory=dict)
    interrupted: bool = False
    seconds: float = 0.0

    def to_document(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "schema": self.SCHEMA,
            "hosts": {
                host: {"path": each.path, "bytes": each.size_bytes, "manifest": plain(each.manifest)}
                for host, each in self.bundles.items()
            },
            "excluded": plain(self.excluded),
        }

    def conclusion(self, fail_on: FailOn = "fail") -> Conclusion:  # noqa: ARG002 - every result has it
        """Return ``incomplete`` if a host has no bundle; one that lacks a file is complete, and says what it lacks."""
        return "interrupted" if self.interrupted else "incomplete" if self.excluded else "ok"

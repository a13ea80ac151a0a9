"""Learned profile, and the nodes that it was learned from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gpuops.learning import Learned
from gpuops.reasons import Conclusion, Excluded, FailOn, Result
from gpuops.results.plain import plain
from gpuops.results.profiles import profile_document


@dataclass(frozen=True)
class LearnedProfile(Result):
    """Result of learning a profile; ``excluded`` are the nodes that showed no GPU."""

    SCHEMA: ClassVar[str] = "gpuops.learned-profile/1"
    learned: Learned
    excluded: Mapping[str, Excluded] = field(default_factory=dict)
    interrupted: bool = False
    seconds: float = 0.0

    def to_document(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "schema": self.SCHEMA,
            "profile": profile_document(self.learned.profile),
            "like": self.learned.like or None,
            "nodes": list(self.learned.nodes),
            "differences": [
                {
                    "node": each.node,
                    "key": each.key,
                    "found": [{"value": plain(value), "count": count} for value, count in each.found.items()],
                    "expected": plain(each.expected),
                }
                for each in self.learned.differences
            ],
            "undecided": list(self.learned.undecided),
            "excluded": {name: plain(each) for name, each in self.excluded.items()},
        }

    def conclusion(self, fail_on: FailOn = "fail") -> Conclusion:  # noqa: ARG002 - every result has it
        """Return ``incomplete`` if a node gave no answer; a difference is not a fault."""
        return "interrupted" if self.interrupted else "incomplete" if self.excluded else "ok"

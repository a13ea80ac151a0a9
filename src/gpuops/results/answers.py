"""Values by host, and the reason for every host without one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from gpuops.reasons import Conclusion, Excluded, FailOn, Result, most_severe
from gpuops.results.plain import plain

T = TypeVar("T")


@dataclass(frozen=True)
class Answers(Result, Generic[T]):
    """``values`` by host, in inventory order; ``took`` is seconds by host, ``seconds`` those of the whole call."""

    SCHEMA: ClassVar[str] = "gpuops.answers/1"
    values: Mapping[str, T]
    excluded: Mapping[str, Excluded] = field(default_factory=dict)
    took: Mapping[str, float] = field(default_factory=dict)
    interrupted: bool = False
    seconds: float = 0.0

    def to_document(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "schema": self.SCHEMA,
            "hosts": {host: plain(value) for host, value in self.values.items()},
            "excluded": plain(self.excluded),
        }

    def conclusion(self, fail_on: FailOn = "fail") -> Conclusion:  # noqa: ARG002 - every result has it
        """Return ``incomplete`` if a host has no value."""
        return most_severe(
            ("interrupted" if self.interrupted else "ok", "incomplete" if self.excluded else "ok"),
        )

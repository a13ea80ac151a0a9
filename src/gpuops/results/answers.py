"""Answers: one value a host, and why the others gave none."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from gpuops.probing import Unknown
from gpuops.reasons import Conclusion, Excluded, FailOn, gravest

T = TypeVar("T")


@dataclass(frozen=True)
class Answers(Generic[T]):
    """``values`` by host, in the inventory's order; ``took`` is seconds a host, ``seconds`` those of the whole call."""

    SCHEMA: ClassVar[str] = "gpuops.answers/1"
    values: Mapping[str, T]
    excluded: Mapping[str, Excluded] = field(default_factory=dict)
    took: Mapping[str, float] = field(default_factory=dict)
    interrupted: bool = False
    seconds: float = 0.0

    def to_document(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "schema": self.SCHEMA,
            "hosts": {host: plain(value) for host, value in self.values.items()},
            "excluded": {host: excluded.to_document() for host, excluded in self.excluded.items()},
        }

    def to_json(self, indent: int = 1) -> str:
        """The document as JSON."""
        return json.dumps(self.to_document(), indent=indent)

    def conclusion(self, fail_on: FailOn = "fail") -> Conclusion:  # noqa: ARG002 - every result has it
        """``incomplete`` if a host is missing."""
        return gravest(
            ("interrupted" if self.interrupted else "ok", "incomplete" if self.excluded else "ok"),
        )


def plain(value: object) -> Any:
    """``value`` as JSON has it: dataclasses become maps, a pair that is a key becomes two words."""
    if isinstance(value, Unknown):
        return {"unknown": value.why}
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {" ".join(key) if isinstance(key, tuple) else str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (tuple, list, set, frozenset)):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)

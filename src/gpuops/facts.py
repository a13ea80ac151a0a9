"""Facts: what one node said, parsed; saved as the answers themselves, so that a better parser can read them again."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from gpuops.probing import Probe, Unknown
from gpuops.shell import Completed, Question

T = TypeVar("T")
SCHEMA = "gpuops.facts/1"


@dataclass(frozen=True)
class Facts:
    """The values of one node's probes at ``taken_at`` (UTC); ``answers`` are kept only where they will be saved."""

    node: str
    taken_at: dt.datetime
    values: Mapping[str, object]
    answers: tuple[Completed, ...] = field(default=(), repr=False)

    def __getitem__(self, probe: Probe[T]) -> T | Unknown:
        """The value of ``probe``, or why there is none."""
        value = self.values.get(probe.name, Unknown(f"{probe.name} was not asked"))
        return cast("T | Unknown", value)


def questions(probes: Iterable[Probe[Any]]) -> list[Question]:
    """Every question of ``probes`` once, in their order: many probes may read one answer."""
    return list(dict.fromkeys(probe.question for probe in probes))

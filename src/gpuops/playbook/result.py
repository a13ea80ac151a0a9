"""The outcome of one step on one node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gpuops.errors import NodeError
from gpuops.playbook.overlay import NotYet
from gpuops.playbook.task import Change

Status = Literal[
    "ok", "changed", "would_change", "later", "failed", "skipped", "unreachable", "needs_operator", "interrupted"
]
OUT: tuple[Status, ...] = ("failed", "unreachable", "needs_operator", "interrupted")
"""The statuses after which a node takes no further steps."""
REGISTERED = ("status", "changed", "value", "results")
"""The parts of a registered result."""


@dataclass(frozen=True)
class StepResult:
    """``changes`` are those that were made, or in check mode would be; ``later`` is what cannot be planned yet.

    ``why`` explains every status but ok and changed. ``value`` is what the task returned. ``ignored``: it failed, and
    the playbook ignores that. ``error`` is the node's error that ended the step, if any. ``items`` are the results for
    the items of a loop, of which this one is the sum.
    """

    node: str
    step: str
    name: str
    status: Status
    why: str = ""
    changes: tuple[Change, ...] = ()
    later: tuple[str, ...] = ()
    value: Any = None
    seconds: float = 0.0
    attempts: int = 1
    ignored: bool = False
    handler: bool = False
    error: NodeError | None = field(default=None, repr=False, compare=False)
    items: tuple[StepResult, ...] = ()

    @property
    def out(self) -> bool:
        """True if the node takes no further steps after this."""
        return self.status in OUT and not self.ignored

    @property
    def registered(self) -> dict[str, Any]:
        """The values that ``register`` keeps, for conditions; what only an earlier change decides is unknown."""
        unknown = NotYet(f'depends on step {self.step} "{self.name}"')
        value = unknown if self.value is None and self.status in ("later", "would_change") else self.value
        known: dict[str, Any] = {
            "status": self.status,
            "changed": self.status in ("changed", "would_change"),
            "value": value,
            "results": [result.registered for result in self.items],
        }
        return {**known, "status": unknown, "changed": unknown} if self.status == "later" else known


_WORST: tuple[Status, ...] = (
    "interrupted", "needs_operator", "unreachable", "failed", "changed", "would_change", "later", "ok", "skipped",
)  # fmt: skip


def sum_up(results: Sequence[StepResult], labels: Sequence[str]) -> StepResult:
    """Return one result for the items of a loop; ``labels`` name the items."""
    worst = min(results, key=lambda result: _WORST.index(result.status))
    changed = sum(result.status in ("changed", "would_change") for result in results)
    place = results.index(worst)
    why = f"{labels[place]}: {worst.why}" if worst.why and worst.status != "skipped" else worst.why
    return replace(
        worst,
        why="; ".join(filter(None, (f"{changed} of {len(labels)} items" if changed else "", why))),
        changes=tuple(change for result in results for change in result.changes),
        later=tuple(f"{label}: {why}" for result, label in zip(results, labels, strict=False) for why in result.later),
        value=None,
        ignored=any(result.ignored for result in results) and not any(result.out for result in results),
        items=tuple(results),
    )

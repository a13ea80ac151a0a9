"""The outcome of one step on one node."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from gpuops.errors import NodeError
from gpuops.playbook.task import Change

Status = Literal[
    "ok", "changed", "would_change", "later", "failed", "skipped", "unreachable", "needs_operator", "interrupted"
]
OUT: tuple[Status, ...] = ("failed", "unreachable", "needs_operator", "interrupted")
"""The statuses after which a node takes no further steps."""


@dataclass(frozen=True)
class StepResult:
    """``changes`` are those that were made, or in check mode would be; ``later`` is what cannot be planned yet.

    ``why`` explains every status but ok and changed. ``value`` is what the task returned. ``ignored``: it failed, and
    the playbook ignores that. ``error`` is the node's error that ended the step, if any.
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

    @property
    def out(self) -> bool:
        """True if the node takes no further steps after this."""
        return self.status in OUT and not self.ignored

    @property
    def registered(self) -> dict[str, Any]:
        """The values that ``register`` keeps, for conditions."""
        return {"status": self.status, "changed": self.status in ("changed", "would_change"), "value": self.value}

"""The frozen result of a run of a playbook, and the conclusion from its steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from gpuops.errors import LockedError
from gpuops.playbook.result import Status, StepResult
from gpuops.playbook.task import Change
from gpuops.reasons import Conclusion, Excluded, FailOn, Result, most_severe
from gpuops.secret import redact

_CONCLUSIONS: Mapping[Status, Conclusion] = {
    "failed": "failed",
    "unreachable": "incomplete",
    "needs_operator": "incomplete",
    "interrupted": "interrupted",
}
_PENDING: Mapping[Status, Conclusion] = {"would_change": "failed", "later": "failed"}


def conclude(
    results: Iterable[StepResult], *, check: bool, interrupted: bool = False, locked: bool = False
) -> Conclusion:
    """Return the conclusion of a run's steps; in check mode, a pending change counts as a failure."""
    by_status = {**_CONCLUSIONS, **_PENDING} if check else _CONCLUSIONS
    conclusions: list[Conclusion] = [by_status.get(result.status, "ok") for result in results if not result.ignored]
    if interrupted:
        conclusions.append("interrupted")
    if locked:
        conclusions.append("locked")
    return most_severe(conclusions)


@dataclass(frozen=True)
class Record(Result):
    """The outcome of a run of ``playbook``, with every step's result in order.

    ``stopped`` states why the run ended early, ``waiting`` holds the handlers that are still due on each host,
    ``locked`` the locks of other runs that prevented this one, and ``untouched`` the hosts that no step reached. With
    ``check``, nothing was changed. ``seconds`` is the wall time.
    """

    SCHEMA: ClassVar[str] = "gpuops.record/1"

    playbook: str
    run_id: str
    check: bool
    results: tuple[StepResult, ...]
    stopped: str
    waiting: Mapping[str, tuple[str, ...]]
    locked: tuple[LockedError, ...]
    untouched: tuple[str, ...]
    interrupted: bool
    seconds: float

    @property
    def excluded(self) -> Mapping[str, Excluded]:
        """The hosts that could not be reached or were lost during the run, each with the reason."""
        return {
            result.node: Excluded(result.node, "unreachable", result.why, result.error)
            for result in self.results
            if result.status == "unreachable"
        }

    def conclusion(self, fail_on: FailOn = "fail") -> Conclusion:
        """Return ``interrupted``, ``locked``, ``failed``, ``incomplete`` or ``ok``, the first of these that applies.

        ``incomplete``: a host is unreachable, or an operator must act. With ``check``, a host that is not in the
        desired state makes it ``failed``. Steps have no severity, so ``fail_on`` changes nothing here.
        """
        del fail_on
        return conclude(self.results, check=self.check, interrupted=self.interrupted, locked=bool(self.locked))

    def to_document(self) -> dict[str, Any]:
        """Return the record as plain dicts, lists and scalars, with secrets masked and without the values of tasks."""
        return {
            "schema": self.SCHEMA,
            "playbook": redact(self.playbook),
            "run": self.run_id,
            "check": self.check,
            "conclusion": self.conclusion(),
            "interrupted": self.interrupted,
            "seconds": round(self.seconds, 3),
            "stopped": redact(self.stopped),
            "results": [_result_document(result) for result in self.results],
            "waiting": {host: [redact(name) for name in names] for host, names in self.waiting.items()},
            "locked": [redact(str(error)) for error in self.locked],
            "untouched": list(self.untouched),
            "excluded": {host: _masked(excluded.to_document()) for host, excluded in self.excluded.items()},
        }


def _result_document(result: StepResult) -> dict[str, Any]:
    return {
        "host": result.node,
        "step": result.step,
        "name": redact(result.name),
        "status": result.status,
        "ignored": result.ignored,
        "handler": result.handler,
        "why": redact(result.why),
        "changes": [_change_document(change) for change in result.changes],
        "later": [redact(why) for why in result.later],
        "attempts": result.attempts,
        "seconds": round(result.seconds, 3),
    }


def _change_document(change: Change) -> dict[str, str]:
    return {
        "what": redact(change.what),
        "kind": change.kind,
        "before": redact(str(change.before)),
        "after": redact(str(change.after)),
    }


def _masked(document: Mapping[str, object]) -> dict[str, object]:
    return {key: redact(value) if isinstance(value, str) else value for key, value in document.items()}

"""How a job ended: the seats of its ranks, the cause of a failure, and what is left on the nodes."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from gpuops.launching.plan import JobPlan
from gpuops.reasons import Conclusion, Excluded, FailOn, Result

if TYPE_CHECKING:
    from gpuops.collective.preflight.diagnosis import Diagnosis


@dataclass(frozen=True)
class RankFailure:
    """The first thing that failed: ``ranks`` of ``node`` ended with ``code``, or by a signal if it is negative.

    ``code`` is None if it is unknown. ``why`` says why it could not be started, ``last_lines`` what was printed last.
    """

    node: str
    ranks: tuple[int, ...]
    code: int | None
    why: str = ""
    last_lines: tuple[str, ...] = ()

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        if self.why:
            return f"was not started: {self.why}"
        if self.code is None:
            return "ended; with which status is not known"
        if self.code < 0:
            return f"ended by signal {-self.code} ({_signal_name(-self.code)})"
        return f"ended with exit code {self.code}"

    def to_document(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "node": self.node,
            "ranks": list(self.ranks),
            "exit_code": self.code if self.code is not None and self.code >= 0 else None,
            "signal": -self.code if self.code is not None and self.code < 0 else None,
            "why": self.ending,
            "last_lines": list(self.last_lines),
        }


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "real-time"


@dataclass(frozen=True)
class JobRun(Result):
    """A job that has ended, was submitted, or was not started.

    ``asserted`` are the ranks that reported themselves in their seats, ``misplaced`` those elsewhere, each with what is
    wrong. ``lost`` are the nodes that could not be reached or were lost; ``left`` holds, by node, the processes that
    survive even SIGKILL, with their kernel states. ``unended`` are the nodes that did not report the end of their part:
    they end it within ``unended_seconds``. ``submitted`` is the answer of sbatch, kubectl, flux or qsub.
    """

    SCHEMA: ClassVar[str] = "gpuops.job/1"
    plan: JobPlan
    logs: Path | None = None
    started: bool = False
    dry_run: bool = False
    asserted: frozenset[int] = frozenset()
    misplaced: Mapping[int, tuple[str, ...]] = field(default_factory=dict, hash=False)
    failure: RankFailure | None = None
    lost: Mapping[str, Excluded] = field(default_factory=dict, hash=False)
    left: Mapping[str, Mapping[int, str]] = field(default_factory=dict, hash=False)
    unended: tuple[str, ...] = ()
    unended_seconds: float = 0.0
    diagnosis: Diagnosis | None = None
    submitted: str = ""
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def unasserted(self) -> tuple[int, ...]:
        """The ranks that did not report where they are: no Python, or one that ignores PYTHONPATH."""
        ranks = (seat.rank for node in self.plan.nodes for seat in node.seats)
        return tuple(rank for rank in ranks if rank not in self.asserted and rank not in self.misplaced)

    @property
    def is_unseen(self) -> bool:
        """True if launch files ran, which start ranks in Python, and no rank reported where it is."""
        ran = self.started and not self.submitted and not self.plan.command
        return ran and not self.asserted and not self.misplaced

    def conclusion(self, fail_on: FailOn = "fail") -> Conclusion:
        """Return ``failed`` if a rank failed or preflight found a cause, ``incomplete`` if a node was lost."""
        if self.interrupted:
            return "interrupted"
        if self.failure or self.misplaced:
            return "failed"
        if self.diagnosis is not None and not self.started:
            return self.diagnosis.conclusion(fail_on)
        return "incomplete" if self.lost or self.left or self.is_unseen else "ok"

    def to_document(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "schema": self.SCHEMA,
            "name": self.plan.name,
            "target": self.plan.target,
            "layout": self.plan.layout,
            "world": self.plan.world,
            "nodes": [
                {"name": node.name, "ranks": [seat.rank for seat in node.seats], "gpus": [s.gpu for s in node.seats]}
                for node in self.plan.nodes
            ],
            "logs": str(self.logs) if self.logs else None,
            "dry_run": self.dry_run,
            "started": self.started,
            "submitted": self.submitted,
            "asserted": sorted(self.asserted),
            "misplaced": {str(rank): list(wrong) for rank, wrong in sorted(self.misplaced.items())},
            "failure": self.failure.to_document() if self.failure else None,
            "lost": {node: reason.to_document() for node, reason in self.lost.items()},
            "left": {node: {str(pid): state for pid, state in pids.items()} for node, pids in self.left.items()},
            "unended": list(self.unended),
            "preflight": self.diagnosis.to_document() if self.diagnosis else None,
            "seconds": round(self.seconds, 1),
            "conclusion": self.conclusion(),
            "interrupted": self.interrupted,
        }

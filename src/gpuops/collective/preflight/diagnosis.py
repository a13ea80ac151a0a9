"""Why a job cannot start: every step of a preflight, the causes that it found, and the log that collects them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from gpuops.collective.measurement import excluded_document
from gpuops.collective.preflight.causes import Cause, merged
from gpuops.collective.preflight.launch_command import LaunchCommand
from gpuops.reasons import Conclusion, Excluded, FailOn, Result
from gpuops.secret import redact

State = Literal["ok", "fail", "skipped"]


@dataclass(frozen=True)
class PreflightStep:
    """One step, its outcome, and details in a few words: of a failure, its first cause, which concerns ``nodes``.

    ``more`` are the nodes that its other causes concern.
    """

    name: str
    state: State
    detail: str = ""
    nodes: tuple[str, ...] = ()
    more: tuple[str, ...] = ()


@dataclass(frozen=True)
class Diagnosis(Result):
    """Why a job cannot start: every step in order, and the causes, the one to fix first at the top.

    ``hosts`` are those of the job, ``excluded`` those of them that dropped out before the end. ``also_failing`` are the
    checks, by node, that fail too, but do not prevent the start. ``seconds`` is wall time.
    """

    SCHEMA: ClassVar[str] = "gpuops.preflight/1"
    """Within one version, fields may be added; existing fields keep their meaning and stay."""

    command: LaunchCommand
    hosts: tuple[str, ...]
    steps: tuple[PreflightStep, ...] = ()
    causes: tuple[Cause, ...] = ()
    excluded: Mapping[str, Excluded] = field(default_factory=dict)
    interrupted: bool = False
    seconds: float = 0.0
    also_failing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def conclusion(self, fail_on: FailOn = "fail") -> Conclusion:  # noqa: ARG002 - every result has it
        """Return ``failed`` if anything prevents the job from starting.

        ``incomplete`` means that some nodes only do not answer, or are not proved idle, or that no node has a GPU and
        the command does not say that the job uses none.
        """
        if self.interrupted:
            return "interrupted"
        if any(cause.test not in ("reach", "idle", "no-gpu") for cause in self.causes):
            return "failed"
        return "incomplete" if self.causes else "ok"

    def to_document(self) -> dict[str, Any]:
        """Return plain data for JSON, with secrets masked."""
        return {
            "schema": self.SCHEMA,
            "launcher": self.command.launcher,
            "hosts": list(self.hosts),
            "steps": [_step(step) for step in self.steps],
            "causes": [_cause(cause) for cause in self.causes],
            "excluded": excluded_document(self.excluded),
            "interrupted": self.interrupted,
            "also_failing": {node: list(checks) for node, checks in self.also_failing.items()},
        }


def _step(step: PreflightStep) -> dict[str, Any]:
    detail = redact(step.detail)
    document = {"name": step.name, "state": step.state, "detail": detail, "nodes": [*step.nodes, *step.more]}
    return {**document, "said": detail}  # its former name


def _cause(cause: Cause) -> dict[str, Any]:
    fix = redact(cause.fix)
    document = {"test": cause.test, "nodes": list(cause.nodes), "why": redact(cause.why), "fix": fix}
    return {**document, "rung": cause.test, "change": fix}  # their former names


@dataclass
class StepLog:
    """The steps of a running preflight and the causes found so far; ``began`` is from `time.monotonic`."""

    steps: list[PreflightStep] = field(default_factory=list)
    causes: list[Cause] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def add(self, name: str, causes: Iterable[Cause], detail: str = "") -> None:
        """Add a step; it failed if there are causes."""
        new = merged(causes)
        self.causes += new
        self.steps.append(_failed(name, new) if new else PreflightStep(name, "ok", detail))

    def put_first(self, name: str, causes: Iterable[Cause]) -> None:
        """Let the step ``name`` fail in hindsight if there are ``causes``, which are then the first to fix."""
        new = list(causes)
        if new:
            self.causes[:0] = new
            self.steps = [_failed(name, new), *(s for s in self.steps if s.name != name)]

    def amend(self, name: str, causes: Iterable[Cause]) -> None:
        """Let the step ``name``, which was added already, fail in hindsight if there are ``causes``."""
        new = merged(causes)
        self.causes += new
        if new:
            failed = _failed(name, new)
            self.steps = [failed if (s.name, s.state) == (name, "ok") else s for s in self.steps]

    def skip(self, name: str, why: str) -> None:
        """Add a step that was not run."""
        self.steps.append(PreflightStep(name, "skipped", why))

    def diagnosis(
        self,
        command: LaunchCommand,
        hosts: Iterable[str],
        excluded: Mapping[str, Excluded] | None = None,
        *,
        interrupted: bool = False,
        also_failing: Mapping[str, tuple[str, ...]] | None = None,
    ) -> Diagnosis:
        """Return the results so far, for the job that ``command`` starts on ``hosts``."""
        seconds = time.monotonic() - self.began
        found = tuple(self.steps), tuple(self.causes), dict(excluded or {})
        return Diagnosis(command, tuple(hosts), *found, interrupted, seconds, dict(also_failing or {}))


def _failed(name: str, causes: Sequence[Cause]) -> PreflightStep:
    first = causes[0].nodes
    more = dict.fromkeys(node for cause in causes for node in cause.nodes if node not in first)
    return PreflightStep(name, "fail", causes[0].why, first, tuple(more))

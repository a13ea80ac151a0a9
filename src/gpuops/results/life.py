"""Results of life-cycle operations: transitions, onboardings and histories, each with its JSON document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gpuops.lifecycle.gates import GateState
from gpuops.lifecycle.life import conclusion as conclusion_of
from gpuops.lifecycle.states import State, next_states, state_of
from gpuops.reasons import Conclusion, Excluded, FailOn, Objection, Result, most_severe
from gpuops.results.plain import plain
from gpuops.store import GatePass, HostEvent


@dataclass(frozen=True)
class Transition(Result):
    """Result of ``admit``, ``drain`` and ``set_state``, by node: the new ``events``, and ``objections`` to the others.

    ``busy`` has what still runs on a drained node; if waiting for it timed out, there is an objection as well.
    """

    SCHEMA: ClassVar[str] = "gpuops.transition/1"
    """Fields may be added under the same number; none is removed or changes its meaning."""

    events: Mapping[str, HostEvent]
    objections: Mapping[str, Objection] = field(default_factory=dict)
    busy: Mapping[str, str] = field(default_factory=dict)
    excluded: Mapping[str, Excluded] = field(default_factory=dict)
    seconds: float = 0.0
    interrupted: bool = False

    def conclusion(self, fail_on: FailOn = "fail") -> Conclusion:
        """Return ``failed``, ``incomplete`` or ``locked`` by the most severe objection or exclusion."""
        return _conclusion(self.objections.values(), self.excluded, fail_on, interrupted=self.interrupted)

    def to_document(self) -> dict[str, Any]:
        """Return events, objections, busy and excluded nodes, each by node."""
        return {
            "schema": self.SCHEMA,
            "seconds": round(self.seconds, 3),
            "interrupted": self.interrupted,
            "events": plain(self.events),
            "objections": plain(self.objections),
            "busy": plain(self.busy),
            "excluded": plain(self.excluded),
        }


@dataclass(frozen=True)
class GateResult:
    """Result of one node at one gate; ``text`` describes it for users."""

    gate: str
    state: GateState
    text: str


@dataclass(frozen=True)
class NodeOnboarding:
    """Path of one node through the gates. ``stopped_at`` is the gate of the ``objection``; None if it passed all.

    ``interrupted_at`` is the gate at which Ctrl-C met it, and ``doing`` what it did there, if that is known.
    """

    gates: tuple[GateResult, ...]
    stopped_at: str | None
    objection: Objection | None
    state: State
    interrupted_at: str | None = None
    doing: str = ""


@dataclass(frozen=True)
class Onboarding(Result):
    """Result of ``onboard``, by node; it includes the gates that were passed before an interruption."""

    SCHEMA: ClassVar[str] = "gpuops.onboarding/1"

    nodes: Mapping[str, NodeOnboarding]
    interrupted: bool = False
    seconds: float = 0.0

    @property
    def excluded(self) -> dict[str, Excluded]:
        """The nodes that were excluded from the gate at which they stopped, each with the reason."""
        return {node: objection.excluded for node, objection in self.objections.items() if objection.excluded}

    @property
    def objections(self) -> dict[str, Objection]:
        """The objections, by node."""
        return {name: node.objection for name, node in self.nodes.items() if node.objection}

    def conclusion(self, fail_on: FailOn = "fail") -> Conclusion:
        """Return ``failed``, ``incomplete`` or ``locked`` by the most severe objection."""
        return _conclusion(self.objections.values(), {}, fail_on, interrupted=self.interrupted)

    def to_document(self) -> dict[str, Any]:
        """Return the state and gates of each node, and the excluded nodes."""
        return {
            "schema": self.SCHEMA,
            "seconds": round(self.seconds, 3),
            "interrupted": self.interrupted,
            "nodes": plain(self.nodes),
            "excluded": plain(self.excluded),
        }


@dataclass(frozen=True)
class History(Result):
    """Record of one host: its ``events`` (at least one, the oldest first) and the ``gates`` that it passed."""

    SCHEMA: ClassVar[str] = "gpuops.history/1"

    host: str
    events: tuple[HostEvent, ...]
    gates: tuple[GatePass, ...] = ()

    @property
    def state(self) -> State:
        """The state of the host."""
        return state_of(self.events[-1])

    @property
    def next_states(self) -> tuple[State, ...]:
        """The states that the host can be set to."""
        return next_states(self.state)

    @property
    def excluded(self) -> Mapping[str, Excluded]:
        """Empty: a history comes from the store, and no host is asked."""
        return {}

    def conclusion(self, fail_on: FailOn = "fail") -> Conclusion:  # noqa: ARG002 - every result has it
        """Return ``ok``: nothing is judged."""
        return "ok"

    def to_document(self) -> dict[str, Any]:
        """Return the latest event, the passed gates and all events."""
        return {
            "schema": self.SCHEMA,
            **plain(self.events[-1]),
            "gates": [{"gate": gate_pass.gate, "at": gate_pass.at.isoformat()} for gate_pass in self.gates],
            "history": plain(self.events),
        }


def event_document(event: HostEvent) -> dict[str, Any]:
    """Return one event as plain data."""
    document: dict[str, Any] = plain(event)
    return document


_EXCLUSIONS: Mapping[str, Conclusion] = {"locked": "locked", "interrupted": "interrupted"}


def _conclusion(
    objections: Iterable[Objection], excluded: Mapping[str, Excluded], fail_on: FailOn, *, interrupted: bool
) -> Conclusion:
    """Return the most severe conclusion; with ``fail_on="never"``, failed nodes do not count."""
    counted = [objection for objection in objections if fail_on != "never" or objection.severity != "failed"]
    return most_severe(
        (
            "interrupted" if interrupted else "ok",
            conclusion_of(counted),
            *(_EXCLUSIONS.get(exclusion.kind, "incomplete") for exclusion in excluded.values()),
        )
    )

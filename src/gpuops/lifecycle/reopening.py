"""The checks that stopped a node: it is admitted again only if these very checks have passed since; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuops.judging import LEVELS
from gpuops.lifecycle.gates import PAIR
from gpuops.lifecycle.states import state_of
from gpuops.proposal import propose
from gpuops.store import ClosingCheck, GatePass, HostEvent
from gpuops.store.records import KeptVisit

_RANK = {level: rank for rank, level in enumerate(LEVELS)}


@dataclass(frozen=True)
class Unproved:
    """A check that closed a node at ``event`` and has not passed since."""

    check: ClosingCheck
    event: HostEvent

    @property
    def why(self) -> str:
        """``burn-in-errors failed at burn-in on 2026-11-20 14:02 and has not passed since``."""
        at = f"{self.event.at:%Y-%m-%d %H:%M} UTC"
        return f"{self.check.name} failed at {self.check.gate} on {at} and has not passed since"

    @property
    def do(self) -> str:
        """The command that shows it."""
        if self.check.gate == PAIR:  # what two nodes do together is shown by two nodes only
            return propose("onboard", self.event.node)
        level = () if self.check.level == LEVELS[0] else ("--level", self.check.level)
        return propose("validate", "--limit", self.event.node, "--only", self.check.name, *level)


def unproved(
    history: Sequence[HostEvent],
    passes: Iterable[GatePass],
    visits: Sequence[KeptVisit],
    level_by_run: Mapping[int, str],
) -> list[Unproved]:
    """Return the checks that closed a node since it was last admitted, and that have not passed under the same load.

    They have if the node passed the same gate later, or in one of ``visits``, those of validations, at the same level
    or above. ``history`` and ``visits`` are those of the node, the oldest first.
    """
    gates = {gate_pass.gate: gate_pass.at for gate_pass in passes}
    latest = {check: Unproved(check, event) for event in _since_admission(history) for check in event.checks}
    return [
        each
        for check, each in latest.items()
        if not (check.gate in gates and gates[check.gate] > each.event.at)
        and not any(_shows(visit, level_by_run.get(visit.run, ""), each) for visit in visits)
    ]


def _since_admission(history: Sequence[HostEvent]) -> Sequence[HostEvent]:
    """Return the events after the last admission; one that only gives an admitted node a reason is none."""
    ends = [at for at, event in enumerate(history) if state_of(event) == "admitted" and event.cause != "stopped"]
    return history[ends[-1] + 1 :] if ends else history


def _shows(visit: KeptVisit, level: str, each: Unproved) -> bool:
    return (
        each.check.gate != PAIR
        and visit.at > each.event.at
        and visit.visit.checks.get(each.check.name) == "pass"
        and _RANK.get(level, -1) >= _RANK.get(each.check.level, 0)  # type: ignore[call-overload]
    )

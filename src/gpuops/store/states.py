"""The life cycle of nodes: who changed which node, when and why.

Events are only ever added, and a node's latest event contains its state. Gates are those that a node passed, each with
the fingerprint at that time.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from gpuops.store.database import Database

Fingerprint = Mapping[str, tuple[str, ...]]
"""Parts of the machine that was tested: ``{"driver": ("580.95.05",), "GPU serials": ("165…", "166…")}``."""

Cause = Literal["", "stopped", "demoted", "by_hand"]
"""The cause of an event: a gate that the node failed, another fingerprint, a person; empty if it passed a gate."""

_EVENTS = (
    "SELECT node, state, why, events.at, run, who, fingerprint, cause, checks FROM events JOIN runs ON runs.id = run"
)


class ClosingCheck(NamedTuple):
    """A check that failed and so closed a node: its ``name``, the ``level`` at which it ran, and the ``gate``."""

    name: str
    level: str
    gate: str


@dataclass(frozen=True)
class HostEvent:
    """An event of ``node``: its new ``state``, and why. ``who`` started the ``run`` that recorded it.

    ``checks`` are those that failed, if the event closed the node or kept it closed.
    """

    node: str
    state: str
    why: str
    at: dt.datetime
    run: str
    who: str
    fingerprint: Fingerprint = field(default_factory=dict)
    cause: Cause = ""
    checks: tuple[ClosingCheck, ...] = ()


@dataclass(frozen=True)
class GatePass:
    """A gate that a node passed, with the time and the machine's fingerprint."""

    gate: str
    at: dt.datetime
    fingerprint: Fingerprint


@dataclass(frozen=True)
class StateChange:
    """The new state of a node; see `Store.record_transition`.

    A change from admitted to another state closes the node; ``closes`` marks another change that does.
    """

    state: str
    why: str
    fingerprint: Fingerprint = field(default_factory=dict)
    cause: Cause = ""
    checks: tuple[ClosingCheck, ...] = ()
    closes: bool = False


class Store(Database):
    """The store in the file at ``path``. A missing file is created; without ``create``, the store is then empty.

    Raise `OutputError` if it cannot be used, `LockedError` while another program writes.
    """

    def __enter__(self) -> Store:  # noqa: PYI034 - Self came with Python 3.11
        return self

    def begin(self, what: str, run: str = "", *, who: str) -> str:
        """Start a run of ``what``, such as ``gpuops drain gpu01``, by the person ``who``; return its ID."""
        run = run or f"{_now():%Y%m%d-%H%M%S-%f}"
        row = (run, what, who, _now().isoformat())
        with self._translated_errors():
            self._database.execute("INSERT INTO runs (id, what, who, began) VALUES (?, ?, ?, ?)", row)
        return run

    def end(self, run: str) -> None:
        """Record the end of the run."""
        with self._translated_errors():
            self._database.execute("UPDATE runs SET ended = ? WHERE id = ?", (_now().isoformat(), run))

    def record_transition(self, node: str, run: str, decide: Callable[[HostEvent | None], StateChange]) -> HostEvent:
        """Record the change that ``decide`` derives from the node's latest event; no other program writes in between.

        If ``decide`` raises, nothing is recorded.
        """
        with self._translated_errors(), self._transaction():
            before = self.latest(node)
            change = decide(before)
            closed = change.closes or (before is not None and before.state == "admitted" != change.state)
            row = (node, change.state, change.why, run, _now().isoformat(), json.dumps(change.fingerprint))
            self._database.execute(
                "INSERT INTO events (node, state, why, run, at, fingerprint, cause, checks, closed)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*row, change.cause, json.dumps(change.checks), closed),
            )
            event = self.latest(node)
        if event is None:
            raise AssertionError(node)
        return event

    def latest(self, node: str) -> HostEvent | None:
        """Return the latest event of the node; None if it has no history."""
        return next(self._events("WHERE node = ? ORDER BY events.id DESC LIMIT 1", node), None)

    def history(self, node: str) -> list[HostEvent]:
        """Return all events of the node, the oldest first."""
        return list(self._events("WHERE node = ? ORDER BY events.id", node))

    def latest_by_node(self) -> dict[str, HostEvent]:
        """Return the latest event of every node."""
        newest = "WHERE events.id IN (SELECT max(id) FROM events GROUP BY node) ORDER BY node"
        return {event.node: event for event in self._events(newest)}

    def closed_since(self, at: dt.datetime, run: str | None = None) -> set[str]:
        """Return the nodes that were closed after ``at``, by one ``run`` or by any."""
        with self._translated_errors():
            rows = self._database.execute(
                "SELECT DISTINCT node FROM events WHERE closed = 1 AND at > ? AND (? IS NULL OR run = ?)",
                (at.astimezone(dt.timezone.utc).isoformat(), run, run),
            ).fetchall()
        return {str(node) for (node,) in rows}

    def record_gate(self, node: str, gate: str, run: str, fingerprint: Fingerprint) -> None:
        """Record that the node passed a gate."""
        with self._translated_errors():
            self._database.execute(
                "INSERT OR REPLACE INTO gates (node, gate, run, at, fingerprint) VALUES (?, ?, ?, ?, ?)",
                (node, gate, run, _now().isoformat(), json.dumps(fingerprint)),
            )

    def gates_passed(self, node: str) -> list[GatePass]:
        """Return the gates that the node passed, each with the last time."""
        return self._read("SELECT gate, at, fingerprint FROM gates WHERE node = ? ORDER BY at", (node,), _gate)

    def seconds_to_pass(self, gates: Collection[str]) -> list[float]:
        """Return how long each node took to pass all of ``gates`` in one run, from its begin to the last of them."""
        query = (
            "SELECT began, max(gates.at) FROM gates JOIN runs ON runs.id = gates.run"
            " WHERE gate IN (SELECT value FROM json_each(?)) GROUP BY node, run HAVING count(*) = ?"
            " ORDER BY max(gates.at)"
        )
        return self._read(query, (json.dumps([*gates]), len(gates)), _seconds_between)

    def _events(self, where: str, *values: str) -> Iterator[HostEvent]:
        return iter(self._read(f"{_EVENTS} {where}", values, _event))


def _event(node: str, state: str, why: str, at: str, run: str, who: str, *rest: Any) -> HostEvent:
    fingerprint, cause, checks = rest
    closing = tuple(ClosingCheck(*check) for check in json.loads(checks))
    return HostEvent(
        node, state, why, dt.datetime.fromisoformat(at), run, who, _fingerprint(fingerprint), cause, closing
    )


def _gate(gate: str, at: str, fingerprint: str) -> GatePass:
    return GatePass(gate, dt.datetime.fromisoformat(at), _fingerprint(fingerprint))


def _seconds_between(began: str, ended: str) -> float:
    return (dt.datetime.fromisoformat(ended) - dt.datetime.fromisoformat(began)).total_seconds()


def _fingerprint(text: str) -> Fingerprint:
    return {part: tuple(values) for part, values in json.loads(text).items()}


def _now() -> dt.datetime:
    return dt.datetime.now(dt.timezone.utc)

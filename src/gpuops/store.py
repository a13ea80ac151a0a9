"""The nodes' history: who changed which node, when and why, in one SQLite file that only its owner can read.

Events are only ever added, and a node's latest event contains its state. Gates are those that a node passed, each with
the fingerprint at that time.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal

from gpuops.errors import LockedError, OutputError
from gpuops.project import shortest

Fingerprint = Mapping[str, tuple[str, ...]]
"""Parts of the machine that was tested: ``{"driver": ("580.95.05",), "GPU serials": ("165…", "166…")}``."""

Cause = Literal["", "stopped", "demoted", "by_hand"]
"""The cause of an event: a gate that the node failed, another fingerprint, a person; empty if it passed a gate."""

_BUSY_SECONDS = 10.0
_SCHEMAS = (
    """
CREATE TABLE runs (id TEXT PRIMARY KEY, what TEXT NOT NULL, who TEXT NOT NULL, began TEXT NOT NULL, ended TEXT);
CREATE TABLE events (id INTEGER PRIMARY KEY, node TEXT NOT NULL, state TEXT NOT NULL, why TEXT NOT NULL,
                     run TEXT NOT NULL REFERENCES runs (id), at TEXT NOT NULL, fingerprint TEXT NOT NULL);
CREATE INDEX events_of_node ON events (node, id);
CREATE TABLE gates (node TEXT NOT NULL, gate TEXT NOT NULL, run TEXT NOT NULL REFERENCES runs (id), at TEXT NOT NULL,
                    fingerprint TEXT NOT NULL, PRIMARY KEY (node, gate));
""",
    # before this column existed, the cause of these two was read from the reason
    """
ALTER TABLE events ADD COLUMN cause TEXT NOT NULL DEFAULT '';
UPDATE events SET cause = 'stopped' WHERE why GLOB 'stopped at *';
UPDATE events SET cause = 'demoted' WHERE state = 'provisioned'
                                          AND why GLOB 'no longer the machine that was tested: *';
""",
)
"""The statements that upgrade the file from each version to the next; a new file runs all of them."""
_VERSION = len(_SCHEMAS)
_EVENTS = "SELECT node, state, why, events.at, run, who, fingerprint, cause FROM events JOIN runs ON runs.id = run"


@dataclass(frozen=True)
class HostEvent:
    """An event of ``node``: its new ``state``, and why. ``who`` started the ``run`` that recorded it."""

    node: str
    state: str
    why: str
    at: dt.datetime
    run: str
    who: str
    fingerprint: Fingerprint = field(default_factory=dict)
    cause: Cause = ""


@dataclass(frozen=True)
class GatePass:
    """A gate that a node passed, with the time and the machine's fingerprint."""

    gate: str
    at: dt.datetime
    fingerprint: Fingerprint


@dataclass(frozen=True)
class StateChange:
    """The new state of a node; see `Store.record_transition`."""

    state: str
    why: str
    fingerprint: Fingerprint = field(default_factory=dict)
    cause: Cause = ""


class Store:
    """The store in the file at ``path``. A missing file is created; without ``create``, the store is then empty.

    Raise `OutputError` if it cannot be used, `LockedError` while another program writes.
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self.path = path
        self._shown = shortest(path)
        has_file = create or path.exists()
        if has_file:
            self._create_file()
        self._database = sqlite3.connect(path if has_file else ":memory:", timeout=_BUSY_SECONDS, isolation_level=None)
        with self._translated_errors():
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA foreign_keys = ON")
            self._upgrade()

    def _create_file(self) -> None:
        """Create the file if it is missing, before SQLite would, which applies the umask."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600))
        except OSError as error:
            raise OutputError(f"{self._shown}: cannot open the store: {error.strerror}") from error

    def _upgrade(self) -> None:
        with self._transaction():
            (version,) = self._database.execute("PRAGMA user_version").fetchone()
            if version > _VERSION:
                raise OutputError(f"{self._shown}: written by a newer gpuops (schema {version}); upgrade this one")
            if version < _VERSION:
                for statement in filter(str.strip, "".join(_SCHEMAS[version:]).split(";")):
                    self._database.execute(statement)
                self._database.execute(f"PRAGMA user_version = {_VERSION}")

    def __enter__(self) -> Store:  # noqa: PYI034 - Self came with Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._database.close()

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
            change = decide(self.latest(node))
            self._database.execute(
                "INSERT INTO events (node, state, why, run, at, fingerprint, cause) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (node, change.state, change.why, run, _now().isoformat(), json.dumps(change.fingerprint), change.cause),
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

    def record_gate(self, node: str, gate: str, run: str, fingerprint: Fingerprint) -> None:
        """Record that the node passed a gate."""
        with self._translated_errors():
            self._database.execute(
                "INSERT OR REPLACE INTO gates (node, gate, run, at, fingerprint) VALUES (?, ?, ?, ?, ?)",
                (node, gate, run, _now().isoformat(), json.dumps(fingerprint)),
            )

    def gates_passed(self, node: str) -> list[GatePass]:
        """Return the gates that the node passed, each with the last time."""
        with self._translated_errors():
            rows = self._database.execute("SELECT gate, at, fingerprint FROM gates WHERE node = ? ORDER BY at", (node,))
            return [GatePass(gate, dt.datetime.fromisoformat(at), _fingerprint(text)) for gate, at, text in rows]

    def _events(self, where: str, *values: str) -> Iterator[HostEvent]:
        with self._translated_errors():
            rows = self._database.execute(f"{_EVENTS} {where}", values).fetchall()
        for node, state, why, at, run, who, fingerprint, cause in rows:
            when = dt.datetime.fromisoformat(at)
            yield HostEvent(node, state, why, when, run, who, _fingerprint(fingerprint), cause)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """Run one transaction, during which no other program writes."""
        with self._database:  # commits all of it or, on any exception, nothing
            self._database.execute("BEGIN IMMEDIATE")
            yield

    @contextlib.contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Raise SQLite's errors as errors of gpuops."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                waited = f"still locked by another gpuops process after {_BUSY_SECONDS:g} s"
                raise LockedError(f"{self._shown}: {waited}; wait for it to finish") from error
            raise OutputError(f"{self._shown}: cannot use the store: {error}") from error
        except sqlite3.DatabaseError as error:
            raise OutputError(f"{self._shown}: not a gpuops store, or damaged: {error}") from error


def _fingerprint(text: str) -> Fingerprint:
    return {part: tuple(values) for part, values in json.loads(text).items()}


def _now() -> dt.datetime:
    return dt.datetime.now(dt.timezone.utc)

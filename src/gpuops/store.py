"""Store: what became of every node, who made it so, when and why, in one SQLite file for its owner alone.

Events are only ever added, and the last one of a node is its present. Gates are what a node passed on its way, each
with the fingerprint that it had then.
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
from typing import TypeVar

from gpuops.errors import LockedError, OutputError

T = TypeVar("T")
Fingerprint = Mapping[str, tuple[str, ...]]
"""What makes a node the one that was tested: ``{"driver": ("580.95.05",), "GPU serials": ("165…", "166…")}``."""

_VERSION = 1
_BUSY_SECONDS = 10.0
_SCHEMA = """
CREATE TABLE runs (id TEXT PRIMARY KEY, what TEXT NOT NULL, who TEXT NOT NULL, began TEXT NOT NULL, ended TEXT);
CREATE TABLE events (id INTEGER PRIMARY KEY, node TEXT NOT NULL, state TEXT NOT NULL, why TEXT NOT NULL,
                     run TEXT NOT NULL REFERENCES runs (id), at TEXT NOT NULL, fingerprint TEXT NOT NULL);
CREATE INDEX events_of_node ON events (node, id);
CREATE TABLE gates (node TEXT NOT NULL, gate TEXT NOT NULL, run TEXT NOT NULL REFERENCES runs (id), at TEXT NOT NULL,
                    fingerprint TEXT NOT NULL, PRIMARY KEY (node, gate));
"""
_EVENTS = "SELECT node, state, why, events.at, run, who, fingerprint FROM events JOIN runs ON runs.id = run"


@dataclass(frozen=True)
class HostEvent:
    """What happened to ``node``: the ``state`` that it has since, and why. ``who`` began the ``run`` that did it."""

    node: str
    state: str
    why: str
    at: dt.datetime
    run: str
    who: str
    fingerprint: Fingerprint = field(default_factory=dict)


@dataclass(frozen=True)
class GatePass:
    """A gate that a node passed, at what time and as what machine."""

    gate: str
    at: dt.datetime
    fingerprint: Fingerprint


@dataclass(frozen=True)
class StateChange:
    """What a decision makes of a node; see `Store.move`."""

    state: str
    why: str
    fingerprint: Fingerprint = field(default_factory=dict)


class Store:
    """The file at ``path``, made where it is missing.

    `OutputError` where it cannot be used, `LockedError` while another program writes.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(
                os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
            )  # before SQLite, which asks the umask
        except OSError as error:
            raise OutputError(f"{path}: the store cannot be opened: {error.strerror}") from error
        self._database = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
        with self._spoken():
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA foreign_keys = ON")
            self._bring_up()

    def _bring_up(self) -> None:
        with self._writing():
            (version,) = self._database.execute("PRAGMA user_version").fetchone()
            if version > _VERSION:
                raise OutputError(f"{self.path}: written by a newer gpuops (schema {version}); upgrade this one")
            if version < _VERSION:
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    self._database.execute(statement)
                self._database.execute(f"PRAGMA user_version = {_VERSION}")

    def __enter__(self) -> Store:  # noqa: PYI034 - Self came with Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._database.close()

    def begin(self, what: str, run: str = "", *, who: str) -> str:
        """A run of ``what`` (a verb and its nodes) begins now, by ``who``; its id."""
        run = run or f"{_now():%Y%m%d-%H%M%S-%f}"
        row = (run, what, who, _now().isoformat())
        with self._spoken():
            self._database.execute("INSERT INTO runs (id, what, who, began) VALUES (?, ?, ?, ?)", row)
        return run

    def end(self, run: str) -> None:
        """The run is over."""
        with self._spoken():
            self._database.execute("UPDATE runs SET ended = ? WHERE id = ?", (_now().isoformat(), run))

    def move(self, node: str, run: str, decide: Callable[[HostEvent | None], StateChange]) -> HostEvent:
        """Let ``decide`` say from the node's last event what comes next, and keep it; nobody else moves it meanwhile.

        What ``decide`` raises is raised, and nothing is kept.
        """
        with self._spoken(), self._writing():
            made = decide(self.last(node))
            self._database.execute(
                "INSERT INTO events (node, state, why, run, at, fingerprint) VALUES (?, ?, ?, ?, ?, ?)",
                (node, made.state, made.why, run, _now().isoformat(), json.dumps(made.fingerprint)),
            )
            last = self.last(node)
        if last is None:
            raise AssertionError(node)
        return last

    def last(self, node: str) -> HostEvent | None:
        """The node's present; None where nothing is known of it."""
        return next(self._events("WHERE node = ? ORDER BY events.id DESC LIMIT 1", node), None)

    def history(self, node: str) -> list[HostEvent]:
        """Everything that happened to the node, the oldest first."""
        return list(self._events("WHERE node = ? ORDER BY events.id", node))

    def present(self) -> dict[str, HostEvent]:
        """The last event of every node, by name."""
        newest = "WHERE events.id IN (SELECT max(id) FROM events GROUP BY node) ORDER BY node"
        return {event.node: event for event in self._events(newest)}

    def note(self, node: str, gate: str, run: str, fingerprint: Fingerprint) -> None:
        """The node passed a gate."""
        with self._spoken():
            self._database.execute(
                "INSERT OR REPLACE INTO gates (node, gate, run, at, fingerprint) VALUES (?, ?, ?, ?, ?)",
                (node, gate, run, _now().isoformat(), json.dumps(fingerprint)),
            )

    def passed(self, node: str) -> list[GatePass]:
        """The gates that the node passed, each when it last did."""
        with self._spoken():
            rows = self._database.execute("SELECT gate, at, fingerprint FROM gates WHERE node = ? ORDER BY at", (node,))
            return [GatePass(gate, dt.datetime.fromisoformat(at), _fingerprint(text)) for gate, at, text in rows]

    def _events(self, which: str, *values: str) -> Iterator[HostEvent]:
        with self._spoken():
            rows = self._database.execute(f"{_EVENTS} {which}", values).fetchall()
        for node, state, why, at, run, who, fingerprint in rows:
            yield HostEvent(node, state, why, dt.datetime.fromisoformat(at), run, who, _fingerprint(fingerprint))

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction that no other writer comes into, from its first look on."""
        with self._database:  # keeps all of it or, whatever is raised, nothing
            self._database.execute("BEGIN IMMEDIATE")
            yield

    @contextlib.contextmanager
    def _spoken(self) -> Iterator[None]:
        """SQLite's errors as ours."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise LockedError(f"{self.path}: another gpuops writes there for {_BUSY_SECONDS:g} s by now") from error
            raise OutputError(f"{self.path}: the store cannot be used: {error}") from error
        except sqlite3.DatabaseError as error:
            raise OutputError(f"{self.path}: not a store of gpuops, or damaged: {error}") from error


def _fingerprint(text: str) -> Fingerprint:
    return {part: tuple(values) for part, values in json.loads(text).items()}


def _now() -> dt.datetime:
    return dt.datetime.now(dt.timezone.utc)

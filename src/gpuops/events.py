"""Events that operations report while they run; without a listener they are dropped.

A listener is any callable that takes an `Event`; in a notebook, ``print`` is enough. Events are delivered one at a
time, in the thread that they happen in. The engine itself never prints and does not depend on a terminal.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Event:
    """Event of an ``operation``, such as ``validate-3`` (the third call)."""

    operation: str


@dataclass(frozen=True)
class Progress(Event):
    """Progress of ``what``: ``done`` of ``total`` hosts are finished."""

    what: str
    done: int
    total: int


@dataclass(frozen=True)
class Note(Event):
    """Message for the waiting user."""

    text: str
    level: Literal["info", "warning"] = "info"


@dataclass(frozen=True)
class LeftOut(Event):
    """Exclusion of ``hosts``, all for the same reason."""

    hosts: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Activity(Event):
    """Current activity in a few words; it replaces the previous one on the screen."""

    text: str


@dataclass(frozen=True)
class HostDone(Event):
    """End of the work on a host after ``seconds``; ``error`` is set if the host did not answer."""

    host: str
    error: str | None
    seconds: float


@dataclass(frozen=True)
class RoundStarted(Event):
    """Start of round ``number`` (of ``at_most``) of a measurement, with ``groups`` running at the same time."""

    number: int
    why: str
    groups: int
    at_most: int


@dataclass(frozen=True)
class StepDone(Event):
    """End of a playbook step on a host."""

    host: str
    name: str
    status: str


@dataclass(frozen=True)
class HostActivity(Event):
    """Current activity on a host in a few words; it replaces the previous one.

    If it is a wait, ``seconds`` of at most ``most_seconds`` have passed.
    """

    host: str
    text: str
    seconds: float | None = None
    most_seconds: float | None = None


@dataclass(frozen=True)
class GateStarted(Event):
    """Start of an onboarding gate for a host."""

    host: str
    gate: str


@dataclass(frozen=True)
class GateDone(Event):
    """Result of an onboarding gate for a host; ``text`` is a sentence for the user."""

    host: str
    gate: str
    state: Literal["passed", "stopped", "left_out", "kept"]
    text: str


@dataclass(frozen=True)
class JobLine(Event):
    """Line that ``ranks`` of a job printed, or ``nodes`` themselves; equal lines of several are one event."""

    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class RankEnded(Event):
    """End of ``ranks`` of a job on a host; ``code`` is the exit code, or the negative number of a signal."""

    host: str
    ranks: tuple[int, ...]
    code: int | None


Events = Callable[[Event], None]


class Emitter:
    """Dispatcher of events to a listener, one at a time; logs the listener's first error and ignores all its errors."""

    def __init__(self, listener: Events | None = None) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._speaking: int | None = None
        self._warned = False

    @property
    def is_speaking(self) -> bool:
        """True if the current thread is inside the listener."""
        return self._speaking == threading.get_ident()

    def __call__(self, event: Event) -> None:
        """Deliver ``event``."""
        if self._listener is None:
            return
        with self._lock:
            self._speaking = threading.get_ident()
            try:
                self._listener(event)
            except Exception as error:  # noqa: BLE001 - the listener is user code
                if not self._warned:
                    _log.warning("the event listener failed: %s: %s", type(error).__name__, error)
                self._warned = True
            finally:
                self._speaking = None

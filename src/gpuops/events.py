"""Events that an operation sends while it runs; without a listener they are dropped.

A listener is any callable that takes an `Event`, for example ``print`` in a notebook. Events are delivered one at a
time, in the thread in which they happen. Operations themselves never print and do not depend on a terminal.
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
    """``done`` of ``total`` hosts have finished ``what``."""

    what: str
    done: int
    total: int


@dataclass(frozen=True)
class Note(Event):
    """A message for the user."""

    text: str
    level: Literal["info", "warning"] = "info"


@dataclass(frozen=True)
class LeftOut(Event):
    """``hosts`` are excluded, all for the same reason."""

    hosts: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Activity(Event):
    """The current activity in a few words; it replaces the previous one."""

    text: str


@dataclass(frozen=True)
class HostDone(Event):
    """A host finished after ``seconds``; ``error`` is the reason if it did not answer."""

    host: str
    error: str | None
    seconds: float


@dataclass(frozen=True)
class RoundStarted(Event):
    """Round ``number`` of ``at_most`` rounds of a measurement starts, with ``groups`` in parallel."""

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
class GateDone(Event):
    """A host passed a gate of onboarding or stopped at it; ``text`` describes the result."""

    host: str
    gate: str
    state: Literal["passed", "stopped", "left_out", "kept"]
    text: str


Events = Callable[[Event], None]


class Emitter:
    """Delivers events to a listener, one at a time; the first error of the listener is logged, and none propagates."""

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

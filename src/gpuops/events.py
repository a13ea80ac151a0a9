"""Events: what an operation tells while it works; the default listener is silent.

A listener is any callable that takes an `Event`: ``print`` will do in a notebook. Events are delivered one at a time,
from whichever thread they happen in. The engine never prints and never knows a terminal.
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
    """Something that happened during ``operation``, such as ``validate-3`` (the third call)."""

    operation: str


@dataclass(frozen=True)
class Progress(Event):
    """``done`` of ``total`` hosts came to an end of ``what``."""

    what: str
    done: int
    total: int


@dataclass(frozen=True)
class Note(Event):
    """A sentence for the person who waits."""

    text: str
    level: Literal["info", "warning"] = "info"


@dataclass(frozen=True)
class LeftOut(Event):
    """``hosts`` take no part, all for the same reason."""

    hosts: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Activity(Event):
    """What is done at this moment, in a few words; it replaces what was shown before."""

    text: str


@dataclass(frozen=True)
class HostDone(Event):
    """A host came to its end after ``seconds``; ``error`` is why it did not answer."""

    host: str
    error: str | None
    seconds: float


@dataclass(frozen=True)
class RoundStarted(Event):
    """Round ``number`` of a measurement, with so many ``groups`` side by side; there are ``at_most`` rounds."""

    number: int
    why: str
    groups: int
    at_most: int


@dataclass(frozen=True)
class StepDone(Event):
    """A step of a playbook ended on a host."""

    host: str
    name: str
    status: str


@dataclass(frozen=True)
class GateDone(Event):
    """A host passed a gate of onboarding, or stopped at it; ``text`` says so for a person."""

    host: str
    gate: str
    state: Literal["passed", "stopped", "left_out", "kept"]
    text: str


Events = Callable[[Event], None]


class Emitter:
    """Hands events to a listener, one at a time; an error of the listener is logged once and ends nothing."""

    def __init__(self, listener: Events | None = None) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._speaking: int | None = None
        self._warned = False

    @property
    def is_speaking(self) -> bool:
        """This very thread is inside the listener."""
        return self._speaking == threading.get_ident()

    def __call__(self, event: Event) -> None:
        """Deliver ``event``."""
        if self._listener is None:
            return
        with self._lock:
            self._speaking = threading.get_ident()
            try:
                self._listener(event)
            except Exception as error:  # noqa: BLE001 - the listener is a user's code
                if not self._warned:
                    _log.warning("the event listener failed: %s: %s", type(error).__name__, error)
                self._warned = True
            finally:
                self._speaking = None

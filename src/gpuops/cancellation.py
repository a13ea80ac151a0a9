"""Cancellation of running work: from another thread, and by Ctrl-C or SIGTERM."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

_AGAIN_SECONDS = 0.01


class CancelToken:
    """Token shared between the code that may cancel and the work that it ends, even several fan-outs; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """True once `cancel` was called."""
        return self._cancelled

    def cancel(self) -> None:
        """End all work that has this token, including work that starts later. Safe to call twice."""
        with self._lock:
            self._cancelled = True
            callbacks = tuple(self._callbacks)
        for callback in callbacks:
            callback()

    @contextlib.contextmanager
    def calling(self, callback: Callable[[], None]) -> Iterator[None]:
        """Call ``callback`` on cancellation within this context; immediately if already cancelled."""
        with self._lock:
            self._callbacks.append(callback)
        try:
            if self._cancelled:
                callback()
            yield
        finally:
            with self._lock:
                self._callbacks.remove(callback)


def raise_on_signals() -> None:
    """Raise KeyboardInterrupt on Ctrl-C and on SIGTERM, but never in the middle of an import."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, _interrupt)


def ignore_signals() -> None:
    """Ignore Ctrl-C and SIGTERM from now on: the program is about to end."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)


def _interrupt(_signal: int, frame: FrameType | None) -> None:
    """Raise, or try again soon during an import: it may lose the exception, or leave a module half made."""
    if _imports(frame):
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
        return
    raise KeyboardInterrupt


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False

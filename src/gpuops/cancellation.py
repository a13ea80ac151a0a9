"""Cancellation of running work from another thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


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

"""CancelToken: ends work from another thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


class CancelToken:
    """Shared by whoever may cancel and by the work that it ends, which may be many fan-outs. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """`cancel` was called."""
        return self._cancelled

    def cancel(self) -> None:
        """End what runs with this token, and at once whatever is started with it later. Safe to call twice."""
        with self._lock:
            self._cancelled = True
            callbacks = tuple(self._callbacks)
        for callback in callbacks:
            callback()

    @contextlib.contextmanager
    def calling(self, callback: Callable[[], None]) -> Iterator[None]:
        """Call ``callback`` when cancelled while the context lasts; at once if that was before."""
        with self._lock:
            self._callbacks.append(callback)
        try:
            if self._cancelled:
                callback()
            yield
        finally:
            with self._lock:
                self._callbacks.remove(callback)

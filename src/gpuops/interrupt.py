"""Ctrl-C and SIGTERM: a KeyboardInterrupt, but never in the middle of an import."""

from __future__ import annotations

import signal
from types import FrameType

_AGAIN_SECONDS = 0.01


def raise_on_signals() -> None:
    """Raise KeyboardInterrupt on Ctrl-C and on SIGTERM, which ends a run in the same way."""
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

"""Entry point of ``gpuops`` and ``python -m gpuops``; until it is loaded, Ctrl-C ends it without a traceback."""

from __future__ import annotations

import os
import signal
import sys


def _leave(_signal: int, _frame: object) -> None:
    """End at once: nothing is open yet, and an exception would surface in the middle of an import."""
    os.write(2, b"gpuops: interrupted\n")
    os._exit(130)


def _open_closed_streams() -> None:
    """Let output go nowhere where the caller closed a stream (``>&-``): Python has None for it."""
    if sys.stdout is None or sys.stderr is None:
        nowhere = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
        sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere


def main() -> None:
    """Load the command line and run it."""
    signal.signal(signal.SIGINT, _leave)
    signal.signal(signal.SIGTERM, _leave)
    _open_closed_streams()
    from gpuops.cli import main as program

    program()


if __name__ == "__main__":
    main()

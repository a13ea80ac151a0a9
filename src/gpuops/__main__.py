"""Entry point of ``gpuops`` and ``python -m gpuops``; until it is loaded, Ctrl-C ends it without a traceback."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # built in; signal loads enum, 5 ms in which Ctrl-C prints a traceback
import os
import sys


def _leave(_number: int, _frame: object) -> None:
    """End at once: nothing is open yet, and an exception would surface in the middle of an import."""
    os.write(2, b"\ngpuops: interrupted\n" if os.isatty(2) else b"gpuops: interrupted\n")  # a terminal shows ^C
    os._exit(130)


def _open_closed_streams() -> None:
    """Let output go nowhere where the caller closed a stream (``>&-``): Python has None for it."""
    if sys.stdout is None or sys.stderr is None:
        nowhere = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
        sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere


def main() -> None:
    """Load the command line and run it."""
    _signal.signal(_signal.SIGINT, _leave)
    _signal.signal(_signal.SIGTERM, _leave)
    _open_closed_streams()
    from gpuops.cli import main as program

    program()


if __name__ == "__main__":
    main()

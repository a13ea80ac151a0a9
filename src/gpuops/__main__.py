"""Entry point of ``gpuops`` and ``python -m gpuops``; until it is loaded, Ctrl-C ends it without a traceback."""

from __future__ import annotations

import os
import signal


def _leave(_signal: int, _frame: object) -> None:
    """End at once: nothing is open yet, and an exception would surface in the middle of an import."""
    os.write(2, b"gpuops: interrupted\n")
    os._exit(130)


def main() -> None:
    """Load the command line and run it."""
    signal.signal(signal.SIGINT, _leave)
    signal.signal(signal.SIGTERM, _leave)
    from gpuops.cli import main as program

    program()


if __name__ == "__main__":
    main()

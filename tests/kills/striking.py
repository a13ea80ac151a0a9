"""Run ``gpuops WORDS`` and stop as the journal's line LINE is on disk: ``striking.py LINE WORDS...``.

Who started it sees that it has stopped, and kills what it wants to kill.
"""

import itertools
import os
import signal
import sys

from gpuops.cli import main
from gpuops.playbook.journal import Journal

line, numbers, append = int(sys.argv.pop(1)), itertools.count(1), Journal._append


def stopping(self, data):
    """Write a line, and stop after the one that was asked for."""
    append(self, data)
    if next(numbers) == line:
        os.kill(os.getpid(), signal.SIGSTOP)


Journal._append = stopping
main()

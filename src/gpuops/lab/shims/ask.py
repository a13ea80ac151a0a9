"""Queries the lab for what a program prints.

Run as ``ask.py SOCKET HOST ROOT PROGRAM WORD…``.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys


def main() -> int:
    """Print the answer as the program itself would, and return its exit status."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as `nvidia-smi | head` ends any other program
    path, host, root, program, *words = sys.argv[1:]
    settings = {name: value for name, value in os.environ.items() if name.startswith(("CUDA_", "NCCL_"))}
    question = {"host": host, "root": root == "1", "program": program, "words": words, "settings": settings}
    with socket.socket(socket.AF_UNIX) as lab:
        lab.connect(path)
        lab.sendall(json.dumps(question).encode() + b"\n")
        answer = json.loads(lab.makefile("rb").read())
    sys.stdout.write(answer["out"])
    sys.stdout.flush()
    sys.stderr.write(answer["err"])
    return int(answer["code"])


if __name__ == "__main__":
    raise SystemExit(main())

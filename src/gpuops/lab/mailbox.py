"""Requests of a host's programs: a message in one FIFO, and a line in another when the answer is ready.

The waiting side is a plain shell, which then runs the answer, a script that prints the output. Hundreds may wait at
once, and another process for each would cost more than what they measure. A message ``gpu01.4711 gpu01 0 nvidia-smi --
-L`` is the reply's name, the host, whether root asks, the program, its settings and its words. A unit separator ends
each field, and the number of fields comes first.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from gpuops.lab.sandbox import User, write

_SEPARATOR = b"\x1f"
_END_OF_SETTINGS = "--"
_KEEP_SECONDS = 30.0
# from a question to the program's output, standard error and exit status
Ask = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]


class Mailbox:
    """The files ``questions`` and ``replies/`` in the lab's directory, which only the hosts' user can use."""

    def __init__(self, root: Path, user: User, ask: Ask) -> None:
        self._ask = ask
        self._replies = root / "replies"
        self._replies.mkdir(mode=0o700)
        questions = root / "questions"
        os.mkfifo(questions, 0o600)
        for path in (questions, self._replies):
            os.chown(path, user.uid, -1)
        self._descriptor = os.open(questions, os.O_RDWR | os.O_NONBLOCK)  # also open for writing, so that it never ends
        self._unread = b""
        self._tasks: set[asyncio.Task[None]] = set()
        asyncio.get_running_loop().add_reader(self._descriptor, self._read)

    def _read(self) -> None:
        *fields, self._unread = (self._unread + os.read(self._descriptor, 1 << 16)).split(_SEPARATOR)
        while fields and len(fields) > (count := int(fields[0])):
            message, fields = fields[1 : count + 1], fields[count + 1 :]
            task = asyncio.ensure_future(self._reply([field.decode(errors="replace") for field in message]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._unread = b"".join(field + _SEPARATOR for field in fields) + self._unread

    async def _reply(self, message: list[str]) -> None:
        name, host, root, program, *rest = message
        at = rest.index(_END_OF_SETTINGS)
        settings = dict(setting.split("=", 1) for setting in rest[:at])
        question = {"host": host, "root": root == "1", "program": program, "words": rest[at + 1 :]}
        answer = await self._ask({**question, "settings": settings})
        path = self._replies / Path(name).name
        out, err = shlex.quote(answer["out"]), shlex.quote(answer["err"])
        write(path, f"printf %s {out}\nprintf %s {err} >&2\nexit {answer['code']}\n")
        _wake(path.with_name(f"{path.name}.fifo"))
        asyncio.get_running_loop().call_later(_KEEP_SECONDS, _forget, path)


def _wake(fifo: Path) -> None:
    """Wake the waiting shell, which opened the FIFO before it asked; without a reader it was killed meanwhile."""
    try:
        descriptor = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return
    with contextlib.suppress(BrokenPipeError):
        os.write(descriptor, b"\n")
    os.close(descriptor)


def _forget(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.with_name(f"{path.name}.fifo").unlink(missing_ok=True)

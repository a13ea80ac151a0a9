"""Requests of programs that take time: a line in one FIFO, and a message in another when the answer is ready.

The waiting side is a plain shell, which then runs the answer, a script that prints the output. Hundreds may wait at
once, and another process for each would cost more than what they measure.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path

from gpuops.lab.sandbox import User, write
from gpuops.lab.tools.answer import Answer

_SEPARATOR = "\t"
_END_OF_SETTINGS = "--"
_TRIES, _TRY_SECONDS = 50, 0.02
_KEEP_SECONDS = 30.0
# the host, the program, its words and the settings in its environment
Ask = Callable[[str, str, list[str], dict[str, str]], Awaitable[Answer]]


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
        self._unread += os.read(self._descriptor, 1 << 16)
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            task = asyncio.ensure_future(self._reply(line.decode(errors="replace").split(_SEPARATOR)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _reply(self, question: list[str]) -> None:
        name, host, program, *rest = question
        at = rest.index(_END_OF_SETTINGS)
        settings = dict(setting.split("=", 1) for setting in rest[:at])
        answer = await self._ask(host, program, rest[at + 1 :], settings)
        path = self._replies / Path(name).name
        out, err = shlex.quote(answer.out), shlex.quote(answer.err)
        write(path, f"printf %s {out}\nprintf %s {err} >&2\nexit {answer.code}\n")
        await _wake(path.with_name(f"{path.name}.fifo"))
        asyncio.get_running_loop().call_later(_KEEP_SECONDS, _forget, path)


async def _wake(fifo: Path) -> None:
    """Wake the waiting shell, which may not listen yet, or may have been killed."""
    for _ in range(_TRIES):
        try:
            descriptor = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            await asyncio.sleep(_TRY_SECONDS)
            continue
        with contextlib.suppress(BrokenPipeError):
            os.write(descriptor, b"\n")
        os.close(descriptor)
        return


def _forget(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.with_name(f"{path.name}.fifo").unlink(missing_ok=True)

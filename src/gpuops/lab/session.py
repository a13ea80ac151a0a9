"""One command on a lab host: a real shell as the lab's user, with its streams connected to the SSH channel."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import shutil
import signal
import struct
import termios
from collections.abc import AsyncIterator
from typing import Any

import asyncssh

from gpuops.lab.csh import complaint
from gpuops.lab.model import Behaviour
from gpuops.lab.sandbox import Sandbox

_NOISE = b"Welcome to the cluster. Maintenance on Sunday.\nconda: activating base\n"


async def run_command(process: asyncssh.SSHServerProcess[bytes], sandbox: Sandbox, host: str, how: Behaviour) -> None:
    """Run the command of ``process`` on ``host``; send its exit status after all of its output."""
    if how.answer == "never":
        await process.wait_closed()
        return
    if how.login_shell == "noisy":
        process.stdout.write(_NOISE)
    words = _words(process.command, how, process)
    if words is None:
        process.exit(1)
        return
    if process.get_terminal_type() is not None:  # a client without TERM asks for a terminal without a name
        await _on_terminal(process, words, _surroundings(process, sandbox, host))
        return
    child = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        **_surroundings(process, sandbox, host),
    )
    if how.answer == "half":
        await _break_off(process, child)
        return
    await _until_done(process, child)


def _words(command: str | None, how: Behaviour, process: asyncssh.SSHServerProcess[bytes]) -> list[str] | None:
    """Return the words to execute; None if the login shell rejects the command."""
    if how.login_shell == "csh" and command is not None:
        real = shutil.which("tcsh") or shutil.which("csh")
        if real:
            return [real, "-c", command]
        refusal = complaint(command)
        if refusal:
            process.stderr.write(f"{refusal}\n".encode())
            return None
    return ["/bin/sh"] if command is None else ["/bin/sh", "-c", command]


def _surroundings(process: asyncssh.SSHServerProcess[bytes], sandbox: Sandbox, host: str) -> dict[str, Any]:
    home = sandbox.home(host)
    user = process.get_extra_info("username") or "lab"
    env = {
        "PATH": f"{sandbox.host(host)}/bin",
        "HOME": str(home),
        "SHELL": "/bin/sh",
        "USER": user,
        "LOGNAME": user,
        "LANG": "C.UTF-8",
        **{name: value for name, value in process.env.items() if name.startswith("LC_")},
    }
    return {"cwd": home, "env": env, "start_new_session": True, **sandbox.user.switch}


async def _until_done(process: asyncssh.SSHServerProcess[bytes], child: asyncio.subprocess.Process) -> None:
    """Connect the streams; the exit status goes last, because the client takes it for the end of the output."""
    # asyncssh's own redirection of asyncio streams closes the channel with the first stream that ends
    watch = asyncio.ensure_future(_hang_up(process, child.pid))
    typed = asyncio.ensure_future(_feed(process, child))
    try:
        await asyncio.gather(_copy(child.stdout, process.stdout), _copy(child.stderr, process.stderr))
        _finish(process, await child.wait())
    except (BrokenPipeError, ConnectionError, asyncssh.Error):
        return  # the client disconnected
    finally:
        watch.cancel()
        typed.cancel()
        if child.returncode is None:
            _kill_group(child.pid)


async def _copy(source: asyncio.StreamReader | None, sink: asyncssh.SSHWriter[bytes]) -> None:
    while source and (data := await source.read(65536)):
        sink.write(data)
        await sink.drain()


def _finish(process: asyncssh.SSHServerProcess[bytes], code: int) -> None:
    if code < 0:
        process.exit_with_signal(signal.Signals(-code).name.removeprefix("SIG"))
    else:
        process.exit(code)


async def _hang_up(process: asyncssh.SSHServerProcess[bytes], group: int) -> None:
    """Kill everything that the command started once the client disconnects."""
    await process.wait_closed()
    _kill_group(group)


def _kill_group(group: int, number: int = signal.SIGKILL) -> None:
    """Signal a process group, if it is still there."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


async def _break_off(process: asyncssh.SSHServerProcess[bytes], child: asyncio.subprocess.Process) -> None:
    """Send half of the answer, then close the connection."""
    feed = asyncio.ensure_future(_feed(process, child))
    output = child.stdout
    text = await output.read(1 << 20) if output else b""
    process.stdout.write(text[: max(1, len(text) // 2)])
    await process.stdout.drain()
    await asyncio.sleep(0.05)
    feed.cancel()
    process.channel.get_connection().abort()
    _kill_group(child.pid)
    await child.wait()


async def _feed(process: asyncssh.SSHServerProcess[bytes], child: asyncio.subprocess.Process) -> None:
    sink = child.stdin
    if sink is None:
        return
    try:
        while data := await process.stdin.read(65536):
            sink.write(data)
            await sink.drain()
    except asyncssh.SignalReceived as received:
        _kill_group(child.pid, signal.Signals.__members__.get(f"SIG{received.signal}", signal.SIGTERM))
    except (BrokenPipeError, ConnectionError):
        return  # the command reads no more input
    finally:
        sink.close()


async def _on_terminal(process: asyncssh.SSHServerProcess[bytes], words: list[str], how: dict[str, Any]) -> None:
    """Run ``words`` on a pseudo-terminal of the client's size."""
    master, slave = pty.openpty()
    width, height, *_ = process.get_terminal_size()
    _resize(slave, width, height)
    how["env"]["TERM"] = process.get_terminal_type() or "dumb"
    child = await asyncio.create_subprocess_exec(*words, stdin=slave, stdout=slave, stderr=slave, **how)
    os.close(slave)
    watch = asyncio.ensure_future(_hang_up(process, child.pid))
    typed = asyncio.ensure_future(_type(process, master))
    async for data in _shown(master):
        process.stdout.write(data)
    typed.cancel()
    os.close(master)
    await process.stdout.drain()
    code = await child.wait()
    watch.cancel()
    _finish(process, code)


async def _type(process: asyncssh.SSHServerProcess[bytes], master: int) -> None:
    """Pass on input, and changes of the terminal's size."""
    while True:
        try:
            data = await process.stdin.read(4096)
        except asyncssh.TerminalSizeChanged as size:
            _resize(master, size.width, size.height)
            continue
        if not data:
            return
        os.write(master, data)


def _resize(terminal: int, width: int, height: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))


async def _shown(master: int) -> AsyncIterator[bytes]:
    """Yield the terminal's output until its last user has closed it (Linux then returns EIO)."""
    loop = asyncio.get_running_loop()
    while True:
        ready = loop.create_future()
        loop.add_reader(master, ready.set_result, None)
        try:
            await ready
            data = os.read(master, 65536)
        except OSError:
            return
        finally:
            loop.remove_reader(master)
        if not data:
            return
        yield data

"""A program on this machine that exchanges lines with gpuops over its stdin and stdout."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence

from gpuops.errors import InputError

_MAX_LINE_BYTES = 64 << 20
"""Room for the figures of 16,384 nodes with 16 rails and a sentence each; more is a program that floods."""
_MAX_STDERR_BYTES = 4096
_EXIT_SECONDS = 5.0


class LineProgram:
    """Running program; every error names it and is an `InputError`. Close it, even after Ctrl-C: `close` kills it.

    It runs in a session of its own, so that Ctrl-C reaches gpuops alone, which then ends the program with all that it
    started.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.name = words[0] if words else ""
        try:
            self._process = subprocess.Popen(
                list(words),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError, IndexError) as error:
            reason = getattr(error, "strerror", None) or "not the name of a program"
            raise InputError(f'cannot start "{self.name}": {reason}') from error
        self._selector = selectors.DefaultSelector()
        pipes = (self._process.stdin, self._process.stdout, self._process.stderr)
        self._into, self._out, self._err = (pipe.fileno() for pipe in pipes if pipe is not None)
        for descriptor in (self._into, self._out, self._err):
            os.set_blocking(descriptor, False)
        self._selector.register(self._out, selectors.EVENT_READ)
        self._selector.register(self._err, selectors.EVENT_READ)
        self._unread = bytearray()
        self._last_words = b""
        self._has_ended = False

    def exchange(self, request: bytes, what: str, seconds: float) -> bytes:
        """Send ``request``, one line or nothing, and return the next line. ``what`` names that line in errors."""
        if request:
            self._refuse_early_output()
        self._transfer(request, what, seconds)
        line, _, rest = bytes(self._unread).partition(b"\n")
        self._unread = bytearray(rest)
        return line

    def finish(self, request: bytes) -> None:
        """Send the last ``request`` and wait until the program closes its stdout, 5 s at most."""
        with contextlib.suppress(InputError):  # the result is complete, however the program ends
            self._transfer(request, "nothing more", _EXIT_SECONDS, is_last=True)

    def close(self) -> None:
        """Kill the program and what it started, unless it has exited. Safe to call twice."""
        if self._process.returncode is None:  # otherwise its pid may be reused by now
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._selector.close()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _refuse_early_output(self) -> None:
        if any(key.fd == self._out for key, _ in self._selector.select(0)):
            self._read_stdout()
        if self._unread.strip():
            raise InputError(f'"{self.name}" printed more than one line for one request; print one line for each')

    def _transfer(self, request: bytes, what: str, seconds: float, *, is_last: bool = False) -> None:
        """Write ``request`` and read at the same time, until a line is there; at the end, until stdout is closed."""
        ends, unsent = time.monotonic() + seconds, memoryview(request)
        if unsent:
            self._selector.register(self._into, selectors.EVENT_WRITE)
        try:
            while is_last or unsent or b"\n" not in self._unread:
                ready = {key.fd for key, _ in self._selector.select(max(0.0, ends - time.monotonic()))}
                if not ready:
                    raise InputError(f'"{self.name}" did not print {what} within {seconds:g} s; see --timeout')
                if self._into in ready:
                    unsent = self._write(unsent)
                if self._err in ready:
                    self._read_stderr()
                if self._out in ready:
                    self._read_stdout()
                if self._has_ended and (is_last or b"\n" not in self._unread):
                    raise InputError(f'"{self.name}" ended before it printed {what}{self._final_words()}')
        finally:
            if self._into in self._selector.get_map():
                self._selector.unregister(self._into)

    def _write(self, unsent: memoryview) -> memoryview:
        try:
            unsent = unsent[os.write(self._into, unsent) :]
        except BlockingIOError:
            return unsent
        except BrokenPipeError:  # it reads no more: its stdout shows why
            unsent = memoryview(b"")
        if not unsent:
            self._selector.unregister(self._into)
        return unsent

    def _read_stdout(self) -> None:
        data = os.read(self._out, 1 << 20)
        if not data:
            self._selector.unregister(self._out)
            self._has_ended = True
        self._unread += data
        if len(self._unread) > _MAX_LINE_BYTES:
            raise InputError(f'"{self.name}" printed more than {_MAX_LINE_BYTES >> 20} MiB in one line')
        while self._unread.startswith((b"\n", b"\r\n")):
            del self._unread[: self._unread.index(b"\n") + 1]  # an empty line is not an answer

    def _read_stderr(self) -> None:
        data = os.read(self._err, 1 << 16)
        if not data:
            self._selector.unregister(self._err)
        self._last_words = (self._last_words + data)[-_MAX_STDERR_BYTES:]

    def _final_words(self) -> str:
        """Return the last line that it printed on stderr, after it closed its stdout."""
        ends = time.monotonic() + 1
        while self._err in self._selector.get_map() and self._selector.select(max(0.0, ends - time.monotonic())):
            self._read_stderr()
        lines = self._last_words.decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f": {''.join(c if c.isprintable() else '?' for c in last)}" if last else ""

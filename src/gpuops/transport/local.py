"""Transport to this machine: the same agent in a child process, without SSH."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator

from gpuops.errors import LostError
from gpuops.inventory import Host
from gpuops.transport.agent import AgentTransport
from gpuops.transport.stream import in_words

_STUCK_SECONDS = 60.0
_ENDING_SECONDS = 1.0  # from the end of its output to that of the process


class ProcessStream:
    """Child process as a `gpuops.transport.stream.Stream`; the beginning of its stderr is kept for messages."""

    def __init__(self, node: str, arguments: list[str]) -> None:
        self._node = node
        self._process = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        streams = (self._process.stdin, self._process.stdout, self._process.stderr)
        self._into, self._out, self._err = (s.fileno() for s in streams if s is not None)
        os.set_blocking(self._into, False)
        self._stderr = bytearray()
        self._lock = threading.Lock()
        self._users = 0
        self._closed = False
        self._news = select.poll()
        self._news.register(self._out, select.POLLIN)
        self._news.register(self._err, select.POLLIN)

    def write(self, data: bytes) -> None:
        """Send all of ``data``; if the child has exited, the next read reports it."""
        room = select.poll()
        room.register(self._into, select.POLLOUT)
        with self._in_use(), contextlib.suppress(BrokenPipeError):
            while data:
                if not room.poll(_STUCK_SECONDS * 1000):
                    raise LostError(self._node, f"the agent did not read its request within {_STUCK_SECONDS:g} s")
                data = data[os.write(self._into, data) :]

    def read(self, seconds: float) -> bytes:
        """Return some bytes of its stdout."""
        ends = time.monotonic() + seconds
        with self._in_use():
            while ready := {descriptor for descriptor, _ in self._news.poll(max(0, ends - time.monotonic()) * 1000)}:
                if self._err in ready and not self._read_stderr():
                    self._news.unregister(self._err)
                self._check_open()
                if self._out in ready:
                    return os.read(self._out, 65536)
        raise TimeoutError

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[None]:
        """Keep the pipes open within this context: the number of a closed one may be reused by another stream."""
        with self._lock:
            self._check_open()
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
            self._close_pipes()

    def _check_open(self) -> None:
        if self._closed:
            raise LostError(self._node, "gpuops closed the connection")

    def _close_pipes(self) -> None:
        """Close the pipes if `close` was called and no thread is reading or writing."""
        with self._lock:
            if self._closed and not self._users:
                for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
                    if stream is not None:
                        stream.close()

    def _read_stderr(self) -> bytes:
        data = os.read(self._err, 65536)
        self._stderr += data[: max(0, 65536 - len(self._stderr))]
        return data

    def errors(self) -> str:
        """Return what the child wrote to stderr, after it has exited."""
        rest = select.poll()
        rest.register(self._err, select.POLLIN)
        with self._in_use():
            while rest.poll(200) and self._read_stderr():
                pass
        return self._stderr.decode("utf-8", "replace")

    def wait(self, seconds: float) -> int:
        """Wait for the child and return its exit status."""
        return self._process.wait(seconds)

    def ending(self) -> str:
        """Return how the child ended, in words; empty if it still runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return in_words(self.wait(_ENDING_SECONDS))
        return ""

    def close(self) -> None:
        """Terminate the agent, which ends what it runs. Another thread may keep its pipes open in `read`."""
        with self._lock:
            self._closed = True
        if self._process.returncode is None:  # otherwise its pid may be reused by now
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
        self._close_pipes()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def open_local(host: Host) -> AgentTransport:
    """Return a transport to this machine under the name of ``host``."""
    return AgentTransport(
        host.name,
        lambda line: ProcessStream(host.name, ["/bin/sh", "-c", line]),
        python=host.python,
        become_password=host.become_password,
    )

"""This machine: the same agent in a child process, without SSH."""

from __future__ import annotations

import os
import select
import subprocess

from gpuops.inventory import Host
from gpuops.transport.agent import AgentTransport


class ProcessStream:
    """A child process as a `gpuops.transport.stream.Stream`; its stderr is kept for the last words."""

    def __init__(self, arguments: list[str]) -> None:
        self._process = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        streams = (self._process.stdin, self._process.stdout, self._process.stderr)
        self._into, self._out, self._err = (s.fileno() for s in streams if s is not None)
        self._said = bytearray()

    def write(self, data: bytes) -> None:
        """Send all of ``data``; a child that ended tells so at the next read."""
        try:
            while data:
                data = data[os.write(self._into, data) :]
        except BrokenPipeError:
            return

    def read(self, seconds: float) -> bytes:
        """Bytes of its stdout."""
        descriptors = [self._out, self._err]
        while True:
            ready, _, _ = select.select(descriptors, [], [], seconds)
            if not ready:
                raise TimeoutError
            if self._err in ready and not self._listen():
                descriptors.remove(self._err)
            if self._out in ready:
                return os.read(self._out, 65536)

    def _listen(self) -> bytes:
        said = os.read(self._err, 65536)
        self._said += said[: max(0, 65536 - len(self._said))]
        return said

    def last_words(self) -> str:
        """What the child said on stderr, once it ended."""
        while self._listen():
            pass
        return self._said.decode("utf-8", "replace")

    def wait(self, seconds: float) -> int:
        """Its exit status."""
        return self._process.wait(seconds)

    def close(self) -> None:
        """Hang up; the agent notices and ends what it runs."""
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None and not stream.closed:
                stream.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def open_local(host: Host) -> AgentTransport:
    """This machine under the name of ``host``."""
    return AgentTransport(
        host.name,
        lambda line: ProcessStream(["/bin/sh", "-c", line]),
        python=host.python,
        become_password=host.become_password,
    )

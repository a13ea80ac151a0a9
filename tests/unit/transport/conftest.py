import pathlib
import re

import pytest

from gpuops.transport.agent import AgentTransport
from gpuops.transport.local import ProcessStream


class ScriptedStream:
    """A node that says what a test tells it to say, chunk by chunk; ``None`` is silence, the end is the end."""

    def __init__(self, chunks):
        self.chunks = list(chunks)
        self.written = bytearray()
        self.closed = False

    def write(self, data):
        self.written += data

    def read(self, seconds):
        chunk = self.chunks.pop(0) if self.chunks else b""
        if chunk is None or seconds <= 0:
            raise TimeoutError
        return chunk

    def ending(self):
        return "ended by signal 9" if b"Killed" in self.written else ""

    def close(self):
        self.closed = True


@pytest.fixture
def scripted():
    """Opens a transport onto scripted streams, one list of chunks each; ``MARK`` stands for the transport's own."""

    def open_one(*scripts, **more):
        streams, lines = [], []

        def start(line):
            lines.append(line)
            mark = re.search(r"gpuops-[0-9a-f]{24}", line)
            own = mark[0].encode() if mark else b"MARK"
            script = scripts[len(streams)]
            streams.append(ScriptedStream([c.replace(b"MARK", own) if c else c for c in script]))
            return streams[-1]

        transport = AgentTransport("n1", start, **more)
        transport.streams, transport.lines = streams, lines
        return transport

    return open_one


@pytest.fixture
def shell_node():
    """Opens transports whose login shell is any program that takes ``-c``; ``before`` are words in front of it."""
    opened = []

    def open_one(*shell, before=(), **more):
        def start(line):
            return ProcessStream("n1", [*before, *(shell or ("/bin/sh",)), "-c", line])

        opened.append(AgentTransport("n1", start, **more))
        return opened[-1]

    yield open_one
    for transport in opened:
        transport.close()


@pytest.fixture
def no_python(tmp_path):
    """Words that run a program where no Python is found: a PATH of links to everything else that sh scripts need."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for (
        name
    ) in "sh cat ls readlink timeout sleep echo true id uname printf sha1sum base64 chmod mv rm sync env yes".split():
        for place in ("/bin", "/usr/bin"):
            if pathlib.Path(place, name).exists() and not (folder / name).exists():
                (folder / name).symlink_to(pathlib.Path(place, name))
    return ["env", f"PATH={folder}"]

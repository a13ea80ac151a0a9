"""A node that lies about sizes, packs a bomb, floods, or plants escape sequences: it takes neither memory nor time."""

import json
import subprocess
import sys
import zlib

import pytest

MEASURE = """\
import re, sys, time
from pathlib import Path
from gpuops.document import Where
from gpuops.errors import NodeError
from gpuops.inventory import Host
from gpuops.shell import Command
from gpuops.transport.connections import Connections

def mib(key):
    return int(re.search(key + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024

connections = Connections()
host = Host("n1", "n1", Where("x"), connection="local", python=sys.argv[1])
transport = connections.group().open(host)
Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts anew
before, began = mib("VmRSS"), time.monotonic()
try:
    answer = transport.run(Command(("echo", "hi")))
    said = f"answered {len(answer.out)}"
    del answer
except NodeError as error:
    said = str(error)
seconds = time.monotonic() - began
print(repr((said, round(mib("VmHWM") - before, 1), round(seconds, 2))))
connections.close()
"""
"""Prints what came of one question to a node, how much memory that took at its peak (MiB), and how long (s)."""

SENDER = """\
#!{python}
import os, sys, zlib
mark = sys.argv[-1].encode()
out = os.fdopen(1, "wb")
out.write(b"\\n" + mark + b" hello\\n")
{body}
try:
    out.flush()
except OSError:
    pass
os._exit(0)
"""

FLOODS = {
    "announces 260 MB": (r'out.write(b"\n%b 260000000\n" % mark + bytes(260_000_000))', "longer than 12 MiB"),
    "announces 12 MiB of noise": (
        r'out.write(b"\n%b 12582912\n" % mark + os.urandom(12582912))',
        "malformed",
    ),
    "a bomb of 1 GB": (
        (
            r'p = zlib.compressobj(9); b = p.compress(b"0 0.1 0 0 - 999999999 0\n")'
            "\nfor _ in range(1000): b += p.compress(bytes(1_000_000))\n"
            r'b += p.flush(); out.write(b"\n%b %d\n" % (mark, len(b)) + b)'
        ),
        "longer than 12 MiB when it is unpacked",
    ),
    "a bomb of many small outputs": (
        r'b = zlib.compress(b"0 0.1 0 0 - 1 0\nx" * 3_000_000); out.write(b"\n%b %d\n" % (mark, len(b)) + b)',
        "malformed",
    ),
    "never marks anything": ("while True: out.write(b'y' * 65536)", "more than 1 MiB"),
    "one header without an end": (
        r'b = zlib.compress(b"0" * 90_000_000); out.write(b"\n%b %d\n" % (mark, len(b)) + b)',
        "a header is too long",
    ),
    "an emoji and 7 MB": (
        (
            r't = "\U0001f4a3".encode() + b"a" * 7_000_000; b = zlib.compress(b"0 0.1 0 0 - %d 0\n" % len(t) + t)'
            "\n"
            r'out.write(b"\n%b %d\n" % (mark, len(b)) + b)'
        ),
        "answered",
    ),
}
MOST_MIB = 32
"""The 24 MiB that a node may take, and what Python's allocator and a chunk in flight add."""


@pytest.mark.sampled
@pytest.mark.parametrize("name", FLOODS)
def test_flood_takes_neither_memory_nor_time(tmp_path, name):
    body, said = FLOODS[name]
    python = tmp_path / "python"
    python.write_text(SENDER.format(python=sys.executable, body=body))
    python.chmod(0o755)
    words = [sys.executable, "-c", MEASURE, str(python)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    answer, mib, seconds = eval(done.stdout, {})
    assert said in answer
    assert mib <= MOST_MIB
    assert seconds < 20  # 5 on an idle machine


def test_node_text_with_escape_sequences_does_not_reach_the_terminal(gpuops, tmp_path):
    hostile = tmp_path / "python"
    text = b"\x1b]0;owned\x07\x1b[2J\x9b31m\xe2\x80\xaeevil\r\n"
    body = zlib.compress(b"0 0.1 0 0 - %d 0\n" % len(text) + text)
    body_line = f'out.write(b"\\n%b {len(body)}\\n" % mark + {body!r})'
    hostile.write_text(SENDER.format(python=sys.executable, body=body_line))
    hostile.chmod(0o755)
    inventory = {"all": {"hosts": {"n1": {"ansible_connection": "local", "ansible_python_interpreter": str(hostile)}}}}
    (gpuops.project / "prod.yml").write_text(json.dumps(inventory))
    done = gpuops("run", "-i", "prod.yml", "all", "--", "true")
    printed = done.stdout + done.stderr
    assert "evil" in printed
    assert not [c for c in printed if c in "\x1b\x07\x9b\u202e\r"]

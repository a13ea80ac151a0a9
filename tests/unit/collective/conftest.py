import zlib

import pytest

from gpuops.transport import agent

ECHO = """
import json, os, sys, time
def say(message):
    print(MARK, json.dumps(message), flush=True)
say({"hello": {"pid": os.getpid()}})
for line in sys.stdin:
    told = json.loads(line)
    time.sleep(told.get("sleep", 0))
    if "raise" in told:
        raise ValueError(told["raise"])
    say({"pid": os.getpid(), "echo": told})
"""


@pytest.fixture
def hosts(a_host):
    """Three names of this machine."""
    return [a_host(f"n{number}", connection="local") for number in range(3)]


@pytest.fixture
def echo(monkeypatch):
    """Makes a small script that answers what it is told the one that every worker runs."""
    packed = zlib.compress(ECHO.encode())
    programs = {"files": agent._program(*agent.AGENT), "echo": b"%d\n%b" % (len(packed), packed)}
    monkeypatch.setattr(agent, "_program", programs.get)

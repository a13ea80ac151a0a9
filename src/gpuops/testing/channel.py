"""The other end of `gpuops.operations.own_tests`: a process that runs tests, and asks gpuops to reach the hosts.

So no password and no connection is ever in the process that runs the tests. Every message is one line of JSON; the
lines to gpuops begin with a random mark, because tests may print.
"""

from __future__ import annotations

import base64
import itertools
import json
import pickle
import time
from collections.abc import Sequence
from typing import Any, BinaryIO

from gpuops.errors import LostError, NodeError
from gpuops.profile import Profile
from gpuops.shell import Command, Completed, Question
from gpuops.testing.reach import COMMAND_SECONDS


class Channel:
    """Two pipes to gpuops; implements `gpuops.testing.reach.Reach`. ``ends`` is when the current test has to end."""

    def __init__(self, mark: str, into: BinaryIO, out: BinaryIO) -> None:
        self._mark = mark.encode()
        self._into = into
        self._out = out
        self._numbers = itertools.count(1)
        self.request: dict[str, Any] = self._receive()
        self.hosts: dict[str, str] = self.request["hosts"]
        self.ends = 0.0

    @property
    def seconds(self) -> float:
        """What is left of the current test's time: a command that hangs ends before its test."""
        left = self.ends - time.monotonic() if self.ends else COMMAND_SECONDS
        return max(1.0, left)

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""
        self._out.write(b"%b %b\n" % (self._mark, json.dumps(message).encode()))
        self._out.flush()

    def _receive(self) -> dict[str, Any]:
        line = self._into.readline()
        if not line:
            raise LostError("pytest", "the process that started the tests has ended")
        message: dict[str, Any] = json.loads(line)
        return message

    def names(self, pattern: str, inventory: str) -> list[str]:  # noqa: ARG002 - there is only the one of gpuops
        """Return the host called ``pattern``, if gpuops validates it."""
        if pattern not in self.hosts:
            raise NodeError(pattern, "this run of gpuops validate does not reach this host")
        return [pattern]

    def ask(self, name: str, inventory: str, questions: Sequence[Question]) -> list[Completed]:  # noqa: ARG002
        """Let gpuops ask the host; a reply to an earlier question, which a timeout left behind, is dropped."""
        number = next(self._numbers)
        self.send({"ask": name, "id": number, "questions": [_asked(question) for question in questions]})
        reply = next(reply for reply in iter(self._receive, None) if reply["id"] == number)
        if "error" in reply:
            raise NodeError(name, reply["error"], reply["kind"])
        return [Completed(name, q, **answer) for q, answer in zip(questions, reply["answers"], strict=True)]

    def profile(self, name: str, inventory: str) -> Profile:  # noqa: ARG002
        """Return the profile under which gpuops judges the host."""
        profile: Profile = pickle.loads(base64.b64decode(self.hosts[name]))  # noqa: S301 - gpuops itself pickled it
        return profile

    def close(self) -> None:
        """Leave the connections alone: they belong to gpuops."""


def _asked(question: Question) -> dict[str, Any]:
    fields = {name: getattr(question, name) for name in question.__dataclass_fields__}
    return {"kind": "command" if isinstance(question, Command) else "files", **fields}

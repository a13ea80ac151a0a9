"""Runs a project's tests in one process of pytest, which asks this one to reach the hosts; see `gpuops.testing`.

pytest has state of its own, catches Ctrl-C and takes the main thread, so it stays out of this process. Passwords and
connections stay in it.
"""

from __future__ import annotations

import base64
import importlib.util
import pickle
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from gpuops.errors import EndedError, GpuopsError, LostError, NodeError
from gpuops.facts import Facts
from gpuops.interpreter import calling_main
from gpuops.inventory import Host
from gpuops.judging import Check
from gpuops.judging.finding import Verdict
from gpuops.judging.own_outcomes import FileOutcome, TestOutcome, TestsRun, judge_tests
from gpuops.judging.own_tests import is_own_test
from gpuops.operations.health import profiles_of
from gpuops.shell import Command, Completed, Files, Question
from gpuops.transport.agent import AgentTransport
from gpuops.transport.connections import TransportGroup
from gpuops.transport.local import ProcessStream
from gpuops.transport.marked import MarkedStream
from gpuops.transport.worker import Worker
from gpuops.workspace import Workspace

TEST_SECONDS = 60.0
"""How long a test may take, if it has no mark ``timeout``."""
_START_SECONDS = 120.0  # imports and collection; files of users may do a lot
_SLACK_SECONDS = 30.0  # after the deadline of a test, for a transport that gives up later, and for pytest itself
_MOST_OPEN = 16  # connections; tests go from host to host
_MISSING = "pytest-testinfra is not installed beside gpuops; pip install 'gpuops[testinfra]'"


def run_tests(work: Workspace, checks: Sequence[Check], facts: Mapping[str, Facts]) -> tuple[list[Verdict], bool]:
    """Return a verdict for each test among ``checks`` and each node with facts, and whether Ctrl-C ended the tests."""
    tests = [check for check in checks if is_own_test(check)]
    if not tests or not facts or work.nodes.source == "saved":
        return [], False
    run = _run(work, tests, facts) if _is_installed() else TestsRun(missing=_MISSING, none_ran=True)
    return judge_tests(tests, facts, run), run.interrupted


def _is_installed() -> bool:
    return all(importlib.util.find_spec(name) for name in ("pytest", "testinfra"))


def _run(work: Workspace, tests: Sequence[Check], facts: Mapping[str, Facts]) -> TestsRun:
    hosts = [host for host in work.hosts if host.name in facts]
    with work.nodes.connections.group(work.nodes.cancel) as group:
        session = _Session(work, hosts, group)
        try:
            with work.nodes.cancel.calling(session.close):
                return session.run(_request(work, tests, facts, hosts))
        except KeyboardInterrupt:
            return session.ended("interrupted", interrupted=True)
        finally:
            session.close()


def _request(
    work: Workspace, tests: Sequence[Check], facts: Mapping[str, Facts], hosts: Sequence[Host]
) -> dict[str, Any]:
    """Return what the child needs to know; nothing in it is secret, because a `Secret` cannot be pickled."""
    profiles = profiles_of(hosts, facts, work.catalogue)
    folder = tests[0].path.absolute().parent
    return {
        "project": str(folder.parent),
        "folder": str(folder),
        "files": sorted({check.path.name for check in tests}),
        "checks": [check.name for check in tests],
        "hosts": {host.name: base64.b64encode(pickle.dumps(profiles[host.name])).decode() for host in hosts},
        "seconds": TEST_SECONDS,
    }


class _Session:
    """One child, the connections that it uses, and what it has said."""

    def __init__(self, work: Workspace, hosts: Sequence[Host], group: TransportGroup) -> None:
        self._work = work
        self._hosts = {host.name: host for host in hosts}
        self._group = group
        self._open: dict[str, AgentTransport] = {}
        self._lost: dict[str, NodeError] = {}
        self._tests: list[TestOutcome] = []
        self._files: list[FileOutcome] = []
        self._running = ""
        mark = f"gpuops-{secrets.token_hex(12)}"
        self._stream = ProcessStream("pytest", [*calling_main("gpuops.testing.child"), mark])
        self._child = Worker(MarkedStream("pytest", self._stream, mark), {})

    def close(self) -> None:
        """End the child and what it started."""
        self._child.close()

    def run(self, request: Mapping[str, Any]) -> TestsRun:
        """Serve the child until it has run every test, ends, or is silent for longer than its test may take."""
        patience, ends = _START_SECONDS, time.monotonic() + self._work.nodes.total_timeout
        try:
            self._child.send(request)
            while "end" not in (said := self._child.receive(min(patience, max(0.0, ends - time.monotonic())))):
                patience = self._handle(said) or patience
        except TimeoutError:
            return self.ended(f"pytest was ended, because {self._running or 'it'} did not end in time")
        except EndedError as error:
            return self.ended(f"{error.what}{self._last_words()}")
        except LostError as error:
            return self.ended(error.what, interrupted=self._work.nodes.cancel.cancelled)
        return self._complete(int(said["end"]))

    def _complete(self, status: int) -> TestsRun:
        if status in (0, 1, 5):  # all was well, tests failed, no test was there
            return TestsRun(self._tests, self._files)
        return self.ended(f"pytest ended with status {status}{self._last_words()}")

    def ended(self, why: str, *, interrupted: bool = False) -> TestsRun:
        """Return what was learned until the child ended too early."""
        return TestsRun(self._tests, self._files, why, not self._tests, interrupted)

    def _last_words(self) -> str:
        with suppress(LostError):
            lines = self._stream.errors().strip().splitlines()
            return f": {lines[-1].removeprefix('E').strip()[:300]}" if lines else ""
        return ""

    def _handle(self, said: Mapping[str, Any]) -> float | None:
        """Do what the child said; return the seconds until the next one must be there, if it says so."""
        if "ask" in said:
            self._child.send({"id": said["id"], **self._answer(said["ask"], said["questions"])})
        elif "test" in said:
            self._tests.append(TestOutcome(**said["test"]))
        elif "file" in said:
            self._files.append(FileOutcome(**said))
        elif "begin" in said:
            self._running = f"{said['begin']} on {said['node']}" if said["node"] else said["begin"]
            self._work.nodes.activity(f"testing {self._running}")
            return float(said["seconds"]) + _SLACK_SECONDS
        return None

    def _answer(self, name: str, questions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the answers of a host as a message, or the error; a host that was lost is not asked again."""
        asked = [_question(question) for question in questions]
        try:
            if name in self._lost:
                raise self._lost[name]
            answers = self._transport(name).batch(asked)
        except GpuopsError as error:
            if isinstance(error, NodeError) and error.kind != "become":
                self._lost[name] = error
            what = error.what if isinstance(error, NodeError) else str(error)
            return {"error": what, "kind": error.kind if isinstance(error, NodeError) else None}
        return {"answers": [_plain(answer) for answer in answers]}

    def _transport(self, name: str) -> AgentTransport:
        if name not in self._open:
            while len(self._open) >= _MOST_OPEN:
                self._open.pop(next(iter(self._open))).close()
            self._open[name] = self._group.open(self._hosts[name])
        return self._open[name]


def _question(document: Mapping[str, Any]) -> Question:
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in document.items()
    }
    return Command(**fields) if fields.pop("kind") == "command" else Files(**fields)


def _plain(answer: Completed) -> dict[str, Any]:
    return {name: getattr(answer, name) for name in answer.__dataclass_fields__ if name not in ("node", "question")}

"""Plugin of the process that runs tests: it chooses and orders them, limits their time, and sends what becomes of each.

One message for each test, when its teardown is over, and one for each file that pytest cannot collect.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import testinfra.modules

from gpuops.errors import GpuopsError, NodeError
from gpuops.judging.own_outcomes import Ending, TestOutcome
from gpuops.judging.own_tests import name_of
from gpuops.testing.channel import Channel

_LONGEST_TEXT = 400
_AGAIN_SECONDS = 5.0  # a test that catches every exception gets it again
_DEEPER = " +   "  # pytest indents " +  where" by two more for each level
_MODULES = Path(testinfra.modules.__file__).parent


class OvertimeError(BaseException):
    """The test's time is up; not an Exception, because tests catch these."""


class Recorder:
    """Sends the outcome of each test through ``channel``."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._folder = Path(channel.request["folder"])
        self._checks = frozenset(channel.request["checks"])
        self._cases: Counter[tuple[str, str]] = Counter()
        self._endings: dict[str, list[tuple[Ending, str, str]]] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the tests of the chosen checks, one host after another, so that few connections are open at a time."""
        order = {name: number for number, name in enumerate(self._channel.hosts)}
        items[:] = sorted(
            (item for item in items if _check(item) in self._checks), key=lambda item: order.get(_host(item), -1)
        )
        self._cases.update((_host(item), _check(item)) for item in items)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, Any]:
        """Send why a file cannot be collected, or skips itself."""
        report = yield
        if not report.passed:
            excinfo = report.call.excinfo
            skips = isinstance(excinfo.value, pytest.skip.Exception)
            why = str(excinfo.value.msg) if skips else _last_line(str(excinfo.value) or excinfo.typename)
            path = Path(collector.path)
            why = why if skips else f"{_short(path, self._folder)}: cannot be collected: {why}"
            self._channel.send({"file": path.name, "ending": "skipped" if skips else "error", "why": why})
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Announce a test before it runs, and send its outcome afterwards."""
        self._channel.send({"begin": _check(item), "node": _host(item), "seconds": self._seconds(item)})
        self._endings[item.nodeid] = []
        result = yield
        ending, why, where = _worst(self._endings.pop(item.nodeid))
        place = (_host(item), _check(item))
        outcome = TestOutcome(place[1], place[0], ending, why, where, _case(item), self._cases[place])
        self._channel.send({"test": outcome.__dict__})
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Limit the time of fixtures."""
        with self._limited(item):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Limit the time of the test."""
        with self._limited(item):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Limit the time in which fixtures end."""
        with self._limited(item):
            return (yield)

    @contextmanager
    def _limited(self, item: pytest.Item) -> Iterator[None]:
        seconds = self._seconds(item)

        def end(_signal: int, _frame: FrameType | None) -> None:
            raise OvertimeError(f"the test did not end in {seconds:g} s")

        self._channel.ends = time.monotonic() + seconds
        before = signal.signal(signal.SIGALRM, end)
        signal.setitimer(signal.ITIMER_REAL, seconds + 1, _AGAIN_SECONDS)  # a command's deadline comes first
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def _seconds(self, item: pytest.Item) -> float:
        mark = item.get_closest_marker("timeout")
        return float(mark.args[0]) if mark and mark.args else float(self._channel.request["seconds"])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        """Note how each phase of a test ended."""
        report = yield
        self._endings[item.nodeid].append(self._ending(report, call))
        return report

    def _ending(self, report: pytest.TestReport, call: pytest.CallInfo[None]) -> tuple[Ending, str, str]:
        if report.passed:
            return "passed", "", ""
        excinfo = call.excinfo
        if report.skipped:
            expected = f"expected to fail: {report.wasxfail}" if hasattr(report, "wasxfail") else ""
            return "skipped", expected or _text(getattr(excinfo and excinfo.value, "msg", "")), ""
        if excinfo is None:  # strict xfail, or a failure of a subtest
            return "failed", _text(str(report.longrepr)), self._where(report, ())
        ending: Ending = "failed" if report.when == "call" and _is_assertion(excinfo) else "error"
        return ending, _why(excinfo), self._where(report, excinfo.traceback)

    def _where(self, report: pytest.TestReport, frames: Sequence[Any]) -> str:
        """Return the last line of the user's own in a traceback, else that of the test."""
        own = [(f.path, f.lineno + 1) for f in frames if Path(f.path).is_relative_to(self._folder)]
        path, line = own[-1] if own else (Path(report.fspath), (report.location[1] or 0) + 1)
        return f"{_short(Path(path), self._folder)}:{line}"


def _is_assertion(excinfo: pytest.ExceptionInfo[BaseException]) -> bool:
    """Return True for what a test asserts; what testinfra's modules assert about their own commands is an error."""
    if not isinstance(excinfo.value, (AssertionError, pytest.fail.Exception)):
        return False
    return not any(_MODULES in Path(frame.path).parents for frame in excinfo.traceback)


def _why(excinfo: pytest.ExceptionInfo[BaseException]) -> str:
    error = excinfo.value
    if isinstance(error, NodeError):
        return _text(error.what)
    if isinstance(error, (GpuopsError, OvertimeError)):
        return _text(str(error))
    if isinstance(error, AssertionError):
        return _text(_short_assertion(str(error)) or excinfo.typename)
    return _text(excinfo.exconly())


def _short_assertion(text: str) -> str:
    """Return what was asserted and the value that it has, without pytest's lines on where the parts of that are from.

    Those name objects of testinfra and the host, so that the same failure would read differently on every node.
    """
    return "\n".join(line for line in text.splitlines() if not line.startswith(_DEEPER))


def _worst(endings: Sequence[tuple[Ending, str, str]]) -> tuple[Ending, str, str]:
    """Return the phase that decides: a failure, else an error, else a skip."""
    order: tuple[Ending, ...] = ("failed", "error", "skipped", "passed")
    missing: tuple[Ending, str, str] = ("error", "pytest ended in the middle of the test", "")
    return min(endings, key=lambda ending: order.index(ending[0]), default=missing)


def _check(item: pytest.Item) -> str:
    _, *classes, _ = item.nodeid.split("[")[0].split("::")
    return name_of(item.path.name, *classes, getattr(item, "originalname", "") or item.name)


def _host(item: pytest.Item) -> str:
    params = getattr(getattr(item, "callspec", None), "params", {})
    host = params.get("_testinfra_host")
    return str(host.backend.hostname) if host else ""


def _case(item: pytest.Item) -> str:
    """Return the id of the parameters, without that of the host."""
    callspec = getattr(item, "callspec", None)
    params = getattr(callspec, "params", {})
    host = params["_testinfra_host"].backend.get_pytest_id() if "_testinfra_host" in params else ""
    return str(callspec.id).replace(host, "", 1).strip("-") if callspec else ""


def _short(path: Path, folder: Path) -> str:
    """Return the path as from the project."""
    return str(path.relative_to(folder.parent)) if path.is_relative_to(folder.parent) else str(path)


def _text(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_TEXT else f"{line[:_LONGEST_TEXT]} …"


def _last_line(text: str) -> str:
    lines = [line.removeprefix("E").strip() for line in text.splitlines() if line.strip()]
    return _text(lines[-1]) if lines else ""

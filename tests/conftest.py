import collections
import os
import pathlib
import signal
import subprocess
import sys

import hypothesis
import pytest

from gpuops import secret
from gpuops.document import Where
from gpuops.inventory import Host
from gpuops.transport import known_hosts, settings, ssh
from gpuops.transport.connections import Connections

CI = os.environ.get("GPUOPS_CI") == "1"
DAY = os.environ.get("GPUOPS_A_THIRD", "")
"""The day of the year, if there is no time for all long and sampled tests: every third file of them runs, the others on
the next two days."""
hypothesis.settings.register_profile(
    "gpuops",
    deadline=None,  # a busy machine is not a fault
    max_examples=100 if CI else 25,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture],
)
hypothesis.settings.load_profile("gpuops")
REAL = pathlib.Path(__file__).parent / "real"
LONG = ("long", "sampled")
# Ends the labs of a test run that was killed: their hosts go once the files of a lab do.
SWEEPER = """
import pathlib, sys
folder = pathlib.Path(sys.argv[1])
if sys.stdin.read() != "done":
    for key in folder.rglob("lab/id_ed25519"):
        key.unlink(missing_ok=True)
"""


class NoSkips:
    """With GPUOPS_CI=1 a skipped test makes the run fail, and is named; unless no package of the system helps it."""

    def __init__(self):
        self.skipped = []

    def _note(self, report):
        if report.skipped and not hasattr(report, "wasxfail"):
            why = report.longrepr[2] if report.longrepr else "skipped"
            if not why.startswith("Skipped: optional: "):
                self.skipped.append(f"{report.nodeid}: {why}")

    pytest_runtest_logreport = pytest_collectreport = _note

    def pytest_sessionfinish(self, session):
        if self.skipped:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        for line in self.skipped:
            terminalreporter.write_line(f"skipped, which GPUOPS_CI=1 forbids: {line}", red=True)


def pytest_configure(config):
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a background job of a shell; tests press Ctrl-C
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if CI:
        config.pluginmanager.register(NoSkips())


@pytest.fixture(autouse=True)
def user_state(tmp_path, monkeypatch):
    """Where the store of hosts without a project is: never the tester's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "user-state"))
    return tmp_path / "user-state" / "gpuops"


def pytest_collection_modifyitems(config, items):
    for item in items:
        if item.get_closest_marker("root") and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason=f"only root can {item.get_closest_marker('root').args[0]}"))
    if not CI and not config.option.markexpr:
        leave_out(config, items)
    if DAY:
        leave_for_other_days(config, items, int(DAY))


def leave_out(config, items):
    """Leave out what takes minutes, and four of five cases of a sampled test, unless its file is asked for."""
    asked = {pathlib.Path(word.partition("::")[0]).resolve() for word in config.args}
    cases = collections.Counter()
    chosen, left_out = [], []
    for item in items:
        test = (item.path, getattr(item, "originalname", item.name))
        is_spare = bool(item.get_closest_marker("sampled")) and cases[test] % 5 > 0
        cases[test] += 1
        is_long = bool(item.get_closest_marker("long"))
        (left_out if (is_long or is_spare) and item.path not in asked else chosen).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = chosen


def leave_for_other_days(config, items, day):
    """Leave out two of three files of the tests that take long; which ones, the day decides."""
    long = [item for item in items if REAL in item.path.parents or any(map(item.get_closest_marker, LONG))]
    today = set(sorted({item.path for item in long})[day % 3 :: 3])
    left_out = [item for item in long if item.path not in today]
    config.hook.pytest_deselected(items=left_out)
    kept = set(items).difference(left_out)
    items[:] = [item for item in items if item in kept]


@pytest.fixture(scope="session", autouse=True)
def _labs_end_with_the_tests(tmp_path_factory):
    """However these tests end, also by SIGKILL: no lab that they started outlives them."""
    words = [sys.executable, "-c", SWEEPER, str(tmp_path_factory.getbasetemp())]
    sweeper = subprocess.Popen(words, stdin=subprocess.PIPE, text=True, start_new_session=True)
    yield
    sweeper.communicate("done")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder of the test's own: no SSH configuration, no key, no agent."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / ".ssh").mkdir(mode=0o700)
    for cached in (known_hosts.load, settings._config, settings._unsupported, ssh._load_key):
        cached.cache_clear()  # they know a file by its name under ~
    return tmp_path


@pytest.fixture
def a_host():
    """A host of an inventory, from its name and what differs from the defaults."""
    return lambda name="n1", **fields: Host(name, fields.pop("address", name), Where("inventory.yml", 1, 1), **fields)


@pytest.fixture
def connections():
    """Connections of a test's own, closed at the end."""
    connections = Connections()
    yield connections
    connections.close()


@pytest.fixture
def opener(connections):
    """A group of them."""
    return connections.group()


@pytest.fixture
def ctrl_c():
    """Presses Ctrl-C in some seconds, for the main thread."""

    def press(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, press)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def _no_secrets_of_other_tests():
    """A password of one test, or of a file of tests, must not be masked in another's output."""
    secret._masked = frozenset()
    yield
    secret._masked = frozenset()


@pytest.fixture(autouse=True)
def _signals_as_before():
    """The program ignores Ctrl-C at its end, also where a test calls it here; the next test may press it."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)

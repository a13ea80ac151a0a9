import os
import signal

import pytest

from gpuops import secret
from gpuops.document import Where
from gpuops.inventory import Host
from gpuops.transport import known_hosts, settings, ssh
from gpuops.transport.connections import Connections


class NoSkips:
    """With GPUOPS_CI=1 nothing may be passed over: a skipped test makes the run fail, and is named."""

    def __init__(self):
        self.skipped = []

    def _note(self, report):
        if report.skipped and not hasattr(report, "wasxfail"):
            self.skipped.append(f"{report.nodeid}: {report.longrepr[2] if report.longrepr else 'skipped'}")

    pytest_runtest_logreport = pytest_collectreport = _note

    def pytest_sessionfinish(self, session):
        if self.skipped:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        for line in self.skipped:
            terminalreporter.write_line(f"skipped, which GPUOPS_CI=1 forbids: {line}", red=True)


def pytest_configure(config):
    if os.environ.get("GPUOPS_CI") == "1":
        config.pluginmanager.register(NoSkips())


@pytest.fixture(autouse=True)
def user_state(tmp_path, monkeypatch):
    """Where the store of hosts without a project is: never the tester's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "user-state"))
    return tmp_path / "user-state" / "gpuops"


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
    """A password of one test must not be masked in another's output."""
    yield
    secret._masked = frozenset()

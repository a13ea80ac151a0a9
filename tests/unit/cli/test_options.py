"""The options of verbs: what a word means, how many files may be open, and a cluster that hangs up in the end."""

import resource
import socket

import click
import pytest
from click.testing import CliRunner

from gpuops.cli import program
from gpuops.cli._common.asking import seconds_of
from gpuops.cli._common.options import Hosts, allow_files
from gpuops.cluster import Cluster
from gpuops.errors import ClosedError, PatternError
from gpuops.transport.connections import Connections


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "fits"),
    [
        (1024, 4096, None, 100),
        (256, 4096, 464, 100),
        (256, resource.RLIM_INFINITY, 464, 100),
        (256, 300, 300, 59),
        (256, 256, 256, 48),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None, 100),
    ],
)
def test_the_limit_of_open_files_is_raised_as_far_as_it_may_be(monkeypatch, soft, hard, raised, fits):
    limits, events = [(soft, hard)], []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, limit: limits.append(limit))
    allow_files(100)
    with Cluster.of([], events=events.append) as cluster:
        assert cluster._nodes.fitting(100) == fits
    assert limits[1:] == ([] if raised is None else [(raised, hard)])
    assert any("nodes instead of 100 are queried at a time" in event.text for event in events) == (fits < 100)


@pytest.mark.parametrize("words", [("ping",), ("run", "all", "--", "true")])
def test_a_command_closes_its_connections_when_it_ends(home, monkeypatch, words):
    monkeypatch.chdir(home)
    (home / "hosts.yml").write_text("all: {hosts: {n1: {ansible_connection: local}}}\n")
    made = []
    monkeypatch.setattr("gpuops.calls.Connections", lambda seconds: made.append(Connections(seconds)) or made[-1])
    result = CliRunner().invoke(program, [words[0], "-i", "hosts.yml", *words[1:]], standalone_mode=False)
    assert result.return_value == 0, result.output
    (own,) = made
    with pytest.raises(ClosedError):
        own.group()


@pytest.mark.parametrize(("pattern", "code"), [("n1", 0), ("n2", 2), ("all", 2)])
def test_unusable_host_is_refused_only_if_the_pattern_selects_it(home, monkeypatch, pattern, code):
    monkeypatch.chdir(home)
    (home / "h.yml").write_text("all: {hosts: {n1: {ansible_connection: local}, n2: {ansible_connection: docker}}}\n")
    done = CliRunner().invoke(program, ["ping", pattern, "-i", "h.yml"], standalone_mode=False)
    assert (done.exception.exit_code if done.exception else done.return_value) == code


def test_connections_are_closed_where_a_verb_fails(home, monkeypatch):
    monkeypatch.chdir(home)
    (home / "hosts.yml").write_text("all: {hosts: {n1: {ansible_connection: local}}}\n")
    hosts = Hosts("hosts.yml", None, 2, 3.0).cluster()
    cluster = hosts.__enter__()
    assert (cluster._nodes.forks, cluster._nodes.connections.connect_seconds) == (2, 3.0)
    assert not hosts.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    with pytest.raises(ClosedError):
        cluster.ping()


def test_without_an_inventory_this_machine_is_meant_and_no_pattern(home, monkeypatch):
    monkeypatch.chdir(home)
    monkeypatch.delenv("GPUOPS_INVENTORY", raising=False)
    with Hosts(None, None, None, 1.0).cluster() as cluster:
        assert [host.connection for host in cluster.hosts] == ["local"]
        with pytest.raises(PatternError, match="needs an inventory: -i FILE"):
            cluster.only("h100")
    with (
        pytest.raises(PatternError, match="no inventory given; pass -i FILE"),
        Hosts(None, "h100", None, 1.0).cluster(),
    ):
        pass


@pytest.mark.parametrize(
    "words",
    [
        ("run", "all", "--", "true"),
        ("drain", "all", "--reason", "x"),
        ("trust", "all"),
        ("fix", "clock", "all"),
        ("onboard", "all"),
        ("admit", "all"),
        ("state", "set", "all", "repair", "--reason", "x"),
        ("provision", "tuning"),
        ("provision", "tuning", "--check"),
    ],
)
def test_this_machine_is_never_changed_unless_it_is_named(home, monkeypatch, words):
    monkeypatch.chdir(home)
    monkeypatch.delenv("GPUOPS_INVENTORY", raising=False)
    done = CliRunner().invoke(program, words, standalone_mode=False)
    assert str(done.exception) == (
        "no inventory given; pass -i FILE, or set `inventory:` in gpuops.yml, or --local for this machine"
    )
    assert done.exception.exit_code == 2


@pytest.mark.parametrize("named", [("--local",), ("-i", "localhost"), ("-i", "127.0.0.1"), ("-i", "::1")])
@pytest.mark.parametrize("pattern", ["all", "localhost", socket.gethostname()])
def test_this_machine_can_be_named(home, monkeypatch, named, pattern):
    monkeypatch.chdir(home)
    done = CliRunner().invoke(program, ["run", pattern, *named, "--", "echo it is here"], standalone_mode=False)
    assert (done.exception, done.return_value) == (None, 0)
    assert "it is here" in done.stdout


def test_local_and_an_inventory_exclude_each_other(home, monkeypatch):
    monkeypatch.chdir(home)
    done = CliRunner().invoke(program, ["ping", "--local", "-i", "a,b"])
    assert done.exit_code == 2
    assert "--local and --inventory exclude each other" in done.stderr


def test_an_inventory_of_the_environment_is_a_path_from_here(home, monkeypatch):
    (home / "gpuops.yml").write_text("inventory: none.yml\n")
    (home / "inside").mkdir()
    (home / "inside" / "hosts.yml").write_text("all: {hosts: {n7: {}}}\n")
    monkeypatch.chdir(home / "inside")
    monkeypatch.setenv("GPUOPS_INVENTORY", "hosts.yml")
    with Hosts(None, None, None, 1.0).cluster() as cluster:
        assert [host.name for host in cluster.hosts] == ["n7"]
    assert "n7" in CliRunner().invoke(program, ["inventory", "graph"]).output


@pytest.mark.parametrize(("text", "seconds"), [("30m", 1800), ("90s", 90), ("2h", 7200), ("45", 45), ("1.5m", 90)])
def test_a_time_is_read_as_people_write_it(text, seconds):
    assert seconds_of(None, None, text) == seconds


@pytest.mark.parametrize("text", ["", "m", "-3m", "30 minutes", "1e9", "0", "0.0h"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(click.BadParameter):
        seconds_of(None, None, text)

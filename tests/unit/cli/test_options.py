import resource

import pytest
from click.testing import CliRunner

from gpuops.cli import program
from gpuops.cli._options import fitting_fanout
from gpuops.errors import ClosedError
from gpuops.transport import connections
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
def test_the_limit_of_open_files_is_raised_as_far_as_it_may_be(monkeypatch, capsys, soft, hard, raised, fits):
    limits = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limit: limits.append(limit))
    assert fitting_fanout(100) == fits
    assert limits == ([] if raised is None else [(raised, hard)])
    said = capsys.readouterr().err
    assert ("nodes are asked at a time instead of 100" in said) == (fits < 100)


@pytest.mark.parametrize("words", [("ping",), ("run", "all", "--", "true")])
def test_a_command_closes_its_connections_when_it_ends(home, monkeypatch, words):
    monkeypatch.chdir(home)
    (home / "hosts.yml").write_text("all: {hosts: {n1: {ansible_connection: local}}}\n")
    made = []
    monkeypatch.setattr(connections, "Connections", lambda seconds: made.append(Connections(seconds)) or made[-1])
    result = CliRunner().invoke(program, [words[0], "-i", "hosts.yml", *words[1:]], standalone_mode=False)
    assert result.return_value == 0, result.output
    (own,) = made
    with pytest.raises(ClosedError):
        own.group()

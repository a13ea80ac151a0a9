import pathlib

import pytest

from gpuops.errors import NodeError
from gpuops.transport import openssh
from gpuops.transport.openssh import OpensshStream, arguments, explain
from gpuops.transport.settings import resolve


@pytest.mark.parametrize(
    ("said", "kind", "what"),
    [
        ("No ED25519 host key is known for n1.\nHost key verification failed.\n", "HostKeyError", "gpuops trust n1"),
        ("Warning: x\nme@n1: Permission denied (publickey).\n", "AuthenticationError", "Permission denied (publickey)"),
        ("ssh: connect to host n1 port 22: Connection refused\n", "ConnectError", "connect to host n1 port 22"),
        ("", "ConnectError", "failed without a message"),
    ],
)
def test_the_last_line_of_ssh_becomes_an_error_of_ours(said, kind, what):
    error = explain("n1", said)
    assert type(error).__name__ == kind
    assert isinstance(error, NodeError)
    assert what in str(error)


def test_the_systems_ssh_is_told_what_the_inventory_says_and_never_to_wave_keys_through(home, a_host):
    host = a_host(
        address="192.0.2.1", port=2222, user="me", key_file="/k", jump="b", ssh_args=("-o", "StrictHostKeyChecking=no")
    )
    words = arguments(host, resolve(host), "/run/socket-%C")
    for pair in (("-p", "2222"), ("-l", "me"), ("-i", "/k"), ("-J", "b"), ("--", "192.0.2.1")):
        at = words.index(pair[0])
        assert words[at : at + 2] == list(pair)
    assert words.index("StrictHostKeyChecking=yes") < words.index("StrictHostKeyChecking=no")
    assert "ForwardAgent=no" in words
    assert "BatchMode=yes" in words
    assert "ControlPath=/run/socket-%C" in words


@pytest.mark.parametrize(
    ("status", "ending"), [(255, "ended by a signal"), (3, "ended with status 3"), (0, "ended with status 0")]
)
def test_ssh_without_a_message_reports_how_the_command_ended(status, ending):
    stream = OpensshStream("n1", ["sh", "-c", f"exit {status}"])
    assert stream.read(5) == b""
    assert stream.ending() == ending
    stream.close()


def test_a_failing_ssh_is_a_nodes_error(home):
    stream = OpensshStream("n1", ["sh", "-c", "echo 'ssh: Could not resolve hostname n1: Name unknown' >&2; exit 255"])
    with pytest.raises(NodeError, match="n1: Could not resolve hostname"):
        stream.read(5)
    stream.close()


class TestControlMasters:
    @pytest.fixture
    def exits(self, home, tmp_path, monkeypatch):
        """An ssh that notes which sockets it is told to end; gives the list."""
        (tmp_path / "bin").mkdir()
        ssh = tmp_path / "bin" / "ssh"
        ssh.write_text(f'#!/bin/sh\ncase "$*" in *"-O exit"*) echo "$4" >>{tmp_path}/exits; rm -f "${{4#*=}}";; esac\n')
        ssh.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
        monkeypatch.setattr(openssh, "_control_folder", lambda: tmp_path)
        return lambda: (tmp_path / "exits").read_text().splitlines() if (tmp_path / "exits").exists() else []

    def sockets(self, connections, host, *names):
        connections.group().open(host)
        made = [connections.masters.path.replace("%C", name) for name in names]
        for path in made:
            pathlib.Path(path).touch()
        return [f"ControlPath={path}" for path in made]

    def test_closing_ends_the_masters_that_were_started_for_it_and_no_others(self, exits, a_host, connections):
        host = a_host(connection="openssh")
        mine = self.sockets(connections, host, "one", "two")
        other = type(connections)()
        others = self.sockets(other, host, "one")
        connections.close()
        assert sorted(exits()) == mine
        connections.close()
        other.close()
        assert sorted(exits()) == sorted(mine + others)

    def test_a_group_leaves_them_to_the_groups_after_it(self, exits, a_host, connections):
        self.sockets(connections, a_host(connection="openssh"), "one")
        for group in connections._groups.copy():
            group.close()
        assert exits() == []
        assert len(connections.masters.sockets()) == 1

    def test_an_ssh_that_hangs_or_is_gone_does_not_keep_us(self, exits, a_host, connections, tmp_path, monkeypatch):
        self.sockets(connections, a_host(connection="openssh"), "one")
        monkeypatch.setattr(openssh, "_EXIT_SECONDS", 0.3)
        (tmp_path / "bin" / "ssh").write_text("#!/bin/sh\nexec sleep 30\n")
        connections.close()
        (tmp_path / "bin" / "ssh").unlink()
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        connections.close()

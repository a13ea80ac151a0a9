import shutil
import subprocess

import pytest

from gpuops.errors import NodeError
from gpuops.transport import openssh
from gpuops.transport.openssh import ControlMasters, OpensshStream, arguments, explain
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


@pytest.fixture
def masters():
    owner = ControlMasters()
    yield owner
    owner.remove()


def test_ssh_gets_the_settings_of_the_inventory_after_gpuops_own(home, a_host, masters):
    more = ("-o", "StrictHostKeyChecking=" + "no")
    host = a_host(address="192.0.2.1", port=2222, user="me", key_file="/k", jump="b", ssh_args=more)
    words = arguments(host, resolve(host), masters)
    for pair in (("-p", "2222"), ("-l", "me"), ("-i", "/k"), ("-J", "b"), ("--", "192.0.2.1")):
        at = words.index(pair[0])
        assert words[at : at + 2] == list(pair)
    assert words.index("StrictHostKeyChecking=yes") < words.index(more[1])


def effective(path, *words):
    """What ssh itself makes of a configuration after ours: its ``-G`` output as a dict."""
    done = subprocess.run(
        ["ssh", "-F", path, *words, "-G", "localhost"], capture_output=True, text=True, check=True
    ).stdout
    return dict(line.partition(" ")[::2] for line in done.splitlines())


@pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh on this machine")
def test_ssh_ignores_unsafe_options_of_a_configuration(tmp_path, masters):
    unsafe = {
        "StrictHostKeyChecking": "no",
        "NoHostAuthenticationForLocalhost": "yes",
        "KnownHostsCommand": "/bin/echo x",
        "ForwardAgent": "yes",
        "ForwardX11": "yes",
        "PermitLocalCommand": "yes",
        "RequestTTY": "force",
        "RemoteCommand": "id",
    }
    (tmp_path / "theirs").write_text("".join(f"{key} {value}\n" for key, value in unsafe.items()) + "User them\n")
    masters_file = masters.config(str(tmp_path / "theirs"), shutil.which("ssh"))
    got = effective(masters_file)
    assert got["user"] == "them"
    assert got["stricthostkeychecking"] == "true"
    assert got["requesttty"] == "false"
    assert {got[key] for key in ("forwardagent", "forwardx11", "permitlocalcommand")} == {"no"}
    assert got["nohostauthenticationforlocalhost"] == "no"
    assert got.get("knownhostscommand", "none") == "none"
    assert got.get("remotecommand", "none") == "none"


def test_sockets_differ_when_the_arguments_do(home, a_host, masters):
    def socket(**fields):
        host = a_host(**fields)
        words = arguments(host, resolve(host), masters)
        return next(word for word in words if word.startswith("ControlPath="))

    assert socket() == socket()
    assert len({socket(), socket(key_file="/k"), socket(proxy_command="nc a 1"), socket(proxy_command="nc b 1")}) == 4
    assert masters.folder.stat().st_mode & 0o777 == 0o700


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
        return lambda: (tmp_path / "exits").read_text().splitlines() if (tmp_path / "exits").exists() else []

    def sockets(self, group, host, *names):
        group.open(host)
        made = [group.masters.socket([name]) for name in names]
        for path in made:
            path.touch()
        return sorted(f"ControlPath={path}" for path in made)

    def test_closing_a_group_ends_its_masters_and_no_others(self, exits, a_host, connections):
        host = a_host(connection="openssh")
        one, two = connections.group(), connections.group()
        mine, others = self.sockets(one, host, "a", "b"), self.sockets(two, host, "a")
        folder = one.masters.folder
        one.close()
        assert sorted(exits()) == mine
        assert not folder.exists()
        connections.close()
        assert sorted(exits()) == sorted(mine + others)
        connections.close()

    def test_an_ssh_that_hangs_or_is_gone_does_not_keep_us(self, exits, a_host, connections, tmp_path, monkeypatch):
        self.sockets(connections.group(), a_host(connection="openssh"), "one")
        monkeypatch.setattr(openssh, "_EXIT_SECONDS", 0.3)
        (tmp_path / "bin" / "ssh").write_text("#!/bin/sh\nexec sleep 30\n")
        connections.close()
        (tmp_path / "bin" / "ssh").unlink()
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        connections.close()

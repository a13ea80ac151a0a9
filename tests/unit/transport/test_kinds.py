"""The kind of each error that keeps a node from answering, by parts that really fail."""

import contextlib
import socket
import threading
import zlib
from typing import get_args

import paramiko
import pytest

from gpuops.errors import (
    AuthenticationError,
    BecomeError,
    ConnectError,
    HostKeyError,
    IncompatibleError,
    LostError,
    NodeError,
    UnreachableKind,
)
from gpuops.shell import Command
from gpuops.transport import ssh
from gpuops.transport.connections import Connections
from gpuops.transport.openssh import explain

TRUE = Command(("true",))
KEY = paramiko.ECDSAKey.generate()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(ssh, "_REPLY_SECONDS", 1.0)
    monkeypatch.setattr(ssh.random, "uniform", lambda *_: 0.05)


@pytest.fixture
def serve():
    """Runs ``behave(connection)`` for every connection to a port of its own, and gives the port."""
    with contextlib.ExitStack() as at_the_end:

        def accept(listener, behave):
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    at_the_end.callback(connection.close)
                    threading.Thread(target=behave, args=(connection,), daemon=True).start()

        def start(behave):
            listener = at_the_end.enter_context(socket.create_server(("127.0.0.1", 0)))
            at_the_end.callback(listener.shutdown, socket.SHUT_RDWR)
            threading.Thread(target=accept, args=(listener, behave), daemon=True).start()
            return listener.getsockname()[1]

        yield start


class Server(paramiko.ServerInterface):
    """An SSH server that lets everybody in, or nobody, and forwards to nowhere."""

    def __init__(self, *, welcome):
        self.welcome = welcome

    def get_allowed_auths(self, _name):
        return "publickey"

    def check_auth_publickey(self, *_):
        return paramiko.AUTH_SUCCESSFUL if self.welcome else paramiko.AUTH_FAILED

    def check_channel_request(self, *_):
        return paramiko.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED

    def check_channel_direct_tcpip_request(self, *_):
        return paramiko.OPEN_FAILED_CONNECT_FAILED


@pytest.fixture
def ssh_server(serve, home):
    """Starts an SSH server whose key is recorded, and gives its port."""
    KEY.write_private_key_file(str(home / ".ssh" / "id_ecdsa"))

    def start(*, welcome=True, recorded=True, kex=None):
        def behave(connection):
            with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
                transport = paramiko.Transport(connection)
                transport._preferred_kex = kex or transport._preferred_kex
                transport.add_server_key(KEY)
                transport.start_server(server=Server(welcome=welcome))
                transport.join(10)

        port = serve(behave)
        line = f"[127.0.0.1]:{port} {KEY.get_name()} {KEY.get_base64()}\n" if recorded else ""
        with (home / ".ssh" / "known_hosts").open("a") as file:
            file.write(line)
        return port

    return start


@pytest.fixture
def failure(home, a_host):
    """The error of a host, and of the same host asked again: what failed once fails in the same way."""
    connections = Connections(connect_seconds=0.5)

    def fail(**fields):
        transport = connections.group().open(a_host(**{"address": "127.0.0.1", "user": "me", **fields}))
        errors = []
        for _ in range(2):
            with pytest.raises(NodeError) as caught:
                transport.run(TRUE)
            errors.append((type(caught.value), caught.value.kind))
        assert errors[0] == errors[1]
        return errors[0]

    yield fail
    connections.close()


def test_refused_nobody_listens_on_the_port(failure):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert failure(port=port) == (ConnectError, "refused")


@pytest.mark.parametrize("address", ["no-such-host.invalid", "a..b"])
def test_dns_the_name_has_no_address(failure, address):
    assert failure(address=address) == (ConnectError, "dns")


def test_timeout_the_port_does_not_answer(failure):
    with contextlib.ExitStack() as open_:
        listener = open_.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = open_.enter_context(socket.socket())
            waiting.settimeout(0)
            waiting.connect_ex(listener.getsockname())
        assert failure(port=listener.getsockname()[1]) == (ConnectError, "timeout")


@pytest.mark.parametrize("greeting", [b"", b"SSH-2.0-silent\r\n"])
def test_timeout_the_server_does_not_go_on(failure, serve, greeting):
    assert failure(port=serve(lambda connection: connection.sendall(greeting))) == (ConnectError, "timeout")


@pytest.mark.parametrize("linger", [b"", b"\1\0\0\0\0\0\0\0"])
def test_closed_the_server_hangs_up_or_resets(failure, serve, linger):
    def hang_up(connection):
        if linger:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        connection.close()

    assert failure(port=serve(hang_up)) == (ConnectError, "closed")


def test_closed_something_else_listens(failure, serve):
    def answer(connection):
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n" * 200)

    assert failure(port=serve(answer)) == (ConnectError, "closed")


def test_incompatible_no_algorithm_is_shared(failure, ssh_server):
    port = ssh_server(kex=("diffie-hellman-group1-sha1-nobody",))
    assert failure(port=port) == (IncompatibleError, "incompatible")


def test_host_key_it_is_not_recorded(failure, ssh_server):
    assert failure(port=ssh_server(recorded=False)) == (HostKeyError, "host_key")


def test_auth_no_key_is_accepted(failure, ssh_server):
    assert failure(port=ssh_server(welcome=False)) == (AuthenticationError, "auth")


def test_jump_the_jump_host_does_not_reach_the_node(failure, ssh_server):
    assert failure(jump=f"me@127.0.0.1:{ssh_server()}", port=1) == (ConnectError, "jump")


def test_a_jump_host_that_is_not_reached_says_why_itself(failure):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert failure(jump=f"me@127.0.0.1:{port}") == (ConnectError, "refused")


def test_lost_the_command_cannot_run(failure, ssh_server):
    assert failure(port=ssh_server()) == (LostError, "lost")


@pytest.mark.parametrize("words", [("sh", "-c", "kill -9 $PPID"), ("true",)])
def test_lost_the_agent_ends_or_we_hang_up(opener, a_host, words):
    transport = opener.open(a_host(connection="local"))
    if words == ("true",):
        transport.close()
    with pytest.raises(LostError) as caught:
        transport.run(Command(words))
    assert caught.value.kind == "lost"


def test_lost_the_login_shell_runs_nothing(shell_node):
    with pytest.raises(LostError) as caught:
        shell_node("/bin/false").run(TRUE)
    assert caught.value.kind == "lost"


def test_lost_a_worker_ends(scripted):
    worker = scripted([b'MARK {"hello": {}}\n']).start("agent")
    with pytest.raises(LostError) as caught:
        worker.receive(1)
    assert caught.value.kind == "lost"


def test_become_is_a_state_of_the_answer_and_not_its_wording(scripted):
    def answer(state, err):
        body = zlib.compress(b"1 0.001 0 0 %b 0 %d\n%b" % (state, len(err), err))
        return b"\nMARK hello\n\nMARK %d\n" % len(body) + body

    with pytest.raises(BecomeError) as caught:
        scripted([answer(b"sudo-refused", b"whatever it says\n")]).run(TRUE)
    assert caught.value.kind == "become"
    wording = b"sudo: the password was rejected\n"
    assert scripted([answer(b"-", wording)]).run(TRUE).err == wording.decode()


@pytest.mark.parametrize(
    ("said", "error", "kind"),
    [
        ("ssh: Could not resolve hostname n1: Name or service not known", ConnectError, "dns"),
        ("ssh: connect to host n1 port 22: Connection refused", ConnectError, "refused"),
        ("ssh: connect to host n1 port 22: Connection timed out", ConnectError, "timeout"),
        ("Connection timed out during banner exchange", ConnectError, "timeout"),
        ("ssh: connect to host n1 port 22: No route to host", ConnectError, "closed"),
        ("kex_exchange_identification: Connection closed by remote host", ConnectError, "closed"),
        ("", ConnectError, "closed"),
        (
            "channel 0: open failed: Connection refused\nstdio forwarding failed\nclosed by UNKNOWN",
            ConnectError,
            "jump",
        ),
        (
            "Unable to negotiate with 10.0.0.1 port 22: no matching host key type found. Their offer: ssh-dss",
            IncompatibleError,
            "incompatible",
        ),
        ("No ED25519 host key is known for n1.\nHost key verification failed.", HostKeyError, "host_key"),
        ("me@n1: Permission denied (publickey).", AuthenticationError, "auth"),
    ],
)
def test_every_kind_is_read_from_what_ssh_says_last(said, error, kind):
    failure = explain("n1", said)
    assert (type(failure), failure.kind) == (error, kind)


def test_there_is_no_kind_without_a_test():
    tests = {name.split("_")[1] for name in globals() if name.startswith("test_")} | {"host_key"}
    assert set(get_args(UnreachableKind)) - {"failed"} <= tests


def test_what_merely_failed_there_is_no_kind_of_unreachability(opener, a_host):
    with pytest.raises(NodeError) as caught:
        opener.open(a_host(connection="local")).get("/nonexistent")
    assert caught.value.kind == "failed"

"""Servers that fail at every step of a connection; each is a distinct error, in time, and none is a traceback."""

import contextlib
import re
import socket
import threading
import time

import paramiko
import pytest

from gpuops.errors import AuthenticationError, ConnectError, IncompatibleError, LostError, NodeError
from gpuops.secret import Secret
from gpuops.shell import Command
from gpuops.transport import agent, ssh

HI = Command(("echo", "hi"), timeout_seconds=2)
KEY = paramiko.ECDSAKey.generate()


@pytest.fixture
def serve():
    """Runs ``behave(connection)`` for every connection to a port of its own, and gives the port."""
    with contextlib.ExitStack() as at_the_end:

        def start(behave):
            listener = at_the_end.enter_context(socket.create_server(("127.0.0.1", 0)))
            listener.settimeout(0.1)
            over = threading.Event()

            def accept():
                while not over.is_set():
                    with contextlib.suppress(OSError):
                        connection, _ = listener.accept()
                        connection.settimeout(None)
                        at_the_end.callback(connection.close)
                        threading.Thread(target=quietly, args=(behave, connection), daemon=True).start()

            thread = threading.Thread(target=accept)
            thread.start()
            at_the_end.callback(thread.join)
            at_the_end.callback(over.set)
            return listener.getsockname()[1]

        yield start


def quietly(behave, connection):
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
        behave(connection)


class Server(paramiko.ServerInterface):
    """An SSH server in Python; ``faults`` maps a step to what happens there."""

    def __init__(self, transport, faults):
        self.transport, self.faults = transport, faults

    def _fault(self, step):
        fault = self.faults.get(step)
        if fault == "drop":
            self.transport.close()
        if fault == "hang":
            time.sleep(20)
        return fault

    def get_allowed_auths(self, _):
        return self.faults.get("methods", "publickey,password")

    def check_auth_publickey(self, *_):
        self._fault("auth")
        return paramiko.AUTH_FAILED if "password" in self.faults else paramiko.AUTH_SUCCESSFUL

    def check_auth_password(self, _, password):
        return paramiko.AUTH_SUCCESSFUL if password == self.faults.get("password") else paramiko.AUTH_FAILED

    def check_auth_interactive(self, *_):
        return paramiko.InteractiveQuery("", "", "Password: ")

    def check_auth_interactive_response(self, answers):
        return paramiko.AUTH_SUCCESSFUL if answers == [self.faults.get("password")] else paramiko.AUTH_FAILED

    def check_channel_request(self, *_):
        return paramiko.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED if self._fault("open") else paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel, command):
        if self._fault("exec") == "refuse":
            return False
        answer = self.faults.get("answer")
        if answer is not None:
            mark = re.search(rb"gpuops-[0-9a-f]{24}", command)[0]
            threading.Thread(target=self._answer, args=(channel, answer.replace(b"MARK", mark)), daemon=True).start()
        return True

    def _answer(self, channel, answer):
        time.sleep(0.1)
        with contextlib.suppress(OSError, EOFError):  # the client may have hung up
            channel.sendall(answer)
            if self.faults.get("then") == "drop":
                self.transport.close()
            if self.faults.get("then") == "close":
                channel.close()


@pytest.fixture
def faulty(serve, home, a_host, keys):
    """A host on a Python server with ``faults``, whose host key is known."""

    def make(host_fields=(), **faults):
        def behave(connection):
            transport = paramiko.Transport(connection)
            transport.add_server_key(KEY)
            transport.start_server(server=Server(transport, faults))
            transport.join(30)

        return known(serve(behave), **dict(host_fields))

    def known(port, **fields):
        (home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{port} {KEY.get_name()} {KEY.get_base64()}\n")
        return a_host(address="127.0.0.1", port=port, user="me", **{"key_file": str(keys / "login"), **fields})

    make.known = known
    return make


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(ssh, "_REPLY_SECONDS", 1.5)
    monkeypatch.setattr(agent, "_START_SECONDS", 1.5)
    monkeypatch.setattr(agent, "_SLACK_SECONDS", 1.0)
    monkeypatch.setattr(ssh.random, "uniform", lambda *_: 0.1)


def failure(connect, host, connect_seconds=1.5):
    """The error that ``host`` gives, which must not take long."""
    began = time.monotonic()
    with pytest.raises(NodeError) as caught:
        connect(host, connect_seconds).run(HI)
    assert time.monotonic() - began < 12
    assert caught.value.node == "n1"
    return caught.value


def test_the_python_server_works_when_it_has_no_fault(faulty, connect):
    import zlib

    body = zlib.compress(b"0 0.001 0 0 - 3 0\nhi\n")
    host = faulty(answer=b"MOTD\n\nMARK hello\n\nMARK %d\n" % len(body) + body)
    assert connect(host).run(HI).out == "hi\n"


def test_nobody_listens(faulty, connect):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    error = failure(connect, faulty.known(port))
    assert type(error) is ConnectError
    assert str(error) == f"n1: connection refused (127.0.0.1:{port})"


def test_a_full_backlog_never_connects(faulty, connect):
    with contextlib.ExitStack() as open_:
        listener = open_.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = open_.enter_context(socket.socket())
            waiting.settimeout(0)
            waiting.connect_ex(listener.getsockname())
        error = failure(connect, faulty.known(listener.getsockname()[1]))
    assert type(error) is ConnectError
    assert "connection timed out after 1.5 s" in str(error)


@pytest.mark.parametrize("address", ["no-such-host.invalid", "a..b", "x" * 70])
def test_a_name_without_an_address(a_host, home, connect, address):
    assert f'no address for "{address}"' in str(failure(connect, a_host(address=address, user="me")))


def test_a_server_that_stays_silent(serve, faulty, connect):
    error = failure(connect, faulty.known(serve(lambda _: time.sleep(20))))
    assert type(error) is ConnectError
    assert "no SSH greeting within 1.5 s" in str(error)


def test_a_server_that_greets_and_stays_silent(serve, faulty, connect):
    def behave(connection):
        connection.sendall(b"SSH-2.0-silent\r\n")
        time.sleep(20)

    assert "no SSH greeting within 1.5 s" in str(failure(connect, faulty.known(serve(behave))))


@pytest.mark.parametrize("line", [b"x" * 1_000_000, b"x\r\n" * 300_000, b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_server_that_speaks_of_something_else(serve, faulty, connect, line):
    def behave(connection):
        connection.sendall(line)
        time.sleep(20)

    assert type(failure(connect, faulty.known(serve(behave)))) is ConnectError


def test_a_server_that_hangs_up_at_once_is_tried_four_times(serve, faulty, connect):
    met = []

    def behave(connection):
        met.append(1)
        connection.close()

    error = failure(connect, faulty.known(serve(behave)))
    assert type(error) is ConnectError
    assert "closed the connection before its greeting" in str(error)
    assert len(met) == 4


def test_a_server_that_resets_is_a_connect_error(serve, faulty, connect):
    def behave(connection):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()

    assert type(failure(connect, faulty.known(serve(behave)))) is ConnectError


def test_a_server_without_a_common_algorithm(start_sshd, a_host, trusted, connect, account):
    server = start_sshd("KexAlgorithms sntrup761x25519-sha512@openssh.com")
    trusted(server.known("127.0.0.1"))
    error = failure(connect, a_host(address="127.0.0.1", port=server.port, user=account.name), connect_seconds=10)
    assert type(error) is IncompatibleError


@pytest.mark.parametrize(
    ("faults", "kind", "said"),
    [
        ({"auth": "drop"}, ConnectError, "server closed the connection during authentication as me"),
        ({"auth": "hang"}, ConnectError, "no answer to the login within 1.5 s"),
        ({"open": "refuse"}, LostError, "before the command ran"),
        ({"exec": "refuse"}, LostError, "before the command ran"),
        ({"exec": "drop"}, LostError, "before the command ran"),
        ({"exec": "hang"}, LostError, "before the command ran"),
        ({}, LostError, "no answer within 1.5 s"),
        ({"answer": b"\nMARK hello\n"}, LostError, "no answer within 5 s"),
        ({"answer": b"\nMARK hello\n", "then": "drop"}, LostError, "broke in the middle"),
        ({"answer": b"\nMARK hello\n\nMARK 5000\nx\x01", "then": "drop"}, LostError, "broke in the middle"),
        ({"answer": b"\nMARK hello\n\nMARK 5000\nx\x01", "then": "close"}, LostError, "broke in the middle"),
        ({"answer": b"\nMARK hello\n\nMARK 5000\nx\x01"}, LostError, "no answer within"),
        ({"answer": b"\nMARK hello\n\nMARK 4\nhalf"}, LostError, "malformed"),
        ({"answer": b"y\n" * 700_000}, LostError, "more than 1 MiB"),
    ],
)
def test_every_step_has_its_own_error(faulty, connect, faults, kind, said):
    error = failure(connect, faulty(**faults))
    assert type(error) is kind
    assert said in str(error)


@pytest.mark.parametrize("methods", ["password", "keyboard-interactive", "publickey,password"])
def test_a_password_opens_by_either_method(faulty, connect, methods):
    host = faulty({"password": Secret("open sesame")}, password="open sesame", methods=methods, exec="refuse")
    assert type(failure(connect, host)) is LostError


def test_a_wrong_password_names_what_was_tried_and_not_the_password(faulty, connect, keys):
    host = faulty({"password": Secret("wrong horse")}, password="open sesame", methods="publickey,password")
    error = failure(connect, host)
    assert type(error) is AuthenticationError
    assert f"refused {keys}/login, password" in str(error)
    assert "horse" not in str(error)


def test_what_the_server_accepts_is_named(faulty, connect):
    error = failure(connect, faulty(password="open sesame", methods="password"))
    assert type(error) is AuthenticationError
    assert "the server accepts password" in str(error)


def test_hanging_up_where_the_connection_is_gone_is_no_error(faulty, connect):
    transport = connect(faulty())
    with pytest.raises(LostError):
        transport.run(HI)
    transport._stream = ssh.ChannelStream(transport.connection, "true")
    transport.connection.transport.packetizer.close()
    transport.close()
    assert transport._stream is None

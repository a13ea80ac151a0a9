"""What attackers try, one file for each of them; every test states what is tried, and shows that it fails."""

import contextlib
import socket
import subprocess
import sys
import threading

import paramiko
import pytest


@pytest.fixture
def gpuops(tmp_path, monkeypatch):
    """Runs the command line in an empty directory, with a HOME of its own."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh").chmod(0o700)
    monkeypatch.setenv("HOME", str(home))
    project = tmp_path / "project"
    project.mkdir(mode=0o755)
    project.chmod(0o755)

    def run(*words, timeout=60, **more):
        return subprocess.run(
            [sys.executable, "-m", "gpuops", *words],
            cwd=project,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            **more,
        )

    run.project, run.home = project, home
    return run


@pytest.fixture
def loot(tmp_path):
    """A file that the attacker's commands would create; it must not be there at the end."""
    path = tmp_path / "loot"
    yield path
    assert not path.exists()


@pytest.fixture
def refused(gpuops):
    """Runs a command that must be refused in one sentence with exit 2 (or another code); returns the sentence."""

    def run(*words, code=2, **more):
        done = gpuops(*words, **more)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr

    return run


class Impostor(paramiko.ServerInterface):
    """An SSH server of the attacker's: it takes any password and key, notes them, and forwards to ``behind``."""

    def __init__(self, server):
        self.server = server

    def get_allowed_auths(self, _name):
        return "publickey,password"

    def check_auth_password(self, name, password):
        self.server.stolen.append((name, password))
        return paramiko.AUTH_SUCCESSFUL

    def check_auth_publickey(self, name, key):
        self.server.stolen.append((name, key.fingerprint))
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, *_):
        return paramiko.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED

    def check_channel_direct_tcpip_request(self, _number, _origin, destination):
        self.server.asked.append(destination)
        return paramiko.OPEN_SUCCEEDED if self.server.behind else paramiko.OPEN_FAILED_CONNECT_FAILED


class _Transport(paramiko.Transport):
    """A transport that may run over a channel: closing that is an error once its connection is gone."""

    def run(self):
        with contextlib.suppress(EOFError, OSError):
            super().run()


class Server:
    """A server with a port and a key of its own. ``stolen`` are logins, ``asked`` are forwarded addresses."""

    def __init__(self, behind=None):
        self.key, self.behind = paramiko.ECDSAKey.generate(), behind
        self.stolen, self.asked = [], []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def public(self):
        """Its key as in known_hosts."""
        return f"{self.key.get_name()} {self.key.get_base64()}"

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                threading.Thread(target=self.speak, args=(connection,), daemon=True).start()

    def speak(self, connection):
        with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
            transport = _Transport(connection)
            transport.add_server_key(self.key)
            transport.start_server(server=Impostor(self))
            while channel := transport.accept(20):
                threading.Thread(target=self.behind, args=(channel,), daemon=True).start()


@pytest.fixture
def servers():
    """Starts servers of the attacker's; ``behind`` is what a jump host connects a forwarded channel to."""
    with contextlib.ExitStack() as at_the_end:

        def start(behind=None):
            server = Server(behind)
            at_the_end.callback(server.listener.close)
            at_the_end.callback(server.listener.shutdown, socket.SHUT_RDWR)
            return server

        yield start

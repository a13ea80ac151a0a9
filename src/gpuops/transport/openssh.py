"""Transport through the system's ``ssh``: if ``ssh NODE`` works, so does this (certificates, GSSAPI, Match exec)."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import tempfile
from pathlib import Path

from gpuops.errors import (
    AuthenticationError,
    ConnectError,
    HostKeyError,
    IncompatibleError,
    MissingError,
    NodeError,
    UnreachableKind,
)
from gpuops.inventory import Host
from gpuops.proposal import propose
from gpuops.transport.agent import AgentTransport
from gpuops.transport.local import ProcessStream
from gpuops.transport.settings import Settings

_FAILED = 255
_EXIT_SECONDS = 5.0
_OPTIONS = (
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "ForwardAgent=no",
    "RequestTTY=no",
    "ControlMaster=auto",
    "ControlPersist=60",
)


class OpensshStream(ProcessStream):
    """Running ``ssh`` process; its failures become the errors that other transports raise."""

    def read(self, seconds: float) -> bytes:
        """Return some bytes of the remote stdout; raise `NodeError` if ssh itself failed.

        ssh has the same status if a signal ended the remote command, but then it prints nothing.
        """
        data = super().read(seconds)
        if not data and self._ended_badly() and (errors := self.errors()).strip():
            raise explain(self._node, errors)
        return data

    def ending(self) -> str:
        """Return how the remote command ended, in words."""
        return "ended by a signal" if self._ended_badly() else super().ending()

    def _ended_badly(self) -> bool:
        try:
            return self.wait(2) == _FAILED
        except subprocess.TimeoutExpired:
            return False


_KINDS: dict[str, UnreachableKind] = {
    "stdio forwarding failed": "jump",  # the jump host accepted the login but cannot reach the node
    "could not resolve": "dns",
    "connection refused": "refused",
    "timed out": "timeout",
}


def explain(node: str, stderr: str) -> NodeError:
    """Return the error that matches ssh's messages; its exit status is the same for all failures."""
    lines = [line for line in stderr.strip().splitlines() if line.strip()] or ["ssh failed without a message"]
    words = lines[-1].strip()[:300]
    everything = stderr.lower()
    if "unable to negotiate" in everything:
        return IncompatibleError(node, words)
    if "host key" in everything:
        return HostKeyError(node, f"{words} To compare and record the key: {propose('trust', node)}")
    if "permission denied" in everything:
        return AuthenticationError(node, words)
    kind = next((kind for text, kind in _KINDS.items() if text in everything), None)
    return ConnectError(node, words.removeprefix("ssh: "), kind)


class ControlMasters:
    """Background ssh processes of one owner that keep connections open for reuse (ssh's ``ControlPersist``).

    Their sockets have unique names, because the masters of other programs must not be ended.
    """

    def __init__(self) -> None:
        self._name = secrets.token_hex(4)
        self._folder: Path | None = None

    @property
    def path(self) -> str:
        """Value for ssh's ``ControlPath``."""
        self._folder = self._folder or _control_folder()
        return f"{self._folder}/{self._name}-%C"

    def sockets(self) -> list[Path]:
        """Return the sockets of the running masters."""
        return sorted(self._folder.glob(f"{self._name}-*")) if self._folder else []

    def end(self, socket: Path) -> None:
        """End the master that listens on ``socket``; otherwise it would run for another minute."""
        words = ["ssh", "-F", "/dev/null", "-o", f"ControlPath={socket}", "-O", "exit", "gpuops"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_EXIT_SECONDS, check=False)
        socket.unlink(missing_ok=True)  # ssh answers before the master has removed it


def arguments(host: Host, settings: Settings, control_path: str) -> list[str]:
    """Return the ``ssh`` command that connects to ``host``, without the remote command line."""
    program = shutil.which("ssh")
    if program is None:
        raise MissingError(f"{settings.needs_openssh or host.name} needs the ssh program, which is not on PATH")
    words = [program, "-T", "-e", "none", *(w for o in _OPTIONS for w in ("-o", o))]
    words += ["-o", f"ControlPath={control_path}", "-o", f"ConnectTimeout={settings.connect_seconds:.0f}"]
    words += ["-i", host.key_file] if host.key_file else []
    words += ["-p", str(host.port)] if host.port else []
    words += ["-l", host.user] if host.user else []
    words += ["-J", host.jump] if host.jump else []
    words += ["-o", f"ProxyCommand={host.proxy_command}"] if host.proxy_command else []
    return [*words, *host.ssh_args, "--", host.address]


def _control_folder() -> Path:
    """Return a private directory for the sockets of the masters; socket paths must be short."""
    folder = Path(tempfile.gettempdir()) / f"gpuops-ssh-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if folder.is_symlink() or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise MissingError(f"{folder}: not a private directory of this user; remove it")
    return folder


def open_openssh(host: Host, settings: Settings, masters: ControlMasters) -> AgentTransport:
    """Return a transport to ``host`` through the system's ``ssh``."""
    words = arguments(host, settings, masters.path)
    return AgentTransport(
        host.name,
        lambda line: OpensshStream(host.name, [*words, line]),
        python=host.python,
        become_password=host.become_password,
    )

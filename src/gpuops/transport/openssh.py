"""The system's own ``ssh``: if ``ssh NODE`` works, this works (certificates, GSSAPI, security keys, Match exec)."""

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
    """A running ``ssh``; its own failures become the errors that the other transports raise."""

    def read(self, seconds: float) -> bytes:
        """Bytes of the remote stdout; `NodeError` where ssh itself failed."""
        data = super().read(seconds)
        if not data and self._ended_badly():
            raise explain(self._node, self.errors())
        return data

    def _ended_badly(self) -> bool:
        try:
            return self.wait(2) == _FAILED
        except subprocess.TimeoutExpired:
            return False


_KINDS: dict[str, UnreachableKind] = {
    "stdio forwarding failed": "jump",  # the jump host let us in, and does not reach the node
    "could not resolve": "dns",
    "connection refused": "refused",
    "timed out": "timeout",
}


def explain(node: str, stderr: str) -> NodeError:
    """Return the error that ssh's messages mean; its exit status is the same for all of them."""
    lines = [line for line in stderr.strip().splitlines() if line.strip()] or ["ssh failed without a message"]
    words = lines[-1].strip()[:300]
    everything = stderr.lower()
    if "unable to negotiate" in everything:
        return IncompatibleError(node, words)
    if "host key" in everything:
        return HostKeyError(node, f"{words} To see and record the key: {propose('trust', node)}")
    if "permission denied" in everything:
        return AuthenticationError(node, words)
    kind = next((kind for text, kind in _KINDS.items() if text in everything), None)
    return ConnectError(node, words.removeprefix("ssh: "), kind)


class ControlMasters:
    """The ssh processes of one owner that keep connections open for later ones (ssh's ``ControlPersist``).

    The names of their sockets tell them from those of other programs, which must not be ended.
    """

    def __init__(self) -> None:
        self._name = secrets.token_hex(4)
        self._folder: Path | None = None

    @property
    def path(self) -> str:
        """What ssh's ``ControlPath`` must be."""
        self._folder = self._folder or _control_folder()
        return f"{self._folder}/{self._name}-%C"

    def sockets(self) -> list[Path]:
        """The sockets of those that live."""
        return sorted(self._folder.glob(f"{self._name}-*")) if self._folder else []

    def end(self, socket: Path) -> None:
        """End the one that listens on ``socket``; without that it would live for another minute."""
        words = ["ssh", "-F", "/dev/null", "-o", f"ControlPath={socket}", "-O", "exit", "gpuops"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_EXIT_SECONDS, check=False)


def arguments(host: Host, settings: Settings, control_path: str) -> list[str]:
    """Return the ``ssh`` command that connects to ``host``, without the remote command line."""
    program = shutil.which("ssh")
    if program is None:
        raise MissingError(f"{settings.needs_openssh or host.name} needs the ssh program, and there is none on PATH")
    words = [program, "-T", "-e", "none", *(w for o in _OPTIONS for w in ("-o", o))]
    words += ["-o", f"ControlPath={control_path}", "-o", f"ConnectTimeout={settings.connect_seconds:.0f}"]
    words += ["-i", host.key_file] if host.key_file else []
    words += ["-p", str(host.port)] if host.port else []
    words += ["-l", host.user] if host.user else []
    words += ["-J", host.jump] if host.jump else []
    words += ["-o", f"ProxyCommand={host.proxy_command}"] if host.proxy_command else []
    return [*words, *host.ssh_args, "--", host.address]


def _control_folder() -> Path:
    """Return a folder of this user alone for the sockets of kept connections; their path must stay short."""
    folder = Path(tempfile.gettempdir()) / f"gpuops-ssh-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if folder.is_symlink() or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise MissingError(f"{folder} is not a private folder of yours; remove it")
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

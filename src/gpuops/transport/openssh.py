"""Transport through the system's ``ssh``: if ``ssh NODE`` works, so does this (certificates, GSSAPI, Match exec)."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from functools import lru_cache
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
_FORCED = (
    "BatchMode yes",
    "StrictHostKeyChecking yes",
    "NoHostAuthenticationForLocalhost no",
    "VerifyHostKeyDNS no",
    "UpdateHostKeys no",
    "ForwardAgent no",
    "ForwardX11 no",
    "GSSAPIDelegateCredentials no",
    "AddKeysToAgent no",
    "PermitLocalCommand no",
    "RequestTTY no",
    "RemoteCommand none",
    "ClearAllForwardings yes",
    "Tunnel no",
    "EscapeChar none",
)
"""Options that no configuration may change: ssh uses the first value of each, so they precede all others."""
_NEWER = ("KnownHostsCommand none", "EnableEscapeCommandline no")
"""More of them, which OpenSSH knows since 8.5 and 9.2."""


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

    Their sockets are in a private directory that ends with them. So a later owner connects anew, and notices a host key
    that changed. The directory also holds the configurations that give gpuops' own options to ssh.
    """

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._lock = threading.Lock()

    @property
    def folder(self) -> Path:
        """Private directory, made on first use; it has a short name, because the paths of sockets must be short."""
        with self._lock:
            self._folder = self._folder or Path(tempfile.mkdtemp(prefix="gpuops-ssh-"))
            return self._folder

    def socket(self, words: Sequence[str]) -> Path:
        """Return the socket for connections with exactly these arguments; ssh's own ``%C`` ignores most of them."""
        return self.folder / hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]

    def config(self, path: str, program: str) -> Path:
        """Write a configuration of gpuops' own options and then the one in ``path``; ssh's jump hosts use it too."""
        text = configuration(path, _newer(program))
        file = self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.conf"
        with self._lock:
            if not file.exists():
                file.write_text(text, "utf-8")
        return file

    def sockets(self) -> list[Path]:
        """Return the sockets of the running masters."""
        return sorted(path for path in self._folder.iterdir() if not path.suffix) if self._folder else []

    def drain(self) -> list[Path]:
        """Return the sockets of the masters that must be ended before `remove`."""
        with contextlib.suppress(FileNotFoundError):
            return self.sockets()
        return []

    def end(self, socket: Path) -> None:
        """End the master that listens on ``socket``; otherwise it would run for another minute."""
        words = ["ssh", "-F", "/dev/null", "-o", f"ControlPath={socket}", "-O", "exit", "gpuops"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_EXIT_SECONDS, check=False)
        socket.unlink(missing_ok=True)  # ssh answers before the master has removed it

    def remove(self) -> None:
        """Remove the directory, after the masters are ended."""
        with self._lock:
            folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def configuration(path: str, newer: Sequence[str] = ()) -> str:
    """Return an ssh_config with gpuops' own options first, then those of ``path``: a file, "none", or "" for ssh's."""
    own = ["Host *", *(f"    {option}" for option in (*_FORCED, *newer))]
    if path == "none":
        included = []
    elif path:
        included = [str(Path(path).expanduser().absolute())]
    else:
        included = ["~/.ssh/config", "/etc/ssh/ssh_config"]
    return "\n".join([*own, *(f'Include "{name}"' for name in included), ""])


@lru_cache
def _newer(program: str) -> tuple[str, ...]:
    """Return those of the newer options that this ssh knows."""

    def is_known(option: str) -> bool:
        words = [program, "-F", "/dev/null", "-o", option, "-G", "gpuops"]
        return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0

    return tuple(filter(is_known, _NEWER))


def arguments(host: Host, settings: Settings, masters: ControlMasters) -> list[str]:
    """Return the ``ssh`` command that connects to ``host``, without the remote command line."""
    program = shutil.which("ssh")
    if program is None:
        raise MissingError(f"{settings.needs_openssh or host.name} needs the ssh program, which is not on PATH")
    path, ssh_args = split_config(host.ssh_args)
    words = [program, "-F", str(masters.config(path, program)), "-T", "-e", "none"]
    words += ["-o", f"ConnectTimeout={settings.connect_seconds:.0f}"]
    words += ["-i", host.key_file] if host.key_file else []
    words += ["-p", str(host.port)] if host.port else []
    words += ["-l", host.user] if host.user else []
    words += ["-J", host.jump] if host.jump else []
    words += ["-o", f"ProxyCommand={host.proxy_command}"] if host.proxy_command else []
    words += [w for option in _FORCED for w in ("-o", option.replace(" ", "=", 1))]
    words += ssh_args
    control = ("ControlMaster=auto", "ControlPersist=60", f"ControlPath={masters.socket([*words, host.address])}")
    return [*words[:3], *(w for option in control for w in ("-o", option)), *words[3:], "--", host.address]


def split_config(ssh_args: Sequence[str]) -> tuple[str, list[str]]:
    """Return the configuration file that ``-F`` names, or an empty string, and the other arguments."""
    if "-F" not in ssh_args:
        return "", [*ssh_args]
    at = [*ssh_args].index("-F")
    return ssh_args[at + 1], [*ssh_args[:at], *ssh_args[at + 2 :]]


def open_openssh(host: Host, settings: Settings, masters: ControlMasters) -> AgentTransport:
    """Return a transport to ``host`` through the system's ``ssh``."""
    words = arguments(host, settings, masters)
    return AgentTransport(
        host.name,
        lambda line: OpensshStream(host.name, [*words, line]),
        python=host.python,
        become_password=host.become_password,
    )

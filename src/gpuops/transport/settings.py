"""SSH settings of a host: from the inventory, then from ``~/.ssh/config``, then the defaults."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from gpuops.document import exists, read_bytes, regular
from gpuops.errors import InputError
from gpuops.files.permissions import others_may_write
from gpuops.inventory import Host
from gpuops.transport.known_hosts import DEFAULT_FILES, KnownHosts, load, lookup_name

if TYPE_CHECKING:
    import paramiko

DEFAULT_KEYS = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
_HARMLESS = frozenset(
    "compression connectionattempts controlmaster controlpath controlpersist forwardagent forwardx11 loglevel"
    " preferredauthentications requesttty serveralivecountmax serveraliveinterval stricthostkeychecking tcpkeepalive"
    " visualhostkey hashknownhosts updatehostkeys addkeystoagent batchmode checkhostip numberofpasswordprompts"
    " passwordauthentication pubkeyauthentication addressfamily sendenv setenv host".split()
)
_KNOWN = frozenset(
    "hostname port user identityfile identitiesonly proxyjump proxycommand userknownhostsfile globalknownhostsfile"
    " hostkeyalias connecttimeout gssapiauthentication".split()
)


@dataclass(frozen=True)
class Settings:
    """Settings of one connection. ``needs_openssh`` is why paramiko cannot open it, or empty."""

    address: str
    port: int
    user: str
    key_files: tuple[str, ...]
    keys_named: bool
    jump: str
    known_hosts_files: tuple[str, ...]
    host_key_alias: str
    needs_openssh: str = ""
    connect_seconds: float = 10.0
    identities_only: bool = False
    password: object = field(default=None, repr=False)

    @property
    def known_name(self) -> str:
        """Name under which known_hosts lists this server."""
        return self.host_key_alias or lookup_name(self.address, self.port)

    @property
    def known_hosts(self) -> KnownHosts:
        """Known hosts from the files that apply to this server."""
        return load(self.known_hosts_files)

    def __str__(self) -> str:
        """Return ``address:port`` for messages."""
        return f"{self.address}:{self.port}"


def resolve(host: Host, *, connect_seconds: float | None = None, config_file: str = "~/.ssh/config") -> Settings:
    """Merge the inventory's settings of ``host`` with the user's SSH configuration."""
    own = _options(host.ssh_args)
    config_path = own.pop("-F", config_file)
    reason = _unsupported(config_path)
    config = {} if reason or config_path == "none" else _lookup(config_path, host.address)
    merged = {**config, **own}
    named = [host.key_file] if host.key_file else []
    files = named + _words(merged.get("identityfile"))
    return Settings(
        address=str(merged.get("hostname", host.address)),
        port=host.port or _number(host, merged, "port", 22),
        user=host.user or str(merged.get("user") or _own_name()),
        key_files=tuple(files or DEFAULT_KEYS),
        keys_named=bool(files),
        jump=_none(host.jump or str(merged.get("proxyjump", ""))),
        known_hosts_files=_known_hosts_files(merged),
        host_key_alias=str(merged.get("hostkeyalias", "")),
        needs_openssh=reason or _special(host, merged),
        connect_seconds=connect_seconds or _number(host, merged, "connecttimeout", 10),
        identities_only=str(merged.get("identitiesonly", "no")).lower() == "yes",
        password=host.password,
    )


def _number(host: Host, merged: Mapping[str, object], key: str, default: int) -> int:
    value = str(merged.get(key, default))
    if not value.isdecimal() or len(value) > 9:
        raise InputError(f'{host.name}: {key} "{value}" in its SSH configuration is not a number')
    return int(value)


def _own_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:  # a container may run under a uid without a name
        raise InputError(f"user {os.getuid()} has no name on this machine; set ansible_user") from error


def _none(value: str) -> str:
    return "" if value.lower() == "none" else value


def _words(value: object) -> list[str]:
    return [str(v) for v in value] if isinstance(value, list) else [str(value)] if value else []


def _known_hosts_files(merged: Mapping[str, object]) -> tuple[str, ...]:
    own = _files(merged.get("userknownhostsfile")) or DEFAULT_FILES[:2]
    return own + (_files(merged.get("globalknownhostsfile")) or DEFAULT_FILES[2:])


def _files(value: object) -> tuple[str, ...]:
    """Return the files to read; ignore /dev/null, which others use to skip verification."""
    return tuple(word for word in " ".join(_words(value)).split() if word not in ("/dev/null", "none"))


def _options(arguments: tuple[str, ...]) -> dict[str, object]:
    """Return ssh's command-line arguments as config keys; other arguments count as special."""
    options: dict[str, object] = {}
    words = iter(arguments)
    for word in words:
        flag, attached = word[:2], word[2:]
        if flag == "-o":
            key, _, value = re.sub(r"[ \t]*=[ \t]*|[ \t]+", "=", attached or next(words, ""), count=1).partition("=")
            options.setdefault(key.lower(), value)
        elif flag in _FLAGS:
            options.setdefault(_FLAGS[flag], attached or next(words, ""))
        elif flag not in ("-C", "-q", "-v", "-T", "-x", "-a", "-4", "-n"):
            options.setdefault("special", word)
    return options


_FLAGS = {"-J": "proxyjump", "-i": "identityfile", "-p": "port", "-l": "user", "-F": "-F"}


def _special(host: Host, merged: Mapping[str, object]) -> str:
    """Return an option of this host that paramiko does not support, or an empty string."""
    if host.proxy_command or _none(str(merged.get("proxycommand", ""))):
        return "ProxyCommand"
    if str(merged.get("gssapiauthentication", "no")).lower() == "yes":
        return "GSSAPIAuthentication"
    unknown = sorted(set(merged) - _KNOWN - _HARMLESS)
    return unknown[0] if unknown else ""


@lru_cache(maxsize=8)
def _unsupported(config_path: object) -> str:
    """Return a directive of the config file that paramiko does not support, or an empty string."""
    for line in _config_lines(str(config_path)):
        words = line.replace("=", " ", 1).lower().split()
        if words[:1] == ["include"]:
            return "Include"
        if words[:1] == ["match"] and (beyond := set(words) & _BEYOND):
            return f"Match {min(beyond)}"
    return ""


_BEYOND = {"exec", "localnetwork", "tagged", "command", "version", "sessiontype"}


def _config_lines(path: str) -> Iterator[str]:
    _refuse_foreign(path)
    file = Path(path).expanduser()
    if path == os.devnull or not exists(file):
        return
    text = read_bytes(regular(file)).decode("utf-8", "replace")
    yield from (line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#"))


def _refuse_foreign(path: str) -> None:
    """Raise `InputError` if others may write to an SSH configuration, which may run programs on this machine."""
    with contextlib.suppress(OSError):
        status = Path(path).expanduser().stat()
        if not stat.S_ISREG(status.st_mode):
            return
        if others_may_write(status):
            raise InputError(f"{path}: refusing an SSH configuration that others may write; run: chmod go-w {path}")
        if status.st_uid not in (0, os.geteuid()):
            raise InputError(f"{path}: refusing an SSH configuration of another user; copy it")


@lru_cache(maxsize=8)
def _config(path: str) -> paramiko.SSHConfig | None:
    lines = list(_config_lines(path))
    if not lines:
        return None
    import paramiko

    try:
        return paramiko.SSHConfig.from_text("\n".join(lines))
    except (paramiko.ConfigParseError, ValueError) as error:
        raise InputError(f"{path}: {error}") from error


def _lookup(path: object, name: str) -> dict[str, object]:
    config = _config(str(path))
    return dict(config.lookup(name)) if config else {}

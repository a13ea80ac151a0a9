"""Index of the known_hosts files by name, read once; keys are parsed only for the host that is looked up.

A line such as ``[gpu01]:2222 ssh-ed25519 AAAA…`` lists one key of gpu01 on port 2222. paramiko's own reader is not
used: it parses every key for every connection, does not support wildcards, and stops at a ``@revoked`` or
``@cert-authority`` line.
"""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import hmac
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gpuops.document import exists, is_file
from gpuops.errors import OutputError
from gpuops.files.replacing import file_lock, write_atomic

_MOST_BYTES = 64 << 20  # a hundred thousand servers with five keys each; a file that grows cannot take more
DEFAULT_FILES = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2", "/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")


@dataclass(frozen=True)
class KnownKey:
    """Key of one line: its type (``ssh-ed25519``), its bytes, its position, and whether it is revoked."""

    type: str
    blob: bytes
    where: str
    revoked: bool = False

    @property
    def fingerprint(self) -> str:
        """Fingerprint as printed by ``ssh-keygen -l``."""
        return fingerprint(self.blob)


def fingerprint(blob: bytes) -> str:
    """Return ``SHA256:`` and the unpadded base64 of a public key's hash."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def lookup_name(name: str, port: int) -> str:
    """Return the name under which known_hosts lists a server: ``[name]:port`` for ports other than 22."""
    return name if port == 22 else f"[{name}]:{port}"


class KnownHosts:
    """Lines of several known_hosts files; later files add to earlier ones. ``warnings`` list unusable lines."""

    def __init__(self, files: tuple[str, ...]) -> None:
        self.files = files
        self.warnings: list[str] = []
        self.has_authorities = False
        self._plain: dict[str, list[_Line]] = {}
        self._matched: list[_Line] = []
        for file in files:
            self._read(Path(file).expanduser())

    def _read(self, path: Path) -> None:
        if not is_file(path):
            self.warnings += [f"{path}: not a regular file; it is skipped"] if exists(path) else []
            return
        try:
            with path.open("rb") as file:
                content = file.read(_MOST_BYTES)
        except PermissionError:
            return
        for number, line in enumerate(content.decode("utf-8", "replace").split("\n"), 1):
            if line.strip() and not line.lstrip().startswith("#"):
                self._add(line.split(), f"{path}:{number}")

    def _add(self, words: list[str], where: str) -> None:
        marker = words.pop(0) if words[0].startswith("@") else ""
        if marker == "@cert-authority":
            self.has_authorities = True
            return
        if len(words) < 3 or marker not in ("", "@revoked"):
            self.warnings.append(f"{where}: not a known_hosts line; it is skipped")
            return
        line = _Line(words[0], words[1], words[2], where, revoked=marker == "@revoked")
        if line.needs_matching:
            self._matched.append(line)
            return
        for name in words[0].split(","):
            self._plain.setdefault(name.lower(), []).append(line)

    def keys(self, name: str) -> list[KnownKey]:
        """Return all keys recorded for ``name`` (from `lookup_name`), including revoked ones."""
        name = name.lower()
        lines = [*self._plain.get(name, ()), *(line for line in self._matched if line.matches(name))]
        return [key for line in lines if (key := self._key(line)) is not None]

    def _key(self, line: _Line) -> KnownKey | None:
        try:
            return KnownKey(line.type, base64.b64decode(line.blob, validate=True), line.where, line.revoked)
        except ValueError:  # also for characters beyond ASCII
            warning = f"{line.where}: malformed key; the line is skipped"
            if warning not in self.warnings:
                self.warnings.append(warning)
            return None


@dataclass(frozen=True)
class _Line:
    names: str
    type: str
    blob: str
    where: str
    revoked: bool

    @property
    def needs_matching(self) -> bool:
        """True if the names are hashed or patterns, which an index by name cannot find."""
        return self.names.startswith("|") or any(c in self.names for c in "*?!")

    def matches(self, name: str) -> bool:
        if self.names.startswith("|1|"):
            return _hash_matches(self.names, name)
        patterns = self.names.lower().split(",")
        if any(p[0] == "!" and fnmatch.fnmatchcase(name, _escaped(p[1:])) for p in patterns if p):
            return False
        return any(fnmatch.fnmatchcase(name, _escaped(p)) for p in patterns if p and p[0] != "!")


def _escaped(pattern: str) -> str:
    """Escape brackets: in OpenSSH's patterns, only ``*`` and ``?`` are special (``[name]:port``)."""
    return pattern.replace("[", "[[]")


def _hash_matches(names: str, name: str) -> bool:
    try:
        _, _, salt, digest = names.split("|")
        made = hmac.new(base64.b64decode(salt), name.encode(), hashlib.sha1).digest()
        return hmac.compare_digest(made, base64.b64decode(digest))
    except (ValueError, binascii.Error):
        return False


@lru_cache(maxsize=16)
def load(files: tuple[str, ...]) -> KnownHosts:
    """Return the known hosts of ``files``, read once per process."""
    return KnownHosts(files)


def record(path: Path, name: str, keys: list[tuple[str, bytes]], *, replace: bool) -> None:
    """Add ``keys`` (type and bytes) for ``name``; with ``replace``, remove its old lines. Safe to run concurrently."""
    new = [f"{name} {type_} {base64.b64encode(blob).decode()}" for type_, blob in keys]
    path = path.resolve()  # keep a symbolic link
    try:
        if path.exists() and not path.is_file():
            raise OutputError(f"{path}: not a regular file, so no host key can be recorded in it")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with file_lock(Path(f"{path}.gpuops-lock")):
            old = path.read_text("utf-8", "surrogateescape").rstrip("\n").split("\n") if path.exists() else []
            kept = [rest for line in old if line not in new for rest in (_without(line, name) if replace else [line])]
            text = "\n".join([*kept, *new, ""]).lstrip("\n")
            write_atomic(path, text.encode("utf-8", "surrogateescape"), 0o600)
    except OSError as error:
        raise OutputError(f"{path}: cannot record the host key: {error.strerror}") from error
    load.cache_clear()


def _without(line: str, name: str) -> list[str]:
    """Return the line without ``name``, or nothing if the line lists no other server."""
    names, _, key = line.strip().partition(" ")
    if not key or names.startswith(("#", "@")):
        return [line]
    others = [n for n in names.split(",") if n.lower() != name.lower() and not _hash_matches(n, name.lower())]
    return [f"{','.join(others)} {key}"] if others else []

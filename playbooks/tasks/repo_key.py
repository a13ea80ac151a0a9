"""The key that signs a repository, verified by its fingerprint."""

import base64
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpuops import Command, Failed, NodePath, Plan, task, use

_FETCH = """\
if command -v curl >/dev/null; then curl -fsSL --max-time 60 "$1"; else wget -nv -O- --timeout=60 "$1"; fi | base64
"""
_BEGIN, _END = "-----BEGIN PGP PUBLIC KEY BLOCK-----", "-----END PGP PUBLIC KEY BLOCK-----"
_PRIMARY_KEY = 6  # the packet's tag (RFC 9580, 5)


@dataclass(frozen=True)
class Params:
    """``path`` of the key file on the node, and the ``fingerprints`` of all keys in it, 40 digits each.

    The key comes from ``src``, a file next to the playbook, or from ``url``, which the node fetches. ``state`` is
    present, or offered, which only tests that the key can be fetched and is the right one.
    """

    path: NodePath
    fingerprints: tuple[str, ...]
    src: Path | None = None
    url: str = ""
    state: Literal["present", "offered"] = "present"

    def __post_init__(self) -> None:
        """Raise `ValueError` unless there is a path for a key in text form, full fingerprints and one origin."""
        if self.path.endswith(".gpg"):
            raise ValueError(f'path must not end in .gpg: apt reads text as .asc; found "{self.path}"')
        if not self.fingerprints or not all(re.fullmatch("[0-9A-F]{40}", one) for one in self.expected):
            raise ValueError("fingerprints must have 40 hexadecimal digits each, as gpg --show-keys prints them")
        if bool(self.src) == bool(self.url) or (self.url and not re.fullmatch(r"https?://[!-~]+", self.url)):
            raise ValueError("set either src or url (https://…)")

    @property
    def expected(self) -> set[str]:
        """The fingerprints without blanks, in upper case."""
        return {one.replace(" ", "").upper() for one in self.fingerprints}


@task
def repo_key(params: Params) -> Plan:
    """A key with another fingerprint is refused before anything is written; the node needs no gpg."""
    file = yield from use("read", path=params.path)
    if params.state == "present" and file and _is_right(params, _from_text(file["content"])):
        return
    if params.src:
        key = _from_bytes(params.src.read_bytes())
    else:
        answer = yield Command(("sh", "-c", _FETCH, "sh", params.url), timeout_seconds=90)
        key = _from_bytes(_decoded(answer.out))
        if not key:
            yield Failed(f"cannot fetch a key from {params.url}: {answer.last_words() or 'no output'}")
    if not _is_right(params, key):
        fingerprints = ", ".join(_fingerprints(key)) or "no key"
        yield Failed(f"{params.src or params.url} holds {fingerprints}; expected {', '.join(sorted(params.expected))}")
    if params.state == "present":
        yield from use("file", path=params.path, content=_as_text(key))


def _is_right(params: Params, key: bytes) -> bool:
    return set(_fingerprints(key)) == params.expected


def _decoded(text: str) -> bytes:
    """Return decoded base64; no bytes if the text is not base64."""
    try:
        return base64.b64decode(text)
    except ValueError:
        return b""


def _from_bytes(data: bytes) -> bytes:
    """Return the packets of a key, which may be in text form."""
    return _from_text(data.decode("ascii", "replace")) if _BEGIN.encode() in data else data


def _from_text(text: str) -> bytes:
    """Return the packets of the first key block, which are between the empty line and the checksum."""
    body = text.partition(_BEGIN)[2].partition("\n-----END")[0].replace("\r", "").partition("\n\n")[2]
    return _decoded(body.partition("\n=")[0])


def _as_text(packets: bytes) -> str:
    checksum = base64.b64encode(_crc24(packets).to_bytes(3, "big")).decode()
    return f"{_BEGIN}\n\n{base64.encodebytes(packets).decode()}={checksum}\n{_END}\n"


def _crc24(data: bytes) -> int:
    """Return the checksum that rpm requires after a key in text form (RFC 9580, 6.1)."""
    crc = 0xB704CE
    for byte in data:
        crc ^= byte << 16
        for _ in range(8):
            crc = (crc << 1) ^ (0x1864CFB if crc & 0x800000 else 0)
    return crc


def _fingerprints(key: bytes) -> list[str]:
    """Return the fingerprints of all keys; an empty list if the packets are malformed or truncated."""
    try:
        return [_fingerprint(body) for tag, body in _packets(key) if tag == _PRIMARY_KEY]
    except (IndexError, ValueError):
        return []


def _fingerprint(body: bytes) -> str:
    if body[0] != 4:
        raise ValueError("only keys of version 4 have this fingerprint")
    return hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body, usedforsecurity=False).hexdigest().upper()


def _packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield each packet's tag and body (RFC 9580, 4.2); partial lengths are refused."""
    at = 0
    while at < len(data):
        head = data[at]
        if not head & 0x80 or (not head & 0x40 and head & 3 == 3):
            raise ValueError("no packet")
        tag = head & 0x3F if head & 0x40 else head >> 2 & 0x0F
        size, at = _length(data, at + 1) if head & 0x40 else _old_length(data, at + 1, 1 << (head & 3))
        if at + size > len(data):
            raise ValueError("cut off")
        yield tag, data[at : at + size]
        at += size


def _old_length(data: bytes, at: int, octets: int) -> tuple[int, int]:
    return int.from_bytes(data[at : at + octets], "big"), at + octets


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Return a body's size and where it starts."""
    first = data[at]
    if first < 192:
        return first, at + 1
    if first < 224:
        return ((first - 192) << 8) + data[at + 1] + 192, at + 2
    if first == 255:
        return int.from_bytes(data[at + 1 : at + 5], "big"), at + 5
    raise ValueError("partly known length")

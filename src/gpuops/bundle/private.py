"""Removal of secrets and of users' data from a text: what each rule takes out, counted by kind.

A text keeps its lines, so that a vendor's tool still reads it. Values that are secret in one answer, such as a token in
the kernel's command line, are masked in all of them.
"""

from __future__ import annotations

import base64
import posixpath
import re
import xml.sax.saxutils as xml
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gpuops.bundle.kernel_words import hidden_values, without_values
from gpuops.bundle.secret_names import PRIVATE_NAME
from gpuops.secret import MASK, redact

REMOVED = f"{MASK} removed by gpuops: data of users"
_XML_NAME = re.compile(r"(<process_name>)([^<]*)(</process_name>)")
_TEXT_NAME = re.compile(r"^(\s+Name\s+: )(.*)()$", re.MULTILINE)  # no other row of nvidia-smi -q is labelled so
_TABLE_NAME = re.compile(r"^(\|\s+\d+\s.*?\s(?:C|G|C\+G|M\+C)\s+)(\S.*?)(\s+\d+MiB\s+\|)$", re.MULTILINE)
_XID_NAME = re.compile(r"(\bXid (?:(?!\bXid ).)*?, name=)(.*?)(,|$)", re.MULTILINE)
_NAMES = (_XML_NAME, _TEXT_NAME, _TABLE_NAME, _XID_NAME)
_RULES: tuple[tuple[str, re.Pattern[str], str], ...] = (
    ("audit records", re.compile(r"^.*\baudit(?:\(|: type=|\[\d+\]: ).*$", re.MULTILINE), REMOVED),
    ("commands of users", re.compile(r"(\bCOMMAND=|\bCMD \()\S.*$", re.MULTILINE), rf"\1{REMOVED}"),
    (
        "private keys",
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
        REMOVED,
    ),
    ("keys of users", re.compile(r"\b(?:ssh-(?:rsa|ed25519|dss)|ecdsa-sha2-\w+) AAAA\S+.*$", re.MULTILINE), REMOVED),
    ("passwords in addresses", re.compile(r"(\w://[^/\s:@]*:)[^@\s/]+@"), rf"\1{MASK}@"),
    ("tokens", re.compile(r"(\b(?:[Bb]earer|Authorization: ?\w+)\s+)[\w.~+/=-]{8,}"), rf"\1{MASK}"),
    (
        "tokens",
        re.compile(
            r"\b(?:hf_\w{20,}|gh[opsur]_\w{30,}|github_pat_\w{20,}|glpat-[\w-]{20,}|A[KS]IA[0-9A-Z]{16}"
            r"|sk-[\w-]{20,}|xox[abprs]-[\w-]{10,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)"
        ),
        MASK,
    ),
    (
        "secrets",
        re.compile(rf"(\b{PRIVATE_NAME}[\"']?\s*[=:]\s*[\"']?)(?!\*)[^\s\"'<>,;&]+", re.IGNORECASE | re.ASCII),
        rf"\1{MASK}",
    ),
)


@dataclass(frozen=True)
class Private:
    """What one node's answers showed to be private: secret ``values``, and full names of processes."""

    values: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cleaned:
    """A text without private data, and how many pieces of each kind were taken out."""

    text: str
    removed: dict[str, int] = field(default_factory=dict)


def private_of(texts: Iterable[str]) -> Private:
    """Return what is private in a node's answers."""
    values: set[str] = set()
    names: set[str] = set()
    for text in texts:
        values.update(hidden_values(text))
        found = (match[2].strip() for pattern in _NAMES for match in pattern.finditer(text))
        names.update(xml.unescape(name) for name in found if _base(xml.unescape(name)) != xml.unescape(name))
    return Private(tuple(sorted(values, key=len, reverse=True)), tuple(sorted(names, key=len, reverse=True)))


def cleaned(text: str, private: Private) -> Cleaned:
    """Return ``text`` without secrets and users' data."""
    removed: Counter[str] = Counter()
    text, count = without_values(text)
    removed["kernel parameters"] += count
    for pattern in _NAMES:
        text = pattern.sub(_counting(removed), text)
    for name in private.names:
        for spelling in {name, xml.escape(name)}:
            removed["process names"] += text.count(spelling)
            text = text.replace(spelling, _base(name))
    for kind, pattern, replacement in _RULES:
        text, count = pattern.subn(replacement, text)
        removed[kind] += count
    for spelling in (spelling for value in private.values for spelling in _spellings(value)):
        removed["secrets"] += text.count(spelling)
        text = text.replace(spelling, MASK)
    masked = redact(text)
    removed["secrets"] += masked.count(MASK) - text.count(MASK)
    return Cleaned(masked, {kind: count for kind, count in removed.items() if count})


def cleaned_document(value: object, private: Private) -> object:
    """Return JSON data with every text cleaned by itself, so that the document stays valid."""
    if isinstance(value, dict):
        return {key: cleaned_document(each, private) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [cleaned_document(each, private) for each in value]
    return cleaned(value, private).text if isinstance(value, str) else value


def _counting(removed: Counter[str]) -> Callable[[re.Match[str]], str]:
    def replace(match: re.Match[str]) -> str:
        base = _base(match[2].strip())
        removed["process names"] += base != match[2].strip()
        return f"{match[1]}{base}{match[3]}"

    return replace


def _base(name: str) -> str:
    """Return a program's base name, without its folder and arguments; words such as [Not Found] stay."""
    return name if name.startswith("[") else posixpath.basename(name.split(" ", 1)[0].rstrip("/")) or name


def _spellings(value: str) -> tuple[str, str]:
    return value, base64.b64encode(value.encode()).decode()

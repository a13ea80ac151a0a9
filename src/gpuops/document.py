"""Strict YAML: every value has its file, line and column, and every error message begins with them.

A document is a tree of `YamlNode`. Duplicate keys, tabs, keys that are not text and alias bombs are rejected. A scalar
keeps its text, and the type that the *reader* asks for decides its meaning: ``text()`` of ``22:30`` is ``22:30``, never
81000. ``plain()`` returns the value that Ansible would read (YAML 1.1), for free-form variables.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from gpuops.errors import DocumentError, Problems, did_you_mean

_LARGEST_BYTES = 32 * 1024 * 1024
_MOST_NODES = 500_000
_MOST_DIGITS = 100  # no quantity has more, and Python refuses to read some thousand of them
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_VERSION_TRAP = re.compile(r"\d+\.\d+|0\d+|\d+(:\d+)+")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


WHOLE = 0
"""Line of a `Where` that is a file as a whole, such as one that cannot be read."""


@dataclass(frozen=True)
class Where:
    """Position in a file; line and column count from 1. An option of the command line and `WHOLE` have neither."""

    file: str
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        whole = self.line == WHOLE or self.file.startswith("--")
        return self.file if whole else f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Opaque:
    """Value that only its own tool can read (``!vault``, ``!unsafe``, ``{{ lookup }}``): an error only when used."""

    tag: str
    text: str = field(repr=False)


@dataclass(frozen=True)
class YamlNode:
    """One value of a document: a map has ``entries``, a list ``items``, anything else ``scalar``.

    ``keys`` are the positions of a map's keys. ``typed_keys`` are the keys that YAML 1.1 does not read as text, with
    the type that it reads (``{"010": "int"}``).
    """

    where: Where
    tag: str
    scalar: str | None = None
    quoted: bool = False
    entries: dict[str, YamlNode] | None = None
    items: list[YamlNode] | None = None
    keys: dict[str, Where] = field(default_factory=dict)
    typed_keys: dict[str, str] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """True if there is no value here (``key:``, ``~`` or ``null``)."""
        return self.tag.endswith(":null")

    def fail(self, what: str) -> DocumentError:
        """Return an error at this position, for the caller to raise."""
        return DocumentError(self.where, what)

    def map(self, what: str = "a map") -> dict[str, YamlNode]:
        """Return the entries; an empty node is an empty map."""
        if self.empty:
            return {}
        if self.entries is None:
            raise self.fail(f"expected {what} (key: value), found {self.kind}")
        return self.entries

    def list(self, what: str = "a list") -> list[YamlNode]:
        """Return the items; an empty node is an empty list."""
        if self.empty:
            return []
        if self.items is None:
            raise self.fail(f"expected {what} (- item), found {self.kind}")
        return self.items

    def text(self, what: str = "text") -> str:
        """Return the scalar as written."""
        if self.scalar is None or self.empty:
            raise self.fail(f"expected {what}, found {self.kind}")
        return self.scalar

    def word(self, what: str = "text") -> str:
        """Return the scalar as text; reject bare ``010``, ``22:30`` and ``yes``, which are not text in YAML 1.1."""
        text = self.text(what)
        if not self.quoted and not isinstance(self.plain(), Opaque) and str(self.plain()) != text:
            raise self.fail(f'{what} {text} reads as {self.plain()}; put it in quotes: "{text}"')
        return text

    def version(self, what: str = "a version") -> str:
        """Return a version; reject ``1.10`` without quotes, which other YAML readers read as a number."""
        if not self.quoted and _VERSION_TRAP.fullmatch(self.text(what)):
            raise self.fail(f'{what} {self.scalar} reads as a number; put it in quotes: "{self.scalar}"')
        return self.text(what)

    def integer(self, what: str = "a whole number", low: int | None = None, high: int | None = None) -> int:
        """Return the scalar as an integer from ``low`` to ``high``; reject a leading zero (octal in YAML 1.1)."""
        text = self.text(what)
        if not re.fullmatch(r"-?(0|[1-9][0-9]*)", text):
            raise self.fail(f"{what} is expected, found {self.kind}")
        if len(text) > _MOST_DIGITS:
            raise self.fail(f"{what} is expected, found one of {len(text)} digits")
        number = int(text)
        if (low is not None and number < low) or (high is not None and number > high):
            raise self.fail(f"{what} must be between {low} and {high}, found {number}")
        return number

    def number(self, what: str = "a number") -> float:
        """Return the scalar as a decimal number."""
        text = self.text(what)
        if not re.fullmatch(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?", text):
            raise self.fail(f"{what} is expected, found {self.kind}")
        return float(text)

    def boolean(self, what: str = "true or false") -> bool:
        """Return the scalar as a bool: true or false, and also yes, no, on and off."""
        text = self.text(what).lower()
        if text not in _BOOLEANS:
            raise self.fail(f"{what} is expected, found {self.kind}")
        return _BOOLEANS[text]

    def only(
        self, keys: Iterable[str], inside: str, instead: Mapping[str, str] = MappingProxyType({})
    ) -> dict[str, YamlNode]:
        """Return the entries; raise `DocumentError` for the keys that are not among ``keys``.

        ``instead`` has the key that is meant by another name.
        """
        allowed, problems = list(keys), Problems()
        for key in self.map():
            if key not in allowed:
                near = did_you_mean(instead.get(key, key), allowed) or f"; known: {', '.join(allowed)}"
                problems.add(DocumentError(self.keys[key], f'unknown key "{key}" {inside}{near}'))
        problems.tell()
        return self.map()

    @property
    def kind(self) -> str:
        """Short description of the value for a message: ``nothing``, ``a map``, ``a list`` or the quoted scalar."""
        if self.empty:
            return "nothing"
        if self.entries is not None:
            return "a map"
        return "a list" if self.items is not None else _quoted(self.scalar or "")

    def plain(self) -> Any:
        """Return the value as YAML 1.1 and Ansible read it; tagged scalars stay `Opaque`."""
        if self.entries is not None:
            return {key: node.plain() for key, node in self.entries.items()}
        if self.items is not None:
            return [node.plain() for node in self.items]
        if not self.tag.startswith("tag:yaml.org,2002:"):
            return Opaque(self.tag, self.scalar or "")
        return self.scalar if self.tag.endswith(":str") else _construct(self)


def _quoted(text: str) -> str:
    """Quote a scalar for a message, always on one line."""
    line = text.encode("unicode_escape").decode() if not text.isprintable() else text
    return f'"{line}"' if len(line) <= 80 else f'"{line[:77]}..."'


def _construct(node: YamlNode) -> Any:
    """Read a scalar with PyYAML's own safe constructor, so that it has the same value as in Ansible."""
    maker = yaml.constructor.SafeConstructor()
    try:
        return maker.construct_object(yaml.ScalarNode(node.tag, node.scalar))
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, OverflowError) as error:  # !!int "", !!bool maybe
        raise node.fail(f"{node.kind} is not a valid {node.tag.rsplit(':', 1)[-1]}") from error


def load(path: Path) -> YamlNode:
    """Return the one document in ``path``; raise `DocumentError` for anything else."""
    return parse(read_text(path), str(path))


def read_text(path: Path, *, keep_mark: bool = False) -> str:
    """Return the text of a UTF-8 file; accept a byte order mark and CRLF, but not UTF-16 or binary data.

    With ``keep_mark``, the mark stays the first character: other programs may not accept it.
    """
    try:
        return read_bytes(path).decode("utf-8" if keep_mark else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentError(Where(str(path), WHOLE), "not UTF-8 text; save it as UTF-8") from error


def read_bytes(path: Path, most_bytes: int = _LARGEST_BYTES) -> bytes:
    """Return the content of a file; raise `DocumentError` if it cannot be read, or has more than ``most_bytes``.

    No more is read than that, because a device or a pipe has no size.
    """
    try:
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in its name
        why = (getattr(error, "strerror", None) or str(error)).lower()
        raise DocumentError(Where(str(path), WHOLE), f"cannot be read: {why}") from error
    if len(content) > most_bytes:
        raise DocumentError(Where(str(path), WHOLE), f"larger than {most_bytes >> 20} MiB; is this the right file?")
    return content


def regular(path: Path) -> Path:
    """Return ``path``; raise `DocumentError` for a device or a pipe, which may block a reader or never end.

    For files that gpuops finds by itself. A user may name a pipe.
    """
    if exists(path) and not is_file(path):
        raise DocumentError(Where(str(path), WHOLE), "not a regular file")
    return path


def is_file(path: Path) -> bool:
    """Return whether there is a file; False also for a name that no file can have, for which pathlib raises."""
    return os.path.isfile(path)  # noqa: PTH113


def is_directory(path: Path) -> bool:
    """Return whether there is a directory; False also for a name that none can have."""
    return os.path.isdir(path)  # noqa: PTH112


def exists(path: Path) -> bool:
    """Return whether there is anything at ``path``; False also for a name that nothing can have."""
    return os.path.exists(path)  # noqa: PTH110


def parse(text: str, file: str) -> YamlNode:
    """Return the one document in ``text``."""
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = Where(file, mark.line + 1, mark.column + 1) if mark else Where(file)
        line = [*text.split("\n"), ""][min(where.line - 1, text.count("\n"))]
        raise DocumentError(where, _explain(error.problem or str(error), line, where)) from error
    except (yaml.YAMLError, RecursionError) as error:
        raise DocumentError(_character_place(error, text, file), _first_line(error)) from error
    if root is None:
        return YamlNode(Where(file), "tag:yaml.org,2002:null")
    reader = _Reader(file)
    reader.weigh(root)
    return reader.read(root)


def parse_json(text: str) -> Any:
    """Return the value of a JSON document; raise `ValueError` if it is none, or is nested too deeply to be read."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def dump(value: Any) -> str:
    """Return ``value`` (plain maps, lists, scalars and `Opaque`) as YAML that loads as the same value."""
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120))


class _Dumper(yaml.SafeDumper):
    """Dumper that writes `Opaque` with its own tag, and never an anchor: a shared map is written twice."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True


def _write_opaque(dumper: yaml.SafeDumper, value: Opaque) -> yaml.Node:
    return dumper.represent_scalar(value.tag, value.text, style="|" if "\n" in value.text else '"')


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    """Put unprintable text in double quotes; PyYAML would write U+0085 bare and read it back as a blank."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"')


_Dumper.add_representer(Opaque, _write_opaque)
_Dumper.add_representer(str, _write_text)


def _first_line(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error).splitlines()[0]


def _character_place(error: Exception, text: str, file: str) -> Where:
    position = getattr(error, "position", None)
    if not isinstance(position, int):
        return Where(file)
    before = text[:position]
    return Where(file, before.count("\n") + 1, position - before.rfind("\n"))


def _explain(problem: str, line: str, where: Where) -> str:
    """Return PyYAML's error message, but name a tab in the indentation, for which PyYAML's wording is obscure."""
    if "cannot start any token" in problem and line[where.column - 1 : where.column] == "\t":
        return "a tab in the indentation; use spaces"
    return problem.strip()


class _Reader:
    """Converter from PyYAML's nodes to `YamlNode`; it weighs them first, to stop early at an alias bomb."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.weights: dict[yaml.Node, int] = {}

    def weigh(self, node: yaml.Node, depth: int = 0) -> int:
        """Return the number of nodes in this one after every alias in it is expanded."""
        if node not in self.weights:
            inner = node.value if isinstance(node, (yaml.MappingNode, yaml.SequenceNode)) else ()
            parts = [part for item in inner for part in (item if isinstance(item, tuple) else (item,))]
            weight = 1 + sum(self.weigh(part, depth + 1) for part in parts) if depth <= 100 else _MOST_NODES + 1
            if weight > _MOST_NODES:
                raise DocumentError(self.place(node), "aliases or nesting make this document too large")
            self.weights[node] = weight
        return self.weights[node]

    def read(self, node: yaml.Node) -> YamlNode:
        where = self.place(node)
        if node.tag.startswith("tag:yaml.org,2002:python/"):
            shown = node.tag.replace("tag:yaml.org,2002:", "!!")
            raise DocumentError(where, f"{shown} is not allowed; write plain values only")
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, where)
        if isinstance(node, yaml.SequenceNode):
            return YamlNode(where, node.tag, items=[self.read(item) for item in node.value])
        return YamlNode(where, node.tag, scalar=node.value, quoted=getattr(node, "style", None) in ("'", '"'))

    def mapping(self, node: yaml.MappingNode, where: Where) -> YamlNode:
        entries: dict[str, YamlNode] = {}
        keys: dict[str, Where] = {}
        typed: dict[str, str] = {}
        merged: list[YamlNode] = []
        for key, value in node.value:
            if key.tag.endswith(":merge"):
                merged += self.merge(value)
                continue
            name = self.key(key)
            if name in entries:
                raise DocumentError(self.place(key), f'duplicate key "{name}", first set on line {keys[name].line}')
            entries[name], keys[name] = self.read(value), self.place(key)
            if not key.tag.endswith(":str"):
                typed[name] = key.tag.rsplit(":", 1)[-1]
        for source in merged:  # the map's own keys win over merged ones, and earlier sources over later ones
            entries, keys, typed = source.map() | entries, source.keys | keys, source.typed_keys | typed
        return YamlNode(where, node.tag, entries=entries, keys=keys, typed_keys=typed)

    def merge(self, value: yaml.Node) -> Iterator[YamlNode]:
        for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
            node = self.read(source)
            node.map("a map to merge")
            yield node

    def key(self, key: yaml.Node) -> str:
        if not isinstance(key, yaml.ScalarNode):
            raise DocumentError(self.place(key), "a key must be plain text")
        return str(key.value)

    def place(self, node: yaml.Node) -> Where:
        return Where(self.file, node.start_mark.line + 1, node.start_mark.column + 1)

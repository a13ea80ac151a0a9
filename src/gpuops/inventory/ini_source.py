"""Reader of Ansible's INI inventories: ``[group]``, ``[group:children]``, ``[group:vars]``, and host lines.

For example, ``gpu01 ansible_port=2222`` is host gpu01 with the variable ansible_port = 2222.
"""

from __future__ import annotations

import ast
import re
import shlex
import warnings
from typing import Any

from gpuops.document import Where, YamlNode
from gpuops.errors import DocumentError, did_you_mean
from gpuops.inventory.draft import Draft

_SECTION = re.compile(r"\[([^:\]\s]+)(?::(\w+))?\]\s*(?:#.*)?")
_CHILD = re.compile(r"([^:\]\s]+)\s*(?:#.*)?")
_PLAIN_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_TAGS = {bool: "bool", int: "int", float: "float", type(None): "null"}


def read(text: str, file: str, draft: Draft) -> None:
    """Add every line of the file to ``draft``."""
    reader = _Reader(file, draft)
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if stripped and stripped[0] not in "#;":
            reader.line(stripped, Where(file, number, line.index(stripped) + 1))
    reader.finish()


class _Reader:
    """Line reader with the current section; children and vars may refer to groups that are declared later."""

    def __init__(self, file: str, draft: Draft) -> None:
        self.file = file
        self.draft = draft
        self.group = "ungrouped"
        self.kind = "hosts"
        self.declared = set(draft.groups)
        self.mentioned: dict[str, tuple[Where, str]] = {}
        self.seen: dict[tuple[str, str, str], Where] = {}

    def line(self, line: str, where: Where) -> None:
        section = _SECTION.fullmatch(line)
        if section:
            self.section(section.group(1), section.group(2) or "hosts", where)
        elif line[0] == "[" and line[-1] == "]":
            raise DocumentError(where, f"{line} is not a section; expected [group], [group:children] or [group:vars]")
        elif self.kind == "hosts":
            self.host(line, where)
        elif self.kind == "children":
            self.child(line, where)
        else:
            self.variable(line, where)

    def section(self, group: str, kind: str, where: Where) -> None:
        if kind not in ("hosts", "children", "vars"):
            hint = did_you_mean(kind, ("children", "vars", "hosts"))
            raise DocumentError(where, f'unknown section "[{group}:{kind}]"{hint}')
        self.group, self.kind = group, kind
        self.draft.group(group, where)
        if kind == "vars":
            self.mentioned.setdefault(group, (where, f"[{group}:vars]"))
        else:
            self.declared.add(group)

    def host(self, line: str, where: Where) -> None:
        (name, _), *assignments = self.words(line, where)
        self.once(name, where)
        variables: dict[str, YamlNode] = {}
        for word, word_where in assignments:
            key, equals, value = word.partition("=")
            if not equals or not key:
                raise DocumentError(word_where, f'expected key=value without spaces around "=", found {word!a}')
            if key in variables:
                raise DocumentError(word_where, f'"{key}" is set twice on this line')
            variables[key] = literal(value, word_where)
        self.draft.host(self.group, name, where, variables)

    def words(self, line: str, where: Where) -> list[tuple[str, Where]]:
        """Split the line as a shell would and return each word with its place."""
        lexer = shlex.shlex(line, posix=True)
        lexer.whitespace_split = True
        words: list[tuple[str, Where]] = []
        column = 0
        try:
            for word in lexer:
                column = max(line.find(word.split("=")[0], column), column)
                words.append((word, Where(where.file, where.line, where.column + column)))
                column += len(word)
        except ValueError as error:
            raise DocumentError(where, f"{str(error).lower()} on this line") from error
        if not words:
            raise DocumentError(where, "expected a host name")
        return words

    def child(self, line: str, where: Where) -> None:
        match = _CHILD.fullmatch(line)
        if match is None:
            raise DocumentError(where, f"expected the name of a group, found {line!a}")
        self.once(match.group(1), where)
        self.mentioned.setdefault(match.group(1), (where, f"[{self.group}:children]"))
        self.draft.child(self.group, match.group(1), where)

    def variable(self, line: str, where: Where) -> None:
        key, equals, value = (part.strip() for part in line.partition("="))
        if not equals or not key:
            raise DocumentError(where, f"expected key=value, found {line!a}")
        self.once(key, where)
        self.draft.groups[self.group].vars[key] = literal(value, where)

    def once(self, name: str, where: Where) -> None:
        key = (self.group, self.kind, name)
        if key in self.seen:
            line = self.seen[key].line
            raise DocumentError(where, f'duplicate "{name}" in {self.group}, first set on line {line}')
        self.seen[key] = where

    def finish(self) -> None:
        for name, (where, section) in self.mentioned.items():
            if name not in self.declared:
                hint = did_you_mean(name, self.declared) or f"; declare it: [{name}]"
                raise DocumentError(where, f'{section} refers to an unknown group "{name}"{hint}')


def literal(text: str, where: Where) -> YamlNode:
    """Return a value as Ansible reads it in INI: as a Python literal if it is one, else as text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "\d" in a password is not an invalid escape
            value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        value = text
    if value is ...:
        value = text
    if isinstance(value, (int, float)) and not isinstance(value, bool) and _PLAIN_NUMBER.fullmatch(text):
        return YamlNode(where, f"tag:yaml.org,2002:{_TAGS[type(value)]}", text)  # keeps 1.10 as written
    return node_of(value, where)


def node_of(value: Any, where: Where) -> YamlNode:
    """Return a Python value as a node of a document."""
    if isinstance(value, dict):
        entries = {str(key): node_of(item, where) for key, item in value.items()}
        return YamlNode(where, "tag:yaml.org,2002:map", entries=entries, keys=dict.fromkeys(entries, where))
    if isinstance(value, (list, tuple, set)):
        return YamlNode(where, "tag:yaml.org,2002:seq", items=[node_of(item, where) for item in value])
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return YamlNode(where, f"tag:yaml.org,2002:{_TAGS.get(type(value), 'str')}", text, quoted=isinstance(value, str))

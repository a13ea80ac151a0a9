"""Editing a YAML inventory: one more host in a group, every other line of the file unchanged."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from gpuops.document import Where, YamlNode, parse
from gpuops.errors import DocumentError


def add_host_to_group(text: str, file: str, group: str, host: str) -> str:
    """Return the inventory ``text`` with ``host`` as the last one under ``group``; unchanged if it is there already.

    `DocumentError` if the group is not in it, or is written in a form to which no line can be added.
    """
    root = parse(text, file)
    group_node = next(_groups(root, group), None)
    if group_node is None:
        raise DocumentError(Where(file), f'there is no group "{group}" to add {host} to; write it first')
    hosts = group_node.map().get("hosts")
    if hosts is None:
        raise group_node.fail(f'group "{group}" has no "hosts:" to add {host} to; write it first')
    if host in (hosts.entries or {}):
        return text
    edited = _insert_line(text, group_node, hosts, host)
    if edited is None or _plain(edited, file) != _expected_document(root, group, host):
        raise hosts.fail(f'{host} cannot be added to group "{group}" as it is written here; add it by hand')
    return edited


def _groups(node: YamlNode, name: str) -> Iterator[YamlNode]:
    """The groups called ``name`` that have something in them, at any depth."""
    for key, group in (node.entries or {}).items():
        if key == name and group.entries:
            yield group
        if group.entries and "children" in group.entries:
            yield from _groups(group.entries["children"], name)


def _insert_line(text: str, group: YamlNode, hosts: YamlNode, host: str) -> str | None:
    """Return the text with one line more; None if the hosts are not written one per line."""
    lines = text.splitlines(keepends=True)
    if hosts.empty:
        key = group.keys["hosts"]
        after, column = key.line, key.column + 2
    elif hosts.keys:
        last = max(hosts.keys.values(), key=lambda where: where.line)
        after, column = _end(lines, last), last.column
    else:
        return None
    if after and not lines[after - 1].endswith("\n"):
        lines[after - 1] += "\n"
    return "".join([*lines[:after], f"{'':{column - 1}}{host}:\n", *lines[after:]])


def _end(lines: list[str], key: Where) -> int:
    """How many lines there are up to the end of what ``key`` holds; comments and blank lines behind it do not count."""
    end = key.line
    for number, line in enumerate(lines[key.line :], start=key.line + 1):
        content = line.strip()
        if content and not content.startswith("#"):
            if len(line) - len(line.lstrip(" ")) < key.column:
                break
            end = number
    return end


def _expected_document(root: YamlNode, group: str, host: str) -> Any:
    """Return the content that the inventory should have afterwards."""
    document = copy.deepcopy(root)
    group_entries = next(_groups(document, group)).map()
    entries = {**(group_entries["hosts"].entries or {}), host: YamlNode(root.where, "tag:yaml.org,2002:null")}
    group_entries["hosts"] = YamlNode(root.where, "tag:yaml.org,2002:map", entries=entries)
    return document.plain()


def _plain(text: str, file: str) -> Any:
    try:
        return parse(text, file).plain()
    except DocumentError:
        return None

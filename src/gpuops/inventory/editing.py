"""Add a host to a group of a YAML inventory and keep every other line of the file unchanged."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from gpuops.document import Where, YamlNode, parse
from gpuops.errors import DocumentError


def add_host_to_group(text: str, file: str, group: str, host: str) -> str:
    """Return the inventory ``text`` with ``host`` as the last one under ``group``; unchanged if it is there already.

    Raise `DocumentError` if the group is missing, or is written in a form to which no line can be added.
    """
    root = parse(text, file)
    group_node = next(_groups(root, group), None)
    if group_node is None:
        raise DocumentError(Where(file), f'no group called "{group}" to add {host} to; create it first')
    hosts = group_node.map().get("hosts")
    if hosts is None:
        raise group_node.fail(f'group "{group}" has no "hosts:" to add {host} to; create it first')
    if host in (hosts.entries or {}):
        return text
    edited = _insert_line(text, group_node, hosts, host)
    if edited is None or _plain(edited, file) != _expected_document(root, group, host):
        raise hosts.fail(f'cannot add {host} to group "{group}" in this notation; add it by hand')
    return edited


def _groups(node: YamlNode, name: str) -> Iterator[YamlNode]:
    """Yield the non-empty groups called ``name``, at any depth."""
    for key, group in (node.entries or {}).items():
        if key == name and group.entries:
            yield group
        if group.entries and "children" in group.entries:
            yield from _groups(group.entries["children"], name)


def _insert_line(text: str, group: YamlNode, hosts: YamlNode, host: str) -> str | None:
    """Return the text with one more line; None if the hosts are not written one per line."""
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
    """Return the number of the last line of ``key``'s value, without comments and blank lines after it."""
    end = key.line
    for number, line in enumerate(lines[key.line :], start=key.line + 1):
        content = line.strip()
        if content and not content.startswith("#"):
            if len(line) - len(line.lstrip(" ")) < key.column:
                break
            end = number
    return end


def _expected_document(root: YamlNode, group: str, host: str) -> Any:
    """Return the content that the edited inventory should have."""
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

"""Strict reader of Ansible's YAML inventories: a group has hosts, children and vars, and nothing else.

For example, ``all: {hosts: {gpu01: {ansible_port: 2222}}}`` is host gpu01 with the variable ansible_port = 2222.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuops.document import Where, YamlNode
from gpuops.errors import DocumentError
from gpuops.inventory.draft import Draft


def read(root: YamlNode, draft: Draft) -> None:
    """Add every group of the document to ``draft``."""
    if "plugin" in root.map("groups") and root.map()["plugin"].scalar is not None:
        raise DocumentError(root.keys["plugin"], "an inventory plugin's settings; gpuops reads only static inventories")
    for name, node, where in _names(root, "a map of groups"):
        _read_group(draft, name, node, where)


def _read_group(draft: Draft, name: str, node: YamlNode, where: Where) -> None:
    group = draft.group(name, where)
    for part, inner in node.only(("hosts", "children", "vars"), f'under group "{name}"').items():
        if part == "vars":
            group.vars |= inner.map(f'the variables of group "{name}"')
        for key, value, place in _names(inner, f"a map of {part}") if part != "vars" else ():
            if part == "hosts":
                draft.host(name, key, place, value.map(f'the variables of "{key}"'))
            else:
                draft.child(name, key, place)
                _read_group(draft, key, value, place)


def _names(node: YamlNode, what: str) -> Iterator[tuple[str, YamlNode, Where]]:
    """Yield each name with its value and position; ``hosts: gpu01`` is one name, as in Ansible."""
    if node.scalar is not None and not node.empty:
        yield node.word(what), YamlNode(node.where, "tag:yaml.org,2002:null"), node.where
        return
    for name, value in node.map(what).items():
        if name in node.typed_keys:
            kind = node.typed_keys[name]
            raise DocumentError(node.keys[name], f'the name {name} reads as {kind}; put it in quotes: "{name}"')
        yield name, value, node.keys[name]

"""Variables: ``{{ name }}`` in a parameter is a plain look-up, resolved before any node is contacted.

Look-ups are resolved only in what a person wrote: the playbook's variables and the inventory's. The inventory knows its
nodes better than a playbook for all of them, so its values win; maps are merged entry by entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from gpuops.document import YamlNode
from gpuops.errors import did_you_mean
from gpuops.inventory import Host
from gpuops.inventory.values import opaque
from gpuops.playbook.parameters import as_node

NODE = "node"
_BRACES = re.compile(r"\{\{\s*([A-Za-z_]\w*(?:\.\w+)*)\s*\}\}")
_OURS = ("!env", "!file", "!secret")
_DEEPEST = 10


def own_variables(host: Host) -> dict[str, YamlNode]:
    """Return the inventory's variables of a node, and the node itself as ``node``."""
    own = {name: as_node(value, host.origin) for name, value in host.vars.items()}
    return {**own, NODE: as_node(_about(host), host.origin)}


class Variables:
    """The names available in ``{{ … }}``.

    The ``own`` values of a node (see `own_variables`) override the playbook's ``defaults``; ``extra`` ones, which the
    user gives for a run, override both.
    """

    def __init__(
        self,
        defaults: Mapping[str, YamlNode],
        own: Mapping[str, YamlNode],
        extra: Mapping[str, YamlNode] = MappingProxyType({}),
    ) -> None:
        self._values = dict(defaults)
        for values in (own, extra):
            merged = {name: _merged(self._values[name], values[name]) for name in self._values.keys() & values.keys()}
            self._values = {**self._values, **values, **merged}

    @property
    def names(self) -> set[str]:
        """Every variable."""
        return set(self._values)

    def plain(self, names: Iterable[str]) -> dict[str, Any]:
        """Return those of ``names`` that are variables, as plain values for a condition."""
        return {name: self.resolve(self._values[name]).plain() for name in names if name in self._values}

    def has_lookups(self, node: YamlNode) -> bool:
        """Return True if ``node`` contains any look-up, so that it may differ from host to host."""
        inner = [*(node.entries or {}).values(), *(node.items or [])]
        return "{{" in (node.scalar or "") or any(map(self.has_lookups, inner))

    @staticmethod
    def looked_up(node: YamlNode) -> set[str]:
        """Return the names of the variables that ``node`` looks up."""
        inner = [*(node.entries or {}).values(), *(node.items or [])]
        names = {path.partition(".")[0] for path in _BRACES.findall(node.scalar or "")}
        return names.union(*map(Variables.looked_up, inner))

    def resolve(self, node: YamlNode, depth: int = 0) -> YamlNode:
        """Return ``node`` with all look-ups resolved; raise `DocumentError` if a name is unknown."""
        if node.entries is not None:
            return replace(node, entries={key: self.resolve(entry, depth) for key, entry in node.entries.items()})
        if node.items is not None:
            return replace(node, items=[self.resolve(item, depth) for item in node.items])
        if node.scalar is None or ("{{" not in node.scalar and "{%" not in node.scalar):
            return node
        if depth > _DEEPEST:
            raise node.fail(f"{node.scalar} refers to itself")
        return self._looked_up(node, node.scalar, depth)

    def _looked_up(self, node: YamlNode, text: str, depth: int) -> YamlNode:
        rest = _BRACES.sub("", text)
        if "{{" in rest or "{%" in rest:
            raise node.fail(f"{text}: only a plain look-up is allowed in braces: {{{{ name.part }}}}")
        whole = _BRACES.fullmatch(text.strip())
        if whole:
            return self._value(node, whole[1], depth)
        joined = _BRACES.sub(lambda match: self._value(node, match[1], depth).text(f"{{{{ {match[1]} }}}}"), text)
        return replace(node, scalar=joined, quoted=True)

    def _value(self, node: YamlNode, path: str, depth: int) -> YamlNode:
        """Return the value that ``path`` (``a.b.c``) names."""
        entries, at = self._values, ""
        for name in path.split("."):
            if name not in entries:
                owner = f"{at} has no" if at else "no variable named"
                raise node.fail(f'{owner} "{name}"{did_you_mean(name, entries)}')
            value, at = entries[name], f"{at}.{name}".lstrip(".")
            if _foreign(value):
                raise node.fail(
                    f"{at} ({value.where}) is a template or encrypted, which gpuops cannot read; set a plain value"
                )
            value = self.resolve(value, depth + 1)
            entries = value.entries or {}
        return value


def _foreign(value: YamlNode) -> bool:
    """Return True for an encrypted value, or an Ansible template in the inventory, whose braces are not ours."""
    return value.tag not in _OURS and bool(opaque(value)) and not _BRACES.search(value.scalar or "")


def _merged(default: YamlNode, own: YamlNode) -> YamlNode:
    if default.entries is None or own.entries is None:
        return own
    both = default.entries.keys() & own.entries.keys()
    merged = {name: _merged(default.entries[name], own.entries[name]) for name in both}
    return replace(own, entries={**default.entries, **own.entries, **merged}, keys={**default.keys, **own.keys})


def _about(host: Host) -> dict[str, Any]:
    facts = {name: getattr(host, name) for name in ("name", "address", "groups", "profile", "rack")}
    return {name: value for name, value in facts.items() if value is not None}

"""Resolve a draft into hosts and groups: the tree of groups, Ansible's variable precedence, and the typed fields.

Precedence in Ansible, from lowest to highest: inline variables of ``all``; of the other groups from general to specific
(depth, then ``ansible_group_priority``, then name); ``group_vars/all``; the other ``group_vars/`` in the same order;
the host's inline variables; ``host_vars/``.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gpuops.document import YamlNode
from gpuops.errors import DocumentError
from gpuops.inventory.draft import Draft, DraftHost
from gpuops.inventory.group import Group
from gpuops.inventory.host import Host
from gpuops.inventory.typed import Values
from gpuops.inventory.vars_files import VarsFiles

_PRIORITY = "ansible_group_priority"


@dataclass(frozen=True)
class _Layers:
    """Merged variables of the hosts in the same groups, and those that a merge group by group would get wrong."""

    groups: tuple[str, ...]
    nodes: Mapping[str, YamlNode]
    plain: dict[str, Any]
    shadowed: Mapping[str, Any]


class InventoryResolver:
    """Resolver of one draft; ``hosts`` and ``groups`` are the result, ``warnings`` are for the user."""

    def __init__(self, draft: Draft, folder: Path) -> None:
        self.draft = draft
        self.files = VarsFiles(folder)
        self.values = Values()
        self._attach()
        self.parents = _parents(draft)
        self.file_vars = {name: self.files.read("group_vars", name) for name in draft.groups}
        self.order = self._order()
        self._layers: dict[tuple[str, ...], _Layers] = {}
        self.groups = {name: self._group(name) for name in draft.groups}
        direct = _direct_groups(draft)
        self.hosts = {name: self._host(name, host, direct[name]) for name, host in draft.hosts.items()}
        self.warnings = [*self.files.warnings, *self.values.warnings.values(), *self._namesakes()]

    def _attach(self) -> None:
        """Put every group under ``all``, and hosts without a group into ``ungrouped``."""
        self.draft.check_circles()
        groups = self.draft.groups
        below = {child for group in groups.values() for child in group.children}
        first = {"ungrouped": groups["ungrouped"].origin}
        roots = {name: g.origin for name, g in groups.items() if name not in below and name != "all"}
        groups["all"].children = {**first, **groups["all"].children, **roots}
        grouped = {h for name, g in groups.items() if name not in ("all", "ungrouped") for h in g.hosts}
        groups["all"].hosts = {}
        groups["ungrouped"].hosts = {h: None for h in self.draft.hosts if h not in grouped}

    def _order(self) -> dict[str, tuple[int, int, str]]:
        """Return the sort key for merging per group: its depth (longest path from ``all``), priority and name."""
        depth = {"all": 0}
        unvisited = [(name, False) for name in self.draft.groups]
        while unvisited:
            name, are_parents_visited = unvisited.pop()
            if are_parents_visited:
                depth[name] = 1 + max(depth[p] for p in self.parents[name])
            elif name not in depth:
                unvisited += [(name, True), *((p, False) for p in self.parents[name])]
        return {name: (depth[name], self._priority(name), name) for name in self.draft.groups}

    def _priority(self, name: str) -> int:
        node = self.draft.groups[name].vars.get(_PRIORITY)
        return node.integer(_PRIORITY) if node else 1

    def _group(self, name: str) -> Group:
        draft = self.draft.groups[name]
        merged = self.values.plain({**draft.vars, **self.file_vars[name]})
        return Group(name, draft.origin, tuple(draft.hosts), tuple(draft.children), MappingProxyType(merged))

    def _layers_of(self, direct: tuple[str, ...]) -> _Layers:
        if direct not in self._layers:
            groups, unvisited = set(direct), list(direct)
            while unvisited:
                parents = self.parents[unvisited.pop()]
                unvisited += [name for name in parents if name not in groups]
                groups.update(parents)
            self._layers[direct] = self._merge(sorted(groups | {"all"}, key=self.order.__getitem__))
        return self._layers[direct]

    def _merge(self, groups: list[str]) -> _Layers:
        inline = [self.draft.groups[name].vars for name in groups]
        files = [self.file_vars[name] for name in groups]
        nodes = {k: v for layer in (*inline, *files) for k, v in layer.items() if k != _PRIORITY}
        by_group = {k: v for pair in zip(inline, files, strict=True) for layer in pair for k, v in layer.items()}
        shadowed = {k: v for k, v in nodes.items() if by_group[k] is not v}
        return _Layers(tuple(groups[1:]), nodes, self.values.plain(nodes), self.values.plain(shadowed))

    def _host(self, name: str, draft: DraftHost, direct: tuple[str, ...]) -> Host:
        layers = self._layers_of(direct)
        own = {**draft.vars, **self.files.read("host_vars", name)}
        own_vars = {**layers.shadowed, **self.values.plain(own)}
        fields: dict[str, Any] = {"address": name, **self.values.typed({**layers.nodes, **own})}
        return Host(
            name,
            origin=draft.origin,
            groups=layers.groups,
            vars=MappingProxyType(ChainMap(own_vars, layers.plain)),
            own_vars=MappingProxyType(own_vars),
            **fields,
        )

    def _namesakes(self) -> Iterable[str]:
        for name in self.draft.groups.keys() & self.draft.hosts.keys():
            yield f'{self.draft.hosts[name].origin}: "{name}" is both a host and a group; rename one of them'


def _parents(draft: Draft) -> dict[str, tuple[str, ...]]:
    parents_by_group: dict[str, list[str]] = {name: [] for name in draft.groups}
    for name, group in draft.groups.items():
        for child in group.children:
            parents_by_group[child].append(name)
    return {name: tuple(parents) for name, parents in parents_by_group.items()}


def _direct_groups(draft: Draft) -> dict[str, tuple[str, ...]]:
    groups_by_host: dict[str, list[str]] = {name: [] for name in draft.hosts}
    for name, group in draft.groups.items():
        for host in group.hosts:
            groups_by_host[host].append(name)
    return {host: tuple(names) for host, names in groups_by_host.items()}


def check_addresses(hosts: Mapping[str, Host]) -> None:
    """Raise `DocumentError` if two hosts share address, port and jump; local and unusable hosts do not count."""
    seen: dict[tuple[str, int, str | None, str | None], Host] = {}
    for host in hosts.values():
        if host.connection == "local" or host.unusable_reason:
            continue
        key = (host.address, host.port or 22, host.jump, host.proxy_command)
        other = seen.setdefault(key, host)
        if other is not host:
            endpoint = f"{host.address}:{host.port or 22}"
            names = f"{host.name} and {other.name} (line {other.origin.line})"
            raise DocumentError(host.origin, f"{names} have the same address {endpoint}")

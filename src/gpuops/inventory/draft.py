"""Draft of an inventory while its files are read: it checks names and records where each was first used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuops.document import Where, YamlNode
from gpuops.errors import DocumentError
from gpuops.inventory.names import check_group, check_host, expand, split_port

_SECTIONS = ("hosts", "children", "vars")


@dataclass
class DraftGroup:
    """Draft of a group: its own hosts, the position of each child, and its inline variables."""

    origin: Where
    hosts: dict[str, None] = field(default_factory=dict)
    children: dict[str, Where] = field(default_factory=dict)
    vars: dict[str, YamlNode] = field(default_factory=dict)


@dataclass
class DraftHost:
    """Draft of a host: the position where it is first named, and its inline variables."""

    origin: Where
    vars: dict[str, YamlNode] = field(default_factory=dict)


class Draft:
    """Groups and hosts in the order of the sources, and warnings; ``all`` and ``ungrouped`` always exist."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.groups = {name: DraftGroup(Where(file)) for name in ("all", "ungrouped")}
        self.hosts: dict[str, DraftHost] = {}
        self.warnings: list[str] = []

    def group(self, name: str, where: Where) -> DraftGroup:
        """Return the group called ``name``; create it if it is new."""
        if name not in self.groups:
            if name in _SECTIONS:
                raise DocumentError(where, f'"{name}" is not a group; put it under one, such as "all"')
            self.groups[check_group(name, where)] = DraftGroup(where)
        return self.groups[name]

    def child(self, parent: str, name: str, where: Where) -> None:
        """Put the group ``name`` under ``parent``."""
        if name == "all":
            raise DocumentError(where, '"all" contains every group and cannot be a child of one')
        self.groups[parent].children.setdefault(name, where)

    def host(self, group: str, pattern: str, where: Where, variables: Mapping[str, YamlNode] | None = None) -> None:
        """Add every host of the range ``pattern`` to ``group``, with its inline variables."""
        bare, port = split_port(pattern, where)
        inline_vars = dict(variables or {})
        if port is not None:
            inline_vars = {"ansible_port": YamlNode(where, "tag:yaml.org,2002:int", str(port)), **inline_vars}
        for name in expand(bare, where):
            if name not in self.hosts:
                self.hosts[check_host(name, where)] = DraftHost(where)
            self.hosts[name].vars |= inline_vars
            self.groups[group].hosts[name] = None

    def check_circles(self) -> None:
        """Raise `DocumentError` if a group contains itself, at the position that closes the circle."""
        checked: set[str] = set()
        for start in self.groups:
            path: list[str] = []
            iterators = [iter((start,))]
            while iterators:
                name = next(iterators[-1], None)
                if name is None:
                    iterators.pop()
                    checked.update(path[-1:])
                    del path[-1:]
                elif name in path:
                    chain = " > ".join([*path[path.index(name) :], name])
                    raise DocumentError(self.groups[path[-1]].children[name], f"group {name} contains itself: {chain}")
                elif name not in checked:
                    path.append(name)
                    iterators.append(iter(self.groups[name].children))

"""Named groups of hosts, and their members through the tree of groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuops.document import Where


@dataclass(frozen=True)
class Group:
    """One group: its direct hosts and child groups, and its variables (inline and ``group_vars/``)."""

    name: str
    origin: Where
    hosts: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    vars: Mapping[str, Any] = field(default_factory=dict, hash=False)


def members(groups: Mapping[str, Group], name: str) -> set[str]:
    """Return every host of the group and of the groups below it."""
    hosts: set[str] = set()
    seen, unvisited = {name}, [name]
    while unvisited:
        group = groups[unvisited.pop()]
        hosts.update(group.hosts)
        unvisited += [child for child in group.children if child not in seen]
        seen.update(group.children)
    return hosts

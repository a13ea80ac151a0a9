"""Text report of an inventory: a table of hosts, and the tree of groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gpuops.inventory import Group, Host
from gpuops.report.page import Page, clean


def table(hosts: Iterable[Host], page: Page) -> Iterator[str]:
    """Yield a table with one row per host."""
    rows: list[tuple[str, ...]] = [("HOST", "ADDRESS", "PORT", "USER", "PROFILE", "RACK", "GROUPS")]
    for host in hosts:
        fields = (host.address, host.port, host.user, host.profile, host.rack, ",".join(host.groups))
        rows.append((host.name, *(str(value or "-") for value in fields)))
    yield from page.columns([tuple(map(clean, row)) for row in rows])


def tree(groups: Mapping[str, Group], *, is_whole: bool) -> Iterator[str]:
    """Yield the groups with their child groups and hosts, as a tree.

    A group without hosts says so if the inventory ``is_whole``, that is, not limited; else it is left out, as is the
    group ``ungrouped``, which every inventory has.
    """
    yield "@all:"
    for child in groups["all"].children:
        if child != "ungrouped" or groups[child].hosts:
            yield from _branch(groups, child, 1, is_whole=is_whole)
    yield from (f"  |--{host}" for host in groups["all"].hosts)


def _branch(groups: Mapping[str, Group], name: str, depth: int, *, is_whole: bool) -> Iterator[str]:
    group, indent = groups[name], "  |" * depth
    below = [line for child in group.children for line in _branch(groups, child, depth + 1, is_whole=is_whole)]
    below += [f"{indent}  |--{host}" for host in group.hosts]
    if below:
        yield f"{indent}--@{name}:"
        yield from below
    elif is_whole:
        yield f"{indent}--@{name}: no hosts"

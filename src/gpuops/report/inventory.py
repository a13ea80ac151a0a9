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


def branch(groups: Mapping[str, Group], name: str, depth: int = 0) -> Iterator[str]:
    """Yield the group ``name`` with its child groups and hosts, as a tree."""
    yield f"{'  |' * depth}{'--' if depth else ''}@{name}:"
    for child in groups[name].children:
        yield from branch(groups, child, depth + 1)
    yield from (f"{'  |' * (depth + 1)}--{host}" for host in groups[name].hosts)

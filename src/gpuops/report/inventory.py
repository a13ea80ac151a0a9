"""Text report of an inventory: a table of hosts, and the tree of groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gpuops.inventory import Group, Host


def table(hosts: Iterable[Host]) -> Iterator[str]:
    """Yield a table with one row per host."""
    rows: list[tuple[str, ...]] = [("HOST", "ADDRESS", "PORT", "USER", "PROFILE", "RACK", "GROUPS")]
    for host in hosts:
        fields = (host.address, host.port, host.user, host.profile, host.rack, ",".join(host.groups))
        rows.append((host.name, *(str(value or "-") for value in fields)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def branch(groups: Mapping[str, Group], name: str, depth: int = 0) -> Iterator[str]:
    """Yield the group ``name`` with its child groups and hosts, as a tree."""
    yield f"{'  |' * depth}{'--' if depth else ''}@{name}:"
    for child in groups[name].children:
        yield from branch(groups, child, depth + 1)
    yield from (f"{'  |' * (depth + 1)}--{host}" for host in groups[name].hosts)

"""What most nodes or parts have, and who differs if there is no majority.

``majority(["550.54", "550.54", "535.129"])`` is ``Majority("550.54", 2, 3)``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

V = TypeVar("V", bound=Hashable)
FEWEST_NODES = 3
"""If two nodes differ, there is no majority that shows which one is wrong."""
_MOST_NAMED = 4


@dataclass(frozen=True)
class Majority(Generic[V]):
    """A value that ``count`` of ``total`` have, more than half of them."""

    value: V
    count: int
    total: int


def majority(values: Iterable[V], *, total: int | None = None, fewest: int = 1) -> Majority[V] | None:
    """Return the value that more than half have; None if there is none, or fewer than ``fewest`` are compared.

    ``total`` is the number of those compared, if each may have several values.
    """
    counts = Counter(values)
    compared = total or sum(counts.values())
    usual = (Majority(value, count, compared) for value, count in counts.most_common(1) if 2 * count > compared)
    return next(usual, None) if compared >= fewest else None


def nodes_by_value(value_by_node: Mapping[str, V]) -> dict[V, list[str]]:
    """Return the nodes that have each value."""
    nodes: dict[V, list[str]] = {}
    for node, value in value_by_node.items():
        nodes.setdefault(value, []).append(node)
    return nodes


def split(nodes_by_value: Mapping[str, Sequence[str]]) -> str:
    """Return ``535.129 on gpu01; 550.54 on gpu02, gpu03``, the first few nodes of each."""
    return "; ".join(f"{value} on {_named(nodes)}" for value, nodes in sorted(nodes_by_value.items()))


def _named(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - _MOST_NAMED} more" if len(nodes) > _MOST_NAMED else ""
    return ", ".join(nodes[:_MOST_NAMED]) + more

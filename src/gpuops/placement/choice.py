"""The choice of nodes and GPUs for a layout, and of their order."""

from __future__ import annotations

import itertools
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from gpuops.errors import LayoutError
from gpuops.layout import Layout, needed_gpus
from gpuops.placement.placement import Placement, Rank
from gpuops.placement.shape import GpuShape, NodeShape


def place(layout: Layout, shapes: Sequence[NodeShape], *, allow_fewer: bool = False, force: bool = False) -> Placement:
    """Place every rank on a GPU: TP groups inside an NVLink domain, neighbouring stages in one unit of nodes.

    Rank ``r`` runs on node ``r // n``; each node takes ``n`` ranks, and the last takes the remainder. ``allow_fewer``
    leaves GPUs idle if nodes have different numbers of them; ``force`` lets a TP group leave its NVLink domain. Raise
    `LayoutError` if the nodes cannot hold the layout.
    """
    block = _block(layout)
    nodes = _in_order(_in_blocks(shapes, block))
    used = _fill(layout.ranks, block, nodes)
    if used is None:
        raise LayoutError(_too_few(layout, nodes))
    names = {node.name for node in used}
    idle = list(_idle_gpus(used, {shape.name: len(shape.gpus) for shape in shapes}))
    if len({len(node.gpus) for node in nodes if node.name in names}) > 1 and not allow_fewer:
        raise LayoutError(
            f"{needed_gpus(layout)} fit only if GPUs stay idle on the larger nodes: "
            f"{'; '.join(idle)}; pass --allow-fewer to accept that"
        )
    spares = tuple(node.name for node in nodes if node.name not in names)
    placement = Placement(layout, tuple(_ranks(layout, used)), tuple(used), spares, tuple(idle))
    split = _split_tp_groups(placement)
    if split and not force:
        raise LayoutError(f"{split}; choose a smaller tp, or put tp first in --order (it is {layout.order})")
    return replace(placement, notes=(*idle, split)) if split else placement


def usable_gpus(layout: Layout, shapes: Sequence[NodeShape]) -> int:
    """Return the number of GPUs on which TP groups of ``layout`` can be, each whole inside an NVLink domain."""
    return sum(len(shape.gpus) for shape in _in_blocks(shapes, _block(layout)))


def _block(layout: Layout) -> int:
    """Return the number of neighbouring ranks that hold whole TP groups: tp, times the degrees that run faster."""
    return layout.tp * layout.strides()["tp"] if layout.tp > 1 else 1


def _in_blocks(shapes: Sequence[NodeShape], block: int) -> list[NodeShape]:
    """Limit the shapes to GPUs that make whole blocks, a clique's together; all GPUs if no node has a whole block."""
    whole = [replace(shape, gpus=tuple(_blocks(shape, block))) for shape in shapes]
    return whole if any(shape.gpus for shape in whole) else [replace(s, gpus=tuple(_blocks(s, 1))) for s in shapes]


def _blocks(shape: NodeShape, block: int) -> Iterator[GpuShape]:
    if shape.domain != shape.name:  # its cliques are joined by the switches of the rack
        yield from shape.gpus
        return
    for clique in dict.fromkeys(gpu.clique for gpu in shape.gpus):
        members = [gpu for gpu in shape.gpus if gpu.clique == clique]
        yield from members[: len(members) // block * block]


def _in_order(shapes: Iterable[NodeShape]) -> list[NodeShape]:
    """Sort nodes by natural order of their names, grouped by unit, within it by rack, then by domain."""
    ordered = sorted(shapes, key=lambda shape: _natural_key(shape.name))
    for nearness in ("domain", "rack", "leaves"):
        ordered = _group_by(ordered, operator.attrgetter(nearness))
    return ordered


def _natural_key(name: str) -> list[tuple[str, int]]:
    """Return a key that sorts node2 before node10."""
    return [(word, int(digits or 0)) for word, digits in re.findall(r"([^0-9]*)([0-9]*)", name)]


def _group_by(shapes: Iterable[NodeShape], key: Callable[[NodeShape], object]) -> list[NodeShape]:
    shapes_by_key: dict[object, list[NodeShape]] = {}
    for shape in shapes:
        shapes_by_key.setdefault(key(shape), []).append(shape)
    return [shape for group in shapes_by_key.values() for shape in group]


def _fill(ranks: int, block: int, nodes: Sequence[NodeShape]) -> list[NodeShape] | None:
    """Return the first nodes that hold ``ranks``, limited to the GPUs that they use; None if there are too few.

    Nodes of one size are used if they suffice, the largest first; else all that have at least that size.
    """
    sizes = sorted({len(node.gpus) for node in nodes} - {0}, reverse=True)
    for fits, size in itertools.product((operator.eq, operator.ge), sizes):
        fitting = [node for node in nodes if fits(len(node.gpus), size)]
        candidates = _whole_domains(fitting, math.lcm(block, size) // size)
        count = math.ceil(ranks / size)
        if count <= len(candidates):
            gpu_counts = [min(size, ranks - number * size) for number in range(count)]
            return [replace(node, gpus=node.gpus[:n]) for node, n in zip(candidates, gpu_counts, strict=False)]
    return None


def _whole_domains(nodes: Sequence[NodeShape], block: int) -> list[NodeShape]:
    """Return the nodes that make whole blocks of ``block`` nodes in their NVLink domain; all of them if none do."""
    counts = Counter(node.domain for node in nodes)
    seen: Counter[str] = Counter()
    kept = []
    for node in nodes:
        if seen[node.domain] < counts[node.domain] // block * block:
            kept.append(node)
        seen[node.domain] += 1
    return kept or list(nodes)


def _too_few(layout: Layout, nodes: Sequence[NodeShape]) -> str:
    sizes = Counter(len(node.gpus) for node in nodes)
    available = ", ".join(f"{count} x {size}" for size, count in sorted(sizes.items(), reverse=True)) or "none"
    total = sum(len(node.gpus) for node in nodes)
    why = "on nodes of equal size " if total >= layout.ranks else ""
    groups = f" in groups of tp={layout.tp}" if layout.tp > 1 else ""
    return f"{needed_gpus(layout)} are needed {why}but only {total} are usable{groups} (nodes x GPUs: {available})"


def _idle_gpus(used: Iterable[NodeShape], sizes: dict[str, int]) -> Iterator[str]:
    """Yield which GPUs stay idle on nodes that are used, one sentence for all identical nodes."""
    names_by_use: dict[tuple[int, int], list[str]] = {}
    for node in used:
        if len(node.gpus) < sizes[node.name]:
            names_by_use.setdefault((len(node.gpus), sizes[node.name]), []).append(node.name)
    for (count, size), names in names_by_use.items():
        more = f" and {len(names) - 3} more nodes" if len(names) > 3 else ""
        yield f"{count} of {size} GPUs are used on {', '.join(names[:3])}{more}"


def _ranks(layout: Layout, nodes: Iterable[NodeShape]) -> Iterator[Rank]:
    locations = ((node, local_rank, gpu) for node in nodes for local_rank, gpu in enumerate(node.gpus))
    for rank, (node, local_rank, gpu) in enumerate(locations):
        yield Rank(rank, node.name, local_rank, gpu.index, gpu.nic, gpu.numa, **layout.coordinates(rank))


def _split_tp_groups(placement: Placement) -> str:
    """Describe the first TP group that leaves its NVLink domain; empty if none does."""
    for group in placement.groups["tp"]:
        if len({node.nvlink_domain(gpu) for node, gpu in map(placement.location, group)}) > 1:
            which = f"the TP group of r{group[0]} to r{group[-1]}"
            return f"{which} leaves its NVLink domain and runs over {placement.link(group)}"
    return ""

"""The choice of nodes and GPUs for a layout, and of their order."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from gpuops.errors import LayoutError
from gpuops.layout import Layout, needed_gpus
from gpuops.placement.filling import Fillings
from gpuops.placement.packing import cheapest, natural_key
from gpuops.placement.placement import Placement, Rank
from gpuops.placement.shape import GpuShape, NodeShape
from gpuops.placement.traffic import LinkSpeeds, crossings


def place(
    layout: Layout,
    shapes: Sequence[NodeShape],
    *,
    allow_fewer: bool = False,
    force: bool = False,
    speeds: LinkSpeeds | None = None,
) -> Placement:
    """Place every rank on a GPU, at the least cost (see `gpuops.placement.traffic`).

    A job that fits whole into an NVLink domain that spans nodes, or else into a set of leaf switches, is never torn.
    Nodes of one size are used if they suffice, unless unequal ones are less torn or clearly cheaper. With
    ``allow_fewer``, GPUs stay idle instead, so that nodes of all sizes hold the same number of ranks. ``force`` lets
    TP, CP and EP groups be torn.
    Raise `LayoutError` if the nodes cannot hold the layout.
    """
    nodes = _in_blocks(shapes, _block(layout))
    positions = _positions(layout, nodes, allow_fewer=allow_fewer)
    if positions is None:
        raise LayoutError(_too_few(layout, nodes))
    fitting = [replace(node, gpus=node.gpus[:size]) for node in nodes if (size := positions.limit(len(node.gpus)))]
    chosen = cheapest(layout, positions.ranks, positions.gpus, fitting, speeds or LinkSpeeds())
    used = [replace(node, gpus=node.gpus[:n]) for node, n in zip(chosen, positions.ranks, strict=True)]
    is_uneven = len({len(node.gpus) for node in nodes if node.gpus}) > 1 or len(used[-1].gpus) < len(chosen[-1].gpus)
    if is_uneven and not allow_fewer:
        used = Fillings(layout, nodes, _block(layout), speeds or LinkSpeeds()).better(used)
    return placement_of(layout, used, shapes, force=force)


def placement_of(layout: Layout, used: Sequence[NodeShape], shapes: Sequence[NodeShape], *, force: bool) -> Placement:
    """Return the placement with its notes; raise `LayoutError` if it tears what needs a word."""
    names = {node.name for node in used}
    spares = sorted((shape.name for shape in shapes if shape.name not in names and shape.gpus), key=natural_key)
    idle = _idle_gpus(used, {shape.name: len(shape.gpus) for shape in shapes})
    torn = tuple(crossings(layout, used, [len(node.gpus) for node in used]))
    placement = Placement(layout, tuple(_ranks(layout, used)), tuple(used), tuple(spares), torn=torn)
    split = _split_tp_groups(placement)
    if split and not force:
        raise LayoutError(f"{split}; choose a smaller tp, or put tp first in --order (it is {layout.order})")
    needs_word = [str(crossing) for crossing in torn if crossing.axis in ("cp", "ep")]
    if needs_word and not force:
        raise LayoutError(f"{'; '.join(needs_word)}: no choice of these nodes keeps them whole; --force accepts that")
    return replace(placement, notes=(*idle, *map(str, torn), *([split] if split else [])))


@dataclass(frozen=True)
class _Positions:
    """The ranks on each node in rank order, and how many GPUs the nodes that may be there count as having."""

    ranks: tuple[int, ...]
    gpus: tuple[int, ...]
    cut: int = 0

    def limit(self, gpus: int) -> int:
        """Return how many GPUs of a node with ``gpus`` of them count; 0 if it cannot be used."""
        size = min(gpus, self.cut) if self.cut else gpus
        return size if size in self.gpus else 0


def _positions(layout: Layout, nodes: Sequence[NodeShape], *, allow_fewer: bool) -> _Positions | None:
    """Return what the nodes hold: of one size if they suffice, the largest first; None if there are too few GPUs."""
    counts = Counter(len(node.gpus) for node in nodes if node.gpus)
    sizes = sorted(counts, reverse=True)
    for size in sizes:
        if counts[size] * size >= layout.ranks:
            return _held(layout.ranks, [size] * counts[size])
    for size in sizes if allow_fewer else ():
        if (count := sum(counts[other] for other in sizes if other >= size)) * size >= layout.ranks:
            return replace(_held(layout.ranks, [size] * count), cut=size)
    every = [size for size in sizes for _ in range(counts[size])]
    return _held(layout.ranks, every) if sum(every) >= layout.ranks else None


def _held(ranks: int, gpus: Sequence[int]) -> _Positions:
    """Return the positions that hold ``ranks`` in nodes with these numbers of GPUs, the last as far as needed."""
    starts = list(itertools.accumulate(gpus, initial=0))
    held = [min(size, ranks - start) for size, start in zip(gpus, starts, strict=False) if start < ranks]
    return _Positions(tuple(held), tuple(gpus[: len(held)]))


def usable_gpus(layout: Layout, shapes: Sequence[NodeShape]) -> int:
    """Return the number of GPUs on which TP groups of ``layout`` can be, each whole inside an NVLink domain."""
    return sum(len(shape.gpus) for shape in in_groups(layout, shapes))


def in_groups(layout: Layout, shapes: Sequence[NodeShape]) -> list[NodeShape]:
    """Return the nodes with those GPUs on which TP groups of ``layout`` can be, each whole inside an NVLink domain."""
    return _in_blocks(shapes, _block(layout))


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


def _too_few(layout: Layout, nodes: Sequence[NodeShape]) -> str:
    sizes = Counter(len(node.gpus) for node in nodes)
    available = ", ".join(f"{count} x {size}" for size, count in sorted(sizes.items(), reverse=True)) or "none"
    total = sum(len(node.gpus) for node in nodes)
    groups = f" in groups of tp={layout.tp}" if layout.tp > 1 else ""
    needed = f"{needed_gpus(layout)} {'is' if layout.ranks == 1 else 'are'} needed"
    return f"{needed} but only {total} are usable{groups} (nodes x GPUs: {available})"


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

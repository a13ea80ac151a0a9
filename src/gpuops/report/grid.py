"""Grid of a placement: a row per node, a cell per rank, TP groups side by side, and the links of each axis."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from gpuops.placement import NodeShape, Placement, Rank
from gpuops.report.page import Page, clean, fold, wrap

_MOST_IDENTICAL = 6
"""Up to this many consecutive nodes with the same GPUs are all drawn; of more, only the ends are."""


@dataclass(frozen=True)
class Span:
    """Adjacent ranks of one TP group on one node, the coordinates that they share, and the link between them.

    ``link`` is empty for a single rank, and if it is unknown.
    """

    ranks: tuple[Rank, ...]
    coordinates: tuple[str, ...]
    link: str


def spans(placement: Placement, node: str) -> list[Span]:
    """Return the ranks of ``node``, split where the TP group changes."""
    axes = [axis for axis in ("dp", "pp", "cp") if getattr(placement.layout, axis) > 1]
    node_spans = []
    for _, members in itertools.groupby(placement.on(node), key=lambda rank: (rank.dp, rank.pp, rank.cp)):
        ranks = tuple(members)
        shared = tuple(f"{axis}{getattr(ranks[0], axis)}" for axis in axes)
        link = placement.link([rank.rank for rank in ranks])
        node_spans.append(Span(ranks, shared, str(link) if link and link.kind != "unknown" else ""))
    return node_spans


def heading(placement: Placement) -> str:
    """Return the number of ranks and nodes, the layout and its order."""
    count = len(placement.nodes)
    nodes = f"{count} nodes" if count > 1 else f"node {placement.nodes[0].name}"
    return f"{len(placement.ranks)} ranks on {nodes}   {placement.layout}   order {placement.layout.order}"


def axes(placement: Placement) -> Iterator[tuple[str, str]]:
    """Yield every axis that divides the ranks, with the nodes and the link of its groups."""
    for axis, groups in placement.groups.items():
        if getattr(placement.layout, axis) > 1:
            yield axis, f"{_where(placement, axis, groups)}, {_links(placement, groups)}"


def _where(placement: Placement, axis: str, groups: Iterable[Sequence[int]]) -> str:
    paths = {tuple(dict.fromkeys(placement.ranks[rank].node for rank in group)) for group in groups}
    longest = max(paths, key=len)
    if len(longest) == 1:
        return "inside a node"
    if len(paths) == 1 and len(longest) <= 4:
        return (" → " if axis == "pp" else ", ").join(longest)
    return f"across {len(longest)} nodes"


def _links(placement: Placement, groups: Iterable[Sequence[int]]) -> str:
    """Return the links of ``groups``; several rails become one phrase."""
    links = {link for link in map(placement.link, groups) if link}
    if len(links) == 1 or any(link.kind != "rail" for link in links):
        return ", ".join(sorted("link unknown" if link.kind == "unknown" else str(link) for link in links))
    leaves = {link.leaf for link in links}
    return "rail k to rail k" if None in leaves else f"rail k to rail k, leaf {fold(sorted(filter(None, leaves)))}"


def lines(placement: Placement, page: Page) -> Iterator[str]:
    """Yield the grid as text, at most as wide as ``page``."""
    yield from wrap(clean(heading(placement)), page.width)
    yield ""
    yield from _rows(placement, page.width)
    yield ""
    rows = [*axes(placement), *([("spares", fold(placement.spares))] if placement.spares else [])]
    indent = max((len(word) for word, _ in rows), default=0) + 2
    for word, text in rows:
        yield from page.labelled(word, clean(text), indent)


def _rows(placement: Placement, width: int) -> Iterator[str]:
    """Yield the rows of all nodes; repeat the header if the GPUs differ from those above."""
    header = ""
    label = min(max(len(clean(node.name)) for node in placement.nodes), width // 3) + 2
    for _, run in itertools.groupby(placement.nodes, key=lambda node: [gpu.index for gpu in node.gpus]):
        nodes = list(run)
        hidden = nodes[2:-1] if len(nodes) > _MOST_IDENTICAL else []
        for node in (*nodes[: 2 if hidden else None], *nodes[-1:] * bool(hidden)):
            if hidden and node is nodes[-1]:
                yield from _identical(placement, hidden, label, width)
            for above, *rest in _node(placement, node, label, width):
                yield from () if header.startswith(above) else (above,)
                yield from rest
                header = above


def _identical(placement: Placement, nodes: Sequence[NodeShape], label: int, width: int) -> Iterator[str]:
    first, last = placement.on(nodes[0].name)[0].rank, placement.on(nodes[-1].name)[-1].rank
    text = f"{len(nodes)} identical nodes, {fold(node.name for node in nodes)}: r{first} to r{last}"
    yield from (f"{'⋮' if not number else '':<{label}}{line}" for number, line in enumerate(wrap(text, width - label)))


def _node(placement: Placement, node: NodeShape, label: int, width: int) -> Iterator[list[str]]:
    """Yield the header, ranks and shared coordinates of one node, in as many rows as its spans need."""
    cell = _cell(placement, width - label - 1)
    name, row, room = clean(node.name), list[Span](), width - label - 1
    most = max(1, (room - 1) // cell)
    for span in (part for whole in spans(placement, node.name) for part in _split(whole, most)):
        size = cell * len(span.ranks) + 1
        if row and room < size:
            yield _row(name, row, cell, label)
            name, row, room = "", [], width - label - 1
        row.append(span)
        room -= size
    yield _row(name, row, cell, label)


def _split(span: Span, most: int) -> list[Span]:
    """Return ``span`` in parts of at most ``most`` ranks."""
    return [replace(span, ranks=span.ranks[at : at + most]) for at in range(0, len(span.ranks), most)]


def _cell(placement: Placement, width: int) -> int:
    """Return the width of a cell: seven characters if all GPUs of a node fit, else what a rank needs."""
    least = max(len(f"r{len(placement.ranks) - 1}"), len("GPU0")) + 1
    return max(least, min(7, width // max(len(node.gpus) for node in placement.nodes) - 1))


def _row(name: str, row: Sequence[Span], cell: int, label: int) -> list[str]:
    header = " ".join("".join(f" GPU{rank.gpu}".ljust(cell) for rank in span.ranks) for span in row)
    shared = itertools.zip_longest(*(_shared(span, cell * len(span.ranks)) for span in row), fillvalue="")
    texts = [["".join(f" r{rank.rank}".ljust(cell) for rank in span.ranks) for span in row], *shared]
    widths = [cell * len(span.ranks) for span in row]
    below = ["│".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in texts]
    names = [name] if len(name) < label else [name, ""]
    labels = itertools.chain(names[-1:], itertools.repeat(""))
    return [
        f"{'':<{label}} {header}".rstrip(),
        *names[:-1],
        *(f"{n:<{label}}│{line}│" for n, line in zip(labels, below, strict=False)),
    ]


def _shared(span: Span, width: int) -> list[str]:
    """Return the coordinates and the link of ``span``, on one line if they fit."""
    text = "·".join(span.coordinates)
    if len(text) + len(span.link) + 2 <= width:
        return [f" {text}{span.link:>{width - len(text) - 1}}"]
    coordinates = [text] if len(text) < width else span.coordinates
    return [f" {word}"[:width] for word in (*coordinates, span.link) if word]

"""Connections between the GPUs and NICs of nodes as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from gpuops.connectivity import Connectivity, GpuPlace, Pair
from gpuops.report.page import clean, fold, wrap
from gpuops.report.topology import alike, heading, nearest, nvlinks_of, slot_of
from gpuops.results.topology import NodeTopologies, meaning

_CELL, _BOX, _TALL, _MARGIN, _LINE = 124, 112, 58, 20, 18
"""Pixels: the distance of GPUs, the width and height of a box, the margin, and the height of a line of text."""
_LETTER = 7.5
_GREEN, _BLUE, _GREY, _PALE = "#4f8a10", "#2b6cb0", "#777777", "#f4f4f4"


def draw(result: NodeTopologies) -> str:
    """Return an SVG document: GPUs in their NUMA nodes, NVLinks above, NICs below; one drawing per kind of node.

    The texts come from nodes, so the document is built as a tree, never as text.
    """
    svg = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "font-family": "monospace", "font-size": "12"})
    SubElement(svg, "rect", {"width": "100%", "height": "100%", "fill": "#ffffff"})
    top, right = _MARGIN, 40 * _LINE
    for names, node in alike(result):
        width, top = _draw_node(svg, names, node, top)
        right = max(right, width)
    for name, excluded in result.excluded.items():
        _text(svg, _MARGIN, top + _LINE, f"{name}: {excluded.why}")
        top += _LINE
    size = {"width": str(right + _MARGIN), "height": str(top + _MARGIN)}
    svg.attrib.update({**size, "viewBox": f"0 0 {size['width']} {size['height']}"})
    indent(svg)
    return tostring(svg, encoding="unicode") + "\n"


def _draw_node(svg: Element, names: Sequence[str], node: Connectivity, top: int) -> tuple[int, int]:
    """Draw one kind of node below ``top``; return its right edge and its bottom."""
    _text(svg, _MARGIN, top + 8, f"{fold(names)}   {heading(node)}")
    order = sorted(node.gpus, key=lambda gpu: (gpu.numa if gpu.numa is not None else -1, gpu.index))
    left_by_gpu = {gpu.index: _MARGIN + 10 + number * _CELL for number, gpu in enumerate(order)}
    links = [pair for pair in node.pairs if (pair.link or "").startswith("NV")]
    right = _MARGIN + 10 + len(order) * _CELL
    over = top + 2 * _LINE
    boxes = over + _height_above(node, links)
    if node.is_switched:
        _switch(svg, node, left_by_gpu, over, boxes, right)
    else:
        for pair in links:
            _arc(svg, pair, left_by_gpu, boxes)
    bottom = boxes + _TALL + (3 * _LINE + 30 if node.nics else 24)
    _numa_nodes(svg, order, left_by_gpu, boxes, bottom)
    for gpu in order:
        _gpu(svg, node, gpu, left_by_gpu[gpu.index], boxes)
    bottom += _LINE
    for line in [part for sentence in meaning(node) for part in wrap(clean(sentence), max(60, round(right / _LETTER)))]:
        bottom += _LINE
        _text(svg, _MARGIN, bottom, line)
    for why in node.unknown:
        bottom += _LINE
        _text(svg, _MARGIN, bottom, f"unknown: {why}")
    return max(right, round(_LETTER * len(heading(node)))), bottom + 2 * _LINE


def _height_above(node: Connectivity, links: Sequence[Pair]) -> int:
    if not links:
        return 12
    return 70 if node.is_switched else 24 + 14 * max(abs(pair.one - pair.other) for pair in links)


def _switch(svg: Element, node: Connectivity, left_by_gpu: dict[int, int], over: int, boxes: int, right: int) -> None:
    """Draw the switches as a bar, with a line to each GPU."""
    switches = "NVSwitches of the rack" if node.domain else "NVSwitches"
    count = f"{node.nvswitches} NVSwitches" if node.nvswitches else switches
    bar = {"x": str(_MARGIN), "y": str(over), "width": str(right - _MARGIN), "height": "26", "rx": "4"}
    SubElement(svg, "rect", {**bar, "fill": "#eaf4dc", "stroke": _GREEN})
    _text(svg, (_MARGIN + right) // 2, over + 17, count, anchor="middle")
    for gpu in node.gpus:
        if not gpu.nvlinks:
            continue
        x = left_by_gpu[gpu.index] + _BOX // 2
        place = {"x1": str(x), "x2": str(x), "y1": str(over + 26), "y2": str(boxes)}
        SubElement(svg, "line", {**place, "stroke": _GREEN, "stroke-width": "4"})
        _text(svg, x + 6, over + 52, f"NV{gpu.nvlinks}")


def _arc(svg: Element, pair: Pair, left_by_gpu: dict[int, int], boxes: int) -> None:
    """Draw the NVLinks of a pair as an arc above the GPUs, wider for more links."""
    low, high = sorted(left_by_gpu[index] + _BOX // 2 for index in (pair.one, pair.other))
    rise = 14 + 14 * (high - low) // _CELL
    count = int((pair.link or "NV1")[2:])
    path = f"M {low} {boxes} C {low} {boxes - rise * 4 // 3}, {high} {boxes - rise * 4 // 3}, {high} {boxes}"
    arc = SubElement(svg, "path", {"d": path, "fill": "none", "stroke": _GREEN, "stroke-width": str(min(6, 1 + count))})
    rate = f", {pair.gb_per_s:.4g} GB/s each way" if pair.gb_per_s else ""
    SubElement(arc, "title").text = clean(f"GPU {pair.one} and {pair.other}: {pair.link}{rate}")
    _text(svg, (low + high) // 2, boxes - rise + 2, pair.link or "", anchor="middle")


def _numa_nodes(svg: Element, order: Sequence[GpuPlace], left_by_gpu: dict[int, int], boxes: int, bottom: int) -> None:
    """Draw a frame around the GPUs of each NUMA node."""
    for numa in dict.fromkeys(gpu.numa for gpu in order):
        own = [left_by_gpu[gpu.index] for gpu in order if gpu.numa == numa]
        frame = {"x": str(min(own) - 5), "y": str(boxes - 6), "width": str(max(own) - min(own) + _BOX + 10)}
        style = {"fill": "none", "stroke": _GREY, "stroke-dasharray": "4 3", "rx": "6"}
        SubElement(svg, "rect", {**frame, "height": str(bottom - boxes + 6), **style})
        _text(svg, min(own), bottom - 6, "NUMA node unknown" if numa is None else f"NUMA node {numa}")


def _gpu(svg: Element, node: Connectivity, gpu: GpuPlace, left: int, top: int) -> None:
    """Draw a GPU with its slot and its NVLinks, and below it the NICs that are nearest."""
    box = {"x": str(left), "y": str(top), "width": str(_BOX), "height": str(_TALL), "rx": "4"}
    rect = SubElement(svg, "rect", {**box, "fill": _PALE, "stroke": "#333333"})
    SubElement(rect, "title").text = clean(f"GPU {gpu.index} {gpu.name} at {gpu.address}; NVLinks: {nvlinks_of(gpu)}")
    _text(svg, left + 6, top + 16, f"GPU {gpu.index}{' MIG' if gpu.in_mig_mode else ''}")
    generation, _, rate = slot_of(gpu).partition(", ")
    _text(svg, left + 6, top + 33, generation)
    _text(svg, left + 6, top + 50, rate)
    near = nearest(node, gpu)
    if not near:
        return
    middle, below = left + _BOX // 2, top + _TALL
    place = {"x1": str(middle), "x2": str(middle), "y1": str(below), "y2": str(below + 22)}
    SubElement(svg, "line", {**place, "stroke": _BLUE, "stroke-width": "2"})
    nic, word = near[0]
    _text(svg, middle + 5, below + 15, word)
    names = fold(each.device for each, _ in near)
    _text(svg, left + 6, below + 38, names if len(names) * _LETTER < _BOX else f"{len(near)} NICs")
    if len({each.rate_gbps for each, _ in near}) == 1 and nic.rate_gbps:
        _text(svg, left + 6, below + 55, f"{nic.rate_gbps:g} Gbit/s" + (" down" if nic.active is False else ""))


def _text(parent: Element, x: int, y: int, text: str, *, anchor: str = "start") -> None:
    halo = {"stroke": "#ffffff", "stroke-width": "3", "paint-order": "stroke"} if anchor == "middle" else {}
    SubElement(parent, "text", {"x": str(x), "y": str(y), "text-anchor": anchor, **halo}).text = clean(text)

"""Connections between the GPUs and NICs of nodes as text: parts, matrix, and what they mean; equal nodes folded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpuops.connectivity import Connectivity, GpuPlace, NicPlace
from gpuops.errors import format_count
from gpuops.probes.nvidia.topo import link_distance
from gpuops.report.page import Page, clean, fold
from gpuops.results.topology import NodeTopologies, meaning

_PCIE_WORDS = {
    "PIX": "PCIe, one switch",
    "PXB": "PCIe, several switches",
    "PHB": "PCIe, through the host bridge of one CPU",
    "NODE": "PCIe, between host bridges of one NUMA node",
    "SYS": "PCIe, between the sockets",
}
"""The words of ``nvidia-smi topo -m``, from its own legend."""


def lines(result: NodeTopologies, page: Page) -> Iterator[str]:
    """Yield each kind of node with its parts, its matrix and what that means; then the nodes without an answer."""
    for number, (names, node) in enumerate(alike(result)):
        yield from [""] if number else []
        yield from page.labelled("", clean(f"{fold(names)}   {heading(node)}"), 0)
        yield ""
        yield from _parts(node, page)
        yield from _matrix(node, page)
        yield from _legend(node, page)
        yield ""
        for sentence in meaning(node):
            yield from page.labelled("", clean(sentence), 0)
        for why in node.unknown:
            yield from page.labelled("unknown: ", clean(why), len("unknown: "))
    for name, excluded in result.excluded.items():
        yield from page.labelled("", clean(f"{name}: {excluded.why}"), 0)


def alike(result: NodeTopologies) -> list[tuple[list[str], Connectivity]]:
    """Return the nodes that differ at most in PCI addresses together, each group with its first node."""
    groups: dict[str, tuple[list[str], Connectivity]] = {}
    for name, node in result.nodes.items():
        bare = replace(node, gpus=tuple(replace(gpu, address="") for gpu in node.gpus))
        groups.setdefault(f"{bare} {sorted(node.near.items())}", ([], node))[0].append(name)
    return list(groups.values())


def heading(node: Connectivity) -> str:
    """Return the GPUs of a node, its NVSwitches, NICs and NUMA nodes, as numbers."""
    gpus = ", ".join(f"{count} {name}" for name, count in Counter(gpu.name for gpu in node.gpus).items())
    numa = {*(gpu.numa for gpu in node.gpus), *(nic.numa for nic in node.nics)} - {None}
    words = [gpus]
    words += [f"{node.nvswitches} NVSwitch{'es' if node.nvswitches > 1 else ''}"] if node.nvswitches else []
    words += [format_count(len(node.nics), "NIC")] if node.nics else []
    words += [format_count(len(numa), "NUMA node")] if numa else []
    return "   ".join(words) + (f"   NVLink domain {node.domain}" if node.domain else "")


def nvlinks_of(gpu: GpuPlace) -> str:
    """Return the active NVLinks of a GPU."""
    if gpu.nvlinks is None:
        return "unknown"
    rate = f", {gpu.nvlink_gb_per_s:.4g} GB/s" if gpu.nvlinks else ""
    return f"{gpu.nvlinks}{rate}" if gpu.nvlinks else "none"


def slot_of(gpu: GpuPlace) -> str:
    """Return the generation, the lanes and the rate of a GPU's slot."""
    generation, width = gpu.pcie_generation or "?", gpu.pcie_width or "?"
    rate = f", {gpu.pcie_gb_per_s:.3g} GB/s" if gpu.pcie_gb_per_s else ""
    return f"Gen{generation} x{width}{rate}"


def nearest(node: Connectivity, gpu: GpuPlace) -> list[tuple[NicPlace, str]]:
    """Return the NICs that are nearest to a GPU, each with the word between them."""
    words = [(nic, node.near[gpu.index, nic.column]) for nic in node.nics if (gpu.index, nic.column) in node.near]
    best = min((link_distance(word) for _, word in words), default=0.0)
    return [(nic, word) for nic, word in words if link_distance(word) == best]


def _parts(node: Connectivity, page: Page) -> Iterator[str]:
    rows = [("GPU", "NUMA", "PCIE", "NVLINKS", "NEAREST NIC" if node.nics else "")]
    for gpu in node.gpus:
        mig = " MIG" if gpu.in_mig_mode else ""
        rows.append((f"{gpu.index}{mig}", _number(gpu.numa), slot_of(gpu), nvlinks_of(gpu), _nic_text(node, gpu)))
    yield from page.columns([tuple(map(clean, row)) for row in rows])


def _nic_text(node: Connectivity, gpu: GpuPlace) -> str:
    near = nearest(node, gpu)
    if not near:
        return ""
    states = {(nic.rate_gbps, nic.active) for nic, _ in near}
    rate, active = states.pop() if len(states) == 1 else (None, None)
    state = "" if active is not False else " down"
    return f"{fold(nic.device for nic, _ in near)} {near[0][1]}{f' {rate:g} Gbit/s' if rate else ''}{state}"


def _number(value: int | None) -> str:
    return "?" if value is None else str(value)


def _matrix(node: Connectivity, page: Page) -> Iterator[str]:
    """Yield the words between all GPUs, and between GPUs and NICs; in several blocks if the page is too narrow."""
    if not node.pairs:
        return
    words = {(pair.one, pair.other): pair.link or "?" for pair in node.pairs}
    words |= {(other, one): word for (one, other), word in words.items()}
    table = [[words.get((a.index, b.index), "X") for b in node.gpus] for a in node.gpus]
    yield from _block([f"GPU{gpu.index}" for gpu in node.gpus], [str(gpu.index) for gpu in node.gpus], table, page)
    nics = [nic for nic in node.nics if nic.column]
    if nics:
        table = [[node.near.get((gpu.index, nic.column), "?") for nic in nics] for gpu in node.gpus]
        yield from _block([f"GPU{gpu.index}" for gpu in node.gpus], [nic.device for nic in nics], table, page)


def _block(names: Sequence[str], columns: Sequence[str], table: Sequence[Sequence[str]], page: Page) -> Iterator[str]:
    indent = max(map(len, names))
    width = 1 + max(len(cell) for cell in (*columns, *(word for row in table for word in row)))
    fit = max(1, (page.width - indent) // width)
    for start in range(0, len(columns), fit):
        yield ""
        yield f"{'':{indent}}" + "".join(f"{clean(name):>{width}}" for name in columns[start : start + fit])
        for name, row in zip(names, table, strict=True):
            yield f"{name:<{indent}}" + "".join(f"{clean(word):>{width}}" for word in row[start : start + fit])


def _legend(node: Connectivity, page: Page) -> Iterator[str]:
    """Yield what each word of the matrix means, with the lowest rate of such pairs."""
    words = {pair.link for pair in node.pairs if pair.link} | set(node.near.values())
    if words:
        yield ""
    for word in sorted(words, key=link_distance):
        rates = [pair.gb_per_s for pair in node.pairs if pair.link == word and pair.gb_per_s]
        rate = f", {min(rates):.4g} GB/s each way between GPUs" if rates else ""
        yield from page.labelled(f"{clean(word):<5}", f"{_about(word)}{rate}", 6)


def _about(word: str) -> str:
    if word.startswith("NV"):
        return format_count(int(word[2:]), "NVLink")
    return _PCIE_WORDS.get(word, "a word that gpuops does not know")

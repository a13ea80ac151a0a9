"""Connections between the GPUs and NICs of a node, from ``nvidia-smi topo -m``.

In the row ``GPU0  X  NV18  PIX``, GPU0 has 18 NVLinks to GPU1 and shares a PCIe bridge with NIC0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from gpuops.probing import Probe, Unknown
from gpuops.shell import Command

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_HEADER = re.compile(r"\s+GPU0\b")
_AFFINITIES = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
_LINK = re.compile(r"X|SYS|SOC|NODE|PHB|PXB|PSB|PIX|C2C|NV[0-9]{1,2}")
_PCIE = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""From near to far: one PCIe bridge, several, the host bridge, within a NUMA node, between sockets."""
_CPUS = re.compile(r"[0-9][0-9,-]*")
_LEGEND = re.compile(r"\s+(NIC[0-9]+): (\S+)\s*")


@dataclass(frozen=True)
class Topology:
    """Matrix: ``links[a, b]`` is NV18, PIX, PXB, PHB, NODE or SYS, for each ordered pair of different devices.

    A pair whose cell cannot be read (``N/A``, ``Unknown Error``) is missing. ``gpus`` are GPU0, GPU1, …; ``nics`` are
    NIC0, … or mlx5_0, … as in the header. ``nic_names`` maps each NIC to its RDMA device (to itself if the header names
    devices). An affinity is None if its cell is empty or N/A; its mapping is empty if the driver does not print the
    column.
    """

    gpus: tuple[str, ...]
    nics: tuple[str, ...] = ()
    links: Mapping[tuple[str, str], str] = field(default_factory=dict)
    cpu_affinity: Mapping[str, str | None] = field(default_factory=dict)
    numa_affinity: Mapping[str, str | None] = field(default_factory=dict)
    gpu_numa_id: Mapping[str, str | None] = field(default_factory=dict)
    nic_names: Mapping[str, str] = field(default_factory=dict)

    def distance(self, device: str, other: str) -> float:
        """Return the distance of two different devices, infinite if it cannot be read; see `link_distance`."""
        return link_distance(self.links.get((device, other), ""))


@lru_cache(maxsize=64)  # a matrix has few different words
def link_distance(link: str) -> float:
    """Return a rank for a word of the matrix; smaller is nearer, and only the order matters.

    NVLink is nearer than PCIe, and more NVLinks are nearer than fewer. An unknown word has infinite distance.
    """
    if re.fullmatch(r"NV[0-9]+", link):
        return -int(link[2:])
    return _PCIE.index(link) + 1 if link in _PCIE else math.inf


@lru_cache(maxsize=16)  # nodes of one model print the same matrix
def parse_topo(text: str) -> Topology | Unknown:
    """Parse ``nvidia-smi topo -m``; every row must have all cells, an unfinished last line is ignored."""
    lines = _ANSI.sub("", text[: text.rfind("\n") + 1]).splitlines()
    start = next((number for number, line in enumerate(lines) if _HEADER.match(line)), None)
    if start is None:
        return Unknown("nvidia-smi topo -m printed no matrix: no header line with GPU0")
    devices, columns = _header(lines[start])
    rows = {}
    for line, device in zip(lines[start + 1 :], devices, strict=False):
        row = _row(line, device, len(devices), len(columns))
        if row is None:
            return Unknown(f'nvidia-smi topo -m: unreadable row of {device}: "{line.strip()[:80]}"')
        rows[device] = row
    if len(rows) != len(devices):
        return Unknown(f"nvidia-smi topo -m is truncated: {len(rows)} rows for {len(devices)} devices")
    return _topology(devices, columns, rows, lines[start + 1 + len(rows) :])


def _header(line: str) -> tuple[list[str], list[str]]:
    columns = [name for name in _AFFINITIES if name in line]
    for name in columns:
        line = line.replace(name, "")
    return line.split(), columns


def _row(line: str, device: str, links: int, columns: int) -> tuple[list[str], list[str | None]] | None:
    """Return cells and affinities of one row; cells are separated by tabs and may be empty, or by spaces if pasted."""
    cells = [cell.strip() for cell in line.split("\t")] if "\t" in line else line.split()
    if cells[:1] != [device] or not any(map(_LINK.fullmatch, cells[1 : links + 1])) or len(cells) <= links:
        return None
    rest = [cell if _CPUS.fullmatch(cell) else None for cell in cells[links + 1 :]]
    if len(rest) == columns + 1 and cells[links + 3 : links + 4] == [""]:
        del rest[2]  # "NUMA Affinity" is two tabs wide, so its cells are followed by an empty one
    return cells[1 : links + 1], rest if len(rest) == columns else [None] * columns


def _topology(
    devices: list[str], columns: list[str], rows: dict[str, tuple[list[str], list[str | None]]], below: list[str]
) -> Topology | Unknown:
    gpus = tuple(name for name in devices if name.startswith("GPU"))
    nics = tuple(name for name in devices if not name.startswith("GPU"))
    links = {(a, b): link for a in devices for b, link in zip(devices, rows[a][0], strict=True)}
    if any((a == b) != (link == "X") for (a, b), link in links.items()):
        return Unknown("nvidia-smi topo -m is malformed: the diagonal, and only the diagonal, must be X")
    affinity = {name: {gpu: rows[gpu][1][n] for gpu in gpus} for n, name in enumerate(columns)}
    legend = {m[1]: m[2] for line in below if (m := _LEGEND.fullmatch(line))}
    own_names = {nic: nic for nic in nics if not nic.startswith("NIC")}
    return Topology(
        gpus,
        nics,
        links={(a, b): link for (a, b), link in links.items() if a != b and _LINK.fullmatch(link)},
        cpu_affinity=affinity.get("CPU Affinity", {}),
        numa_affinity=affinity.get("NUMA Affinity", {}),
        gpu_numa_id=affinity.get("GPU NUMA ID", {}),
        nic_names=own_names | {nic: legend[nic] for nic in nics if nic in legend},
    )


topo: Probe[Topology] = Probe(
    "topo",
    Command(("nvidia-smi", "topo", "-m"), timeout_seconds=60, lane="nvidia"),
    lambda answer: parse_topo(f"{answer.out}\n"),  # it is whole, so its last line is, too: some copies lack the newline
)
"""Links between all pairs of devices of the node."""

"""Bandwidth of each GPU's own memory, and between it and the host, from NVIDIA's nvbandwidth.

``memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)`` is followed by the numbers of the GPUs, and one row of GB/s.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpuops.probes.numbers import number
from gpuops.probing import Probe, Unknown
from gpuops.shell import Command, Completed

TESTS = ("host_to_device_memcpy_ce", "device_to_host_memcpy_ce", "device_local_copy")
_SECTION = re.compile(r"^Running (\w+)\.\n(.*?)^SUM \1 ", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class GpuBandwidths:
    """GB/s by test and GPU; ``installed`` is False if the node has no nvbandwidth.

    A GPU without a figure is absent. Versions before 0.5 have no test of the GPU's own memory.
    """

    gb_per_s: Mapping[str, Mapping[int, float]]
    installed: bool = True


def parse_nvbandwidth(answer: Completed) -> GpuBandwidths | Unknown:
    """Read the tables of `TESTS`; `Unknown` if there is none, or if a figure in one cannot be read."""
    if answer.missing:
        return GpuBandwidths({}, installed=False)
    sections = {match[1]: match[2] for match in _SECTION.finditer(answer.out) if match[1] in TESTS}
    tables = {test: dict(_figures(text)) for test, text in sections.items()}
    if not tables or answer.truncated:
        return Unknown(f"nvbandwidth exited with {answer.exit}: {answer.last_line() or 'no output'}")
    unread = next((test for test, table in tables.items() if not table or None in table.values()), "")
    if unread:
        return Unknown(f"the table of {unread} cannot be read")
    figures = {test: {gpu: rate for gpu, rate in table.items() if rate is not None} for test, table in tables.items()}
    return GpuBandwidths(figures)


def _figures(text: str) -> Iterator[tuple[int, float | None]]:
    """Yield the GPU and the rate of each column; of several rows (CPU sockets), the fastest is the GPU's own."""
    rows = [words for line in text.splitlines() if (words := line.split()) and words[0].isdecimal()]
    if not rows:
        return
    columns, *values = rows
    for at, column in enumerate(columns):
        cells = [number(row[at + 1]) if len(row) == len(columns) + 1 else None for row in values]
        rates = [cell for cell in cells if cell is not None]
        yield int(column), max(rates) if rates and len(rates) == len(cells) else None


gpu_bandwidths: Probe[GpuBandwidths] = Probe(
    "gpu_bandwidths",
    Command(("env", "CUDA_DEVICE_ORDER=PCI_BUS_ID", "nvbandwidth", "-t", *TESTS), timeout_seconds=300, lane="nvidia"),
    parse_nvbandwidth,
    accepts=None,
    cost="heavy",
)
"""Takes seconds for each GPU, and needs them idle; numbered as nvidia-smi numbers them, not the fastest first."""

"""NVLink error counters of each GPU since the driver was loaded, from ``nvidia-smi nvlink -e``.

``Link 0: Replay Errors: 2`` adds 2 to ``replay_errors``.
"""

from __future__ import annotations

import re

from gpuops.probing import Probe, Unknown
from gpuops.shell import Command

_GPU = re.compile(r"GPU (\d{1,3}): .*", re.ASCII)
_COUNT = re.compile(r"\s+Link \d{1,2}: ([\w ]{1,60}): (\d{1,18})", re.ASCII)
_NOTE = re.compile(r"\s*|\s+Link \d{1,2}: .*(?:N/A|inactive|Not Supported).*|\s+NVML: .*", re.ASCII)


def parse_nvlink_errors(text: str) -> dict[str, dict[str, int]] | Unknown:
    """Return errors by GPU (``gpu3``) and counter (``crc_errors``), summed over all links; none without NVLink."""
    counters_by_gpu: dict[str, dict[str, int]] = {}
    for line in text.splitlines():
        gpu, count = _GPU.fullmatch(line), _COUNT.fullmatch(line)
        if gpu:
            counters = counters_by_gpu.setdefault(f"gpu{int(gpu[1])}", {})
        elif count and counters_by_gpu:
            name = count[1].lower().replace(" ", "_")
            counters[name] = counters.get(name, 0) + int(count[2])
        elif not _NOTE.fullmatch(line):
            return Unknown(f"nvidia-smi nvlink -e: expected a counter, found {line.strip()[:80]!r}")
    if not counters_by_gpu or not text.endswith("\n"):
        return Unknown("nvidia-smi nvlink -e: the output is empty or truncated")
    return counters_by_gpu


nvlink_errors: Probe[dict[str, dict[str, int]]] = Probe(
    "nvlink_errors",
    Command(("nvidia-smi", "nvlink", "-e"), timeout_seconds=60, lane="nvidia"),
    lambda answer: parse_nvlink_errors(answer.out),
)
"""Replay, recovery and CRC errors. Source: NVIDIA, nvidia-smi manual page, nvlink --errorcounters."""

"""Seconds since the node booted, from /proc/uptime (``1210455.31 135120512.04``)."""

from __future__ import annotations

from gpuops.probes.numbers import number
from gpuops.probing import Probe, Unknown
from gpuops.shell import Completed, Files, read_files

_PATH = "/proc/uptime"


def _parse(answer: Completed) -> float | Unknown:
    seconds = number(read_files(answer.out).get(_PATH))
    return Unknown(f"{_PATH} does not start with a number of seconds") if seconds is None or seconds < 0 else seconds


uptime: Probe[float] = Probe("uptime", Files((_PATH,)), _parse)
"""Seconds since boot."""

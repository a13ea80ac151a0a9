"""Kernel settings that cost speed: CPU governors, NUMA balancing, the clock source.

``/sys/devices/system/cpu/cpu7/cpufreq/scaling_governor`` is ``performance``, or ``powersave``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from gpuops.probes.numbers import integer
from gpuops.probing import Probe, Unknown
from gpuops.shell import Files, read_files

_CPU = re.compile(r"/sys/devices/system/cpu/cpu(\d{1,6})/cpufreq/scaling_governor", re.ASCII)
_DRIVER = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver"
_BALANCING = "/proc/sys/kernel/numa_balancing"
_CLOCK = "/sys/devices/system/clocksource/clocksource0"


@dataclass(frozen=True)
class Tuning:
    """Settings in the kernel's words; empty or None if it does not have them. ``governors`` are by CPU."""

    governors: Mapping[int, str] = field(hash=False)
    frequency_driver: str
    numa_balancing: int | None
    clock_source: str
    clock_sources: tuple[str, ...]


@lru_cache(maxsize=16)  # nodes of one model have the same settings
def parse_tuning(text: str) -> Tuning | Unknown:
    """Read the files of `tuning`; every kernel has a clock source, the rest may be missing."""
    files = read_files(text)
    source = files.get(f"{_CLOCK}/current_clocksource", "").strip()
    if not source:
        return Unknown(f"{_CLOCK}/current_clocksource cannot be read")
    balancing = files.get(_BALANCING, "")
    return Tuning(
        governors={
            int(cpu[1]): governor for cpu in map(_CPU.fullmatch, files) if cpu and (governor := files[cpu[0]].strip())
        },
        frequency_driver=files.get(_DRIVER, "").strip(),
        numa_balancing=integer(balancing),
        clock_source=source,
        clock_sources=tuple(files.get(f"{_CLOCK}/available_clocksource", "").split()),
    )


tuning: Probe[Tuning] = Probe(
    "tuning",
    Files(
        (
            "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
            _DRIVER,
            _BALANCING,
            f"{_CLOCK}/current_clocksource",
            f"{_CLOCK}/available_clocksource",
        ),
        limit_bytes=256,
    ),
    lambda answer: parse_tuning(answer.out),
)
"""Kernel settings that cost speed."""

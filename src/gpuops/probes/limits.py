"""The resource limits of this very session: what a job started over SSH would get."""

from __future__ import annotations

from dataclasses import dataclass

from gpuops.probing import Probe, Unknown
from gpuops.shell import Files


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit in the kernel's unit (bytes, files, processes, …); None: unlimited."""

    soft: int | None
    hard: int | None


def parse_limits(text: str) -> dict[str, Limit] | Unknown:
    """Limits by the kernel's name (``Max locked memory``), from /proc/self/limits."""
    return Unknown(f"not read yet: {text[:20]}")


limits: Probe[dict[str, Limit]] = Probe(
    "limits", Files(("/proc/self/limits",)), lambda answer: parse_limits(answer.out)
)

"""nvidia-smi nvlink -s: the NVLinks of each GPU and the rate of each."""

from __future__ import annotations

from dataclasses import dataclass

from gpuops.probing import Probe, Unknown
from gpuops.shell import Command, Completed


@dataclass(frozen=True, slots=True)
class Link:
    """One NVLink; ``gb_per_s`` in one direction, None where the link is inactive."""

    index: int
    gb_per_s: float | None


@dataclass(frozen=True, slots=True)
class GpuLinks:
    """The NVLinks of one GPU, none where it has no NVLink or where NVLink is switched off."""

    index: int
    name: str
    uuid: str
    links: tuple[Link, ...] = ()
    message: str = ""


def parse_nvlink(text: str) -> tuple[GpuLinks, ...] | Unknown:
    """The text of ``nvidia-smi nvlink -s``."""
    return Unknown(f"nvlink -s cannot be read yet ({len(text)} characters)")


def _parse(answer: Completed) -> tuple[GpuLinks, ...] | Unknown:
    return parse_nvlink(answer.out)


nvlink: Probe[tuple[GpuLinks, ...]] = Probe(
    "nvlink", Command(("nvidia-smi", "nvlink", "-s"), timeout_seconds=60, lane="nvidia"), _parse
)
"""The links of every GPU."""

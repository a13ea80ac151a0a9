"""NVLinks of each GPU and their rates, from ``nvidia-smi nvlink -s``: ``Link 0: 26.562 GB/s``."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from gpuops.probing import Probe, Unknown
from gpuops.shell import Command, Completed

_GPU = re.compile(r"GPU ([0-9]{1,4}): (\S.*?) \(UUID: (GPU-[0-9A-Fa-f-]+)\)")
_LINK = re.compile(r"\s*Link ([0-9]{1,2}): (?:([0-9]{1,4}(?:\.[0-9]{1,6})?) GB/s|(?i:<?inactive>?))")
_UNREAD = re.compile(
    r"\s*(?:Link ([0-9]{1,2}): )?(?:NVML: )?"
    r"(?i:\[?(?:ERR!|N/A)\]?|(?:unable to|failed to) .*|.*\b(?:unknown error|GPU is lost|requires reset|timeout))\.?\s*"
)
NO_LINK = re.compile(r"(?i).*(?:all links are inactive|not have or support nvlink|nvlink (?:is )?not supported).*")
"""What nvidia-smi prints of a GPU in place of links."""


@dataclass(frozen=True, slots=True)
class NvLink:
    """One NVLink; ``gb_per_s`` is for one direction, None if the link is inactive."""

    index: int
    gb_per_s: float | None


@dataclass(frozen=True, slots=True)
class GpuLinks:
    """NVLinks of one GPU; none if it has no NVLink or all are inactive, and ``message`` says which.

    ``unread`` is what nvidia-smi prints instead of links that it cannot read; empty if it reads all of them.
    """

    index: int
    name: str
    uuid: str
    links: tuple[NvLink, ...] = ()
    message: str = ""
    unread: str = ""


def parse_nvlink(text: str) -> tuple[GpuLinks, ...] | Unknown:
    """Parse ``nvidia-smi nvlink -s``; other (counters), truncated and empty output is `Unknown`.

    An error of one GPU or link is reported in ``unread`` of that GPU, and the others are read.
    """
    gpus: dict[int, GpuLinks] = {}
    links: dict[int, dict[int, NvLink]] = {}
    last = -1
    for line in filter(str.strip, text.splitlines()):
        if (link := _link(line)) and gpus and link.index not in links[last]:
            links[last][link.index] = link
        elif (gpu := _GPU.fullmatch(line.strip())) and int(gpu[1]) not in gpus:
            last = int(gpu[1])
            gpus[last], links[last] = GpuLinks(last, gpu[2], gpu[3]), {}
        elif gpus and NO_LINK.fullmatch(line):
            gpus[last] = replace(gpus[last], message=line.strip())
        elif gpus and _UNREAD.fullmatch(line):
            gpus[last] = replace(gpus[last], unread=line.strip())
        else:
            return Unknown(f'nvidia-smi nvlink -s: expected a GPU or its next link, found "{line.strip()[:80]}"')
    gpu_links = (replace(gpu, links=tuple(links[number].values())) for number, gpu in gpus.items())
    return tuple(gpu_links) or Unknown("nvidia-smi nvlink -s printed nothing")


@lru_cache(maxsize=1024)  # a node has hundreds of identical lines
def _link(line: str) -> NvLink | None:
    match = _LINK.fullmatch(line.rstrip())
    return NvLink(int(match[1]), float(match[2]) if match[2] else None) if match else None


def _read(answer: Completed) -> tuple[GpuLinks, ...] | Unknown:
    """Return what was read before nvidia-smi gave up: the links of its last GPU may be missing."""
    gpu_links = parse_nvlink(answer.out)
    if answer.missing or (answer.exit and isinstance(gpu_links, Unknown)):
        reason = "is not installed" if answer.missing else f"exited with {answer.exit}: {answer.last_line()}"
        return Unknown(f"nvidia-smi nvlink -s {reason}")
    if answer.exit and not isinstance(gpu_links, Unknown):
        last = gpu_links[-1]
        return *gpu_links[:-1], replace(last, unread=last.unread or f"nvidia-smi exited with {answer.exit}")
    return Unknown("nvidia-smi nvlink -s printed too much") if answer.truncated else gpu_links


nvlink: Probe[tuple[GpuLinks, ...]] = Probe(
    "nvlink",
    Command(("nvidia-smi", "nvlink", "-s"), timeout_seconds=60, lane="nvidia"),
    _read,
    accepts=None,  # the links of the other GPUs count, whatever happened to one
)
"""NVLinks of every GPU."""

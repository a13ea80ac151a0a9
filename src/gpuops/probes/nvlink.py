"""nvidia-smi nvlink -s: the NVLinks of each GPU and the rate of each."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from gpuops.probing import Probe, Unknown
from gpuops.shell import Command

_GPU = re.compile(r"GPU ([0-9]+): (\S.*?) \(UUID: (GPU-[0-9A-Fa-f-]+)\)")
_LINK = re.compile(r"\s*Link ([0-9]{1,2}): (?:([0-9]{1,4}(?:\.[0-9]{1,6})?) GB/s|<inactive>)")
_NO_LINK = re.compile(r"(?i).*(?:all links are inactive|not have or support nvlink|nvlink (?:is )?not supported).*")


@dataclass(frozen=True, slots=True)
class Link:
    """One NVLink; ``gb_per_s`` in one direction, None where the link is inactive."""

    index: int
    gb_per_s: float | None


@dataclass(frozen=True, slots=True)
class GpuLinks:
    """The NVLinks of one GPU; none where it has no NVLink or all are inactive, as ``message`` then says."""

    index: int
    name: str
    uuid: str
    links: tuple[Link, ...] = ()
    message: str = ""


def parse_nvlink(text: str) -> tuple[GpuLinks, ...] | Unknown:
    """The text of ``nvidia-smi nvlink -s``; other answers (counters, errors), cut or empty ones are `Unknown`."""
    gpus: list[GpuLinks] = []
    for line in filter(str.strip, text.splitlines()):
        if gpu := _GPU.fullmatch(line.strip()):
            gpus.append(GpuLinks(int(gpu[1]), gpu[2], gpu[3]))
        elif not gpus:
            return Unknown(f'nvidia-smi nvlink -s does not begin with a GPU: "{line.strip()[:80]}"')
        elif link := _LINK.fullmatch(line.rstrip()):
            known = Link(int(link[1]), float(link[2]) if link[2] else None)
            gpus[-1] = replace(gpus[-1], links=(*gpus[-1].links, known))
        elif _NO_LINK.fullmatch(line):
            gpus[-1] = replace(gpus[-1], message=line.strip())
        else:
            return Unknown(f'nvidia-smi nvlink -s: a line that tells no link: "{line.strip()[:80]}"')
    return _distinct(tuple(gpus))


def _distinct(gpus: tuple[GpuLinks, ...]) -> tuple[GpuLinks, ...] | Unknown:
    """The GPUs, if there are any and no link is told twice (two answers in one text, or a damaged one)."""
    if not gpus:
        return Unknown("nvidia-smi nvlink -s printed nothing")
    told = [(gpu.index, link.index) for gpu in gpus for link in gpu.links]
    if len(set(told)) != len(told) or len({gpu.index for gpu in gpus}) != len(gpus):
        return Unknown("nvidia-smi nvlink -s tells a GPU or a link twice")
    return gpus


nvlink: Probe[tuple[GpuLinks, ...]] = Probe(
    "nvlink",
    Command(("nvidia-smi", "nvlink", "-s"), timeout_seconds=60, lane="nvidia"),
    lambda answer: parse_nvlink(answer.out),
)
"""The links of every GPU."""

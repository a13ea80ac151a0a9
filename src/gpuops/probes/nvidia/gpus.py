"""The GPUs that answer the driver: nvidia-smi's answer again, for everything that judges a card and not the tool."""

from __future__ import annotations

from collections.abc import Iterable

from gpuops.probes.nvidia.nvidia_smi import Gpu, parse_smi, smi
from gpuops.probing import Probe, Unknown
from gpuops.shell import Completed

__all__ = ["Gpu", "all_gpus", "gpus"]


def parse_gpus(answer: Completed) -> tuple[Gpu, ...] | Unknown:
    """The GPUs in the answer of ``nvidia-smi -q -x``, at least one; without any, why."""
    said = parse_smi(answer)
    if isinstance(said, Unknown):
        return said
    return said.gpus or Unknown(said.error.text if said.error else "nvidia-smi lists no GPU")


gpus: Probe[tuple[Gpu, ...]] = Probe("gpus", smi.question, parse_gpus, accepts=None)
"""Every GPU that nvidia-smi lists, never none: a check that looks at each has looked at something."""


def all_gpus(answering: Iterable[Gpu], addresses: Iterable[str]) -> dict[str, Gpu]:
    """Every GPU of a node by PCI address: as nvidia-smi lists it, else bare.

    A bare GPU is numbered by its place on the bus, because that is the order in which nvidia-smi numbers them.
    """
    known = {gpu.address: gpu for gpu in answering}
    everywhere = sorted({*known, *addresses})
    return {address: known.get(address, Gpu(place, address)) for place, address in enumerate(everywhere)}

"""The GPUs that answer the driver: nvidia-smi's answer again, for everything that judges a GPU and not the tool."""

from __future__ import annotations

from collections.abc import Iterable

from gpuops.probes.nvidia.nvidia_smi import Gpu, parse_smi, smi
from gpuops.probing import Probe, Unknown
from gpuops.shell import Completed

__all__ = ["Gpu", "all_gpus", "gpus"]


def parse_gpus(answer: Completed) -> tuple[Gpu, ...] | Unknown:
    """Return the GPUs in the answer of ``nvidia-smi -q -x``, at least one; if there is none, `Unknown` says why."""
    smi_report = parse_smi(answer)
    if isinstance(smi_report, Unknown):
        return smi_report
    return smi_report.gpus or Unknown(smi_report.error.text if smi_report.error else "nvidia-smi lists no GPU")


gpus: Probe[tuple[Gpu, ...]] = Probe("gpus", smi.question, parse_gpus, accepts=None)
"""Every GPU that nvidia-smi lists, never none: a check that looks at each has looked at something."""


def all_gpus(answering: Iterable[Gpu], addresses: Iterable[str]) -> dict[str, Gpu]:
    """Return every GPU of a node by PCI address: as nvidia-smi lists it, else bare.

    A bare GPU is numbered by its position on the bus, because that is the order in which nvidia-smi numbers them.
    """
    gpu_by_address = {gpu.address: gpu for gpu in answering}
    all_addresses = sorted({*gpu_by_address, *addresses})
    return {address: gpu_by_address.get(address, Gpu(index, address)) for index, address in enumerate(all_addresses)}

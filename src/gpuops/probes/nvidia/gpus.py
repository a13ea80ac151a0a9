"""GPUs that answer the driver: the answer of `smi` again, for checks that judge GPUs and not nvidia-smi itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuops.probes.host.lspci import PciFunction
from gpuops.probes.nvidia.driver import Driver
from gpuops.probes.nvidia.nvidia_smi import Gpu, parse_smi, smi
from gpuops.probing import PartName, Probe, Unknown
from gpuops.shell import Completed

__all__ = ["Gpu", "all_gpus", "gpus", "known_gpus", "part_at", "shared_nvlink_domain"]


def parse_gpus(answer: Completed) -> tuple[Gpu, ...] | Unknown:
    """Return the GPUs in the answer of ``nvidia-smi -q -x``, at least one; `Unknown` with the reason if none."""
    smi_report = parse_smi(answer)
    if isinstance(smi_report, Unknown):
        return smi_report
    return smi_report.gpus or Unknown(smi_report.error.text if smi_report.error else "nvidia-smi lists no GPU")


gpus: Probe[tuple[Gpu, ...]] = Probe("gpus", smi.question, parse_gpus, accepts=None)
"""GPUs that nvidia-smi lists, at least one: a check of each GPU never passes without having seen one."""


def all_gpus(answering: Iterable[Gpu], addresses: Iterable[str]) -> dict[str, Gpu]:
    """Return all GPUs of a node by PCI address, including those that do not answer, which have only a number.

    That number is the position on the bus, because nvidia-smi numbers GPUs in this order.
    """
    gpu_by_address = {gpu.address: gpu for gpu in answering}
    all_addresses = sorted({*gpu_by_address, *addresses})
    return {address: gpu_by_address.get(address) or Gpu(index, address) for index, address in enumerate(all_addresses)}


def known_gpus(
    answering: Iterable[Gpu] | Unknown,
    functions: Iterable[PciFunction] | Unknown,
    loaded: Driver | Unknown,
    others: Iterable[str] = (),
) -> dict[str, Gpu]:
    """Return the GPUs by PCI address that nvidia-smi, lspci and the driver (/proc/driver/nvidia/gpus) know.

    ``others`` are addresses that an error message names. They are numbered only beside one of the three lists: the
    message does not show how many GPUs precede them.
    """
    listed = () if isinstance(answering, Unknown) else tuple(answering)
    on_bus = set() if isinstance(functions, Unknown) else {f.address for f in functions if f.is_gpu}
    managed = set() if isinstance(loaded, Unknown) else set(loaded.gpu_addresses)
    known = on_bus | managed
    return all_gpus(listed, known | set(others) if known or listed else ())


def part_at(address: str, gpus: Mapping[str, Gpu]) -> PartName:
    """Return the part of the GPU at ``address``: the address itself if its number is unknown."""
    return gpus[address].part if address in gpus else PartName(address, f"GPU at {address}")


def shared_nvlink_domain(gpus: Iterable[Gpu]) -> tuple[str, int] | None:
    """Return ClusterUUID and CliqueId if all GPUs are in one NVLink domain that leads beyond the node, else None."""
    domains = {(gpu.nvlink_domain, gpu.fabric_clique_id) for gpu in gpus}
    uuid, clique = domains.pop() if len(domains) == 1 else ("", None)
    return (uuid, clique) if uuid and clique is not None else None

"""Presence of any NVIDIA GPU: a GPU that a machine never had is neither lost nor in use."""

from __future__ import annotations

from gpuops.probes.host.lspci import PciFunction
from gpuops.probes.host.pci import NVIDIA
from gpuops.probes.nvidia.driver import Driver
from gpuops.probes.nvidia.nvidia_smi import Smi
from gpuops.probing import Unknown

NO_GPU = "no NVIDIA GPU on this machine"


def has_no_gpu(vendors: frozenset[str] | Unknown, loaded: Driver | Unknown, answer: Smi | Unknown) -> bool:
    """Return True if no NVIDIA device is on the PCI bus, and no driver or nvidia-smi knows of one elsewhere.

    If the kernel's list of the bus cannot be read, a GPU may be there.
    """
    listed = isinstance(answer, Smi) and bool(answer.gpus)
    return not isinstance(vendors, Unknown) and NVIDIA not in vendors and isinstance(loaded, Unknown) and not listed


def lost_gpus(answer: Smi | Unknown, rows: tuple[PciFunction, ...] | Unknown) -> dict[str, str]:
    """Return the evidence that a GPU fell off the bus, by PCI address: nvidia-smi's error, or revision ff in lspci.

    A card in runtime suspend also reads ff, so a card that answers nvidia-smi is not lost.
    """
    listing = answer if isinstance(answer, Smi) else Smi()
    error = listing.error if listing.error and listing.error.kind in {"gpu-lost", "unknown-handle"} else None
    refused = dict.fromkeys(error.addresses, error.text) if error else {}
    answering = {gpu.address for gpu in listing.gpus} - set(refused)
    on_bus = () if isinstance(rows, Unknown) else tuple(f for f in rows if f.is_gpu)
    silent = {f.address: "lspci shows rev ff" for f in on_bus if f.off_the_bus and f.address not in answering}
    return {at: "; ".join(filter(None, (refused.get(at), silent.get(at)))) for at in sorted({*refused, *silent})}

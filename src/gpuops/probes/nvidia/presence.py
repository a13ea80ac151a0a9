"""Presence of any NVIDIA GPU: a GPU that a machine never had is neither lost nor in use."""

from __future__ import annotations

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

"""No GPU has fallen off the PCI bus."""

from collections.abc import Iterator

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.probes.host.lspci import PciFunction, gpu_functions, listed_functions
from gpuops.probes.host.pci import pci_vendors
from gpuops.probes.nvidia.driver import Driver, driver
from gpuops.probes.nvidia.gpus import known_gpus, part_at
from gpuops.probes.nvidia.nvidia_smi import Smi, smi
from gpuops.probes.nvidia.presence import NO_GPU, has_no_gpu, lost_gpus


@check(
    needs=(smi, gpu_functions, listed_functions, pci_vendors, driver),
    tolerates=(smi, gpu_functions, listed_functions, pci_vendors, driver),
    severity="isolate",
    tags=("quick", "start", "gpu", "nvidia-smi"),
    explains=("nvidia-smi", "xid:79", "xid:154", "pcie-errors", "sxid:20034"),
    blinds=("nvidia-smi",),
    catches="a dead card, riser or power feed: nvidia-smi fails on the whole node, or no longer lists the card",
    fix="power-cycle the node; if the GPU does not come back, reseat or replace it",
)
def gpu_lost(
    answer: Smi | Unknown,
    functions: tuple[PciFunction, ...] | Unknown,
    rows: tuple[PciFunction, ...] | Unknown,
    vendors: frozenset[str] | Unknown,
    loaded: Driver | Unknown,
    _profile: Profile,
) -> Iterator[Finding | Unknown | NotApplicable]:
    """A lost card returns all ones to every configuration read, which lspci prints as revision ff.

    Source: NVIDIA Xid catalogue, Xid 79; Oracle oci-hpc, check_gpu_setup.py (``rev ff``). A lost card is named by its
    number in the order of the PCI bus, which lspci or the driver shows; if neither can be read, it is named by its
    address.
    """
    if has_no_gpu(vendors, loaded, answer):
        yield NotApplicable(NO_GPU)
        return
    listing = answer if isinstance(answer, Smi) else Smi()
    error = listing.error if listing.error and listing.error.kind in {"gpu-lost", "unknown-handle"} else None
    lost = lost_gpus(answer, rows)
    gpus = known_gpus(listing.gpus, functions, loaded, lost)
    for address, evidence in lost.items():
        yield Finding(f"fell off the bus: {evidence}", part=part_at(address, gpus))
    if error and not lost:
        yield Finding(f"a GPU fell off the bus: {error.text}")
    elif isinstance(answer, Unknown):
        yield answer
    elif listing.error and not error and not listing.gpus:
        yield Unknown(listing.error.text)

"""nvidia-smi, the PCI bus, the kernel driver and the profile agree on the number of GPUs."""

from collections.abc import Iterator

from gpuops import Finding, Profile, Unknown, check
from gpuops.probes.host.lspci import PciFunction, gpu_functions
from gpuops.probes.host.pci import pci_vendors
from gpuops.probes.host.pcie import PcieLink, pcie
from gpuops.probes.nvidia.driver import Driver, driver
from gpuops.probes.nvidia.gpus import Gpu, all_gpus
from gpuops.probes.nvidia.nvidia_smi import Smi, smi
from gpuops.probes.nvidia.presence import has_no_gpu


@check(
    needs=(smi, gpu_functions, driver, pcie, pci_vendors),
    tolerates=(smi, gpu_functions, driver, pcie, pci_vendors),
    uses=("gpu.count",),
    severity="isolate",
    tags=("quick", "start", "gpu", "nvidia-smi"),
    catches="7 of 8 GPUs after a reboot: jobs fail to start, or start with fewer ranks",
    fix="power-cycle the node; if the GPU does not come back, reseat or replace it",
)
def gpu_count(
    answer: Smi | Unknown,
    functions: tuple[PciFunction, ...] | Unknown,
    loaded: Driver | Unknown,
    links: dict[str, PcieLink] | Unknown,
    vendors: frozenset[str] | Unknown,
    profile: Profile,
) -> Iterator[Finding | Unknown]:
    """Whole GPUs are counted, not MIG instances; without an expected number, the sources are compared.

    A GPU that the kernel driver manages but nvidia-smi does not list is hidden from this session (by a device cgroup, a
    container or NVIDIA_VISIBLE_DEVICES): the result is unknown, the GPU is not lost. In containers, /sys lists GPUs
    that /proc hides. Source of the rule that the counts agree: Oracle oci-hpc, check_gpu_setup.py.
    """
    expected = profile.get("gpu.count", 0)
    if expected and has_no_gpu(vendors, loaded, answer):
        yield Finding(f"0 of {expected} GPUs are there", expected=expected, found=0, unit="GPUs")
        return
    if isinstance(answer, Unknown):
        yield answer
        return
    bound = set() if isinstance(loaded, Unknown) else set(loaded.gpu_addresses)
    bound |= set() if isinstance(links, Unknown) else {name for name in links if ":" in name}
    on_bus = set() if isinstance(functions, Unknown) else {f.address for f in functions if f.is_gpu}
    gpus = all_gpus(answer.gpus, bound | on_bus)
    unlisted = set(gpus) - {gpu.address for gpu in answer.gpus}
    if gpus and len(gpus) < expected:
        yield Finding(f"{len(gpus)} of {expected} GPUs are there", expected=expected, found=len(gpus), unit="GPUs")
    elif (answer.error and unlisted) or not gpus:
        yield Unknown(answer.error.text if answer.error else "nothing lists a GPU")
    elif unlisted & bound:
        yield Unknown(f"this session sees {len(answer.gpus)} of {len(gpus)} GPUs")
    elif len(gpus) > expected > 0:
        fix = "set the right profile in the inventory, or set expect: {gpu.count: …}"
        message = f"{len(gpus)} GPUs, more than {expected}"
        yield Finding(message, expected=expected, found=len(gpus), unit="GPUs", fix=fix, severity="warn")
    if not answer.error:
        yield from (_unserved(gpus[address]) for address in sorted(unlisted - bound))


def _unserved(gpu: Gpu) -> Finding:
    fix = "read the NVRM lines of dmesg; power-cycle the node; if that does not help, reseat or replace the GPU"
    return Finding("on the PCI bus, but not managed by the driver", fix=fix, part=gpu.part)

"""nvidia-smi, the PCI bus, the kernel driver and the profile agree on the number of GPUs."""

from collections import defaultdict
from collections.abc import Iterator

from gpuops import Finding, Profile, Unknown, check
from gpuops.probes.host.lspci import PciFunction, gpu_functions
from gpuops.probes.host.pci import pci_vendors
from gpuops.probes.host.pcie import PcieLink, pcie
from gpuops.probes.host.session import Session, session
from gpuops.probes.nvidia.driver import Driver, driver
from gpuops.probes.nvidia.gpus import Gpu, all_gpus
from gpuops.probes.nvidia.init_failures import InitFailure, init_failures
from gpuops.probes.nvidia.nvidia_smi import Smi, smi
from gpuops.probes.nvidia.presence import has_no_gpu


@check(
    needs=(smi, gpu_functions, driver, pcie, pci_vendors, session, init_failures),
    tolerates=(smi, gpu_functions, driver, pcie, pci_vendors, session, init_failures),
    uses=("gpu.count",),
    severity="isolate",
    tags=("quick", "start", "gpu", "nvidia-smi"),
    explains=("xid:143", "xid:79", "xid:init-failed"),
    catches="7 of 8 GPUs after a reboot: jobs fail to start, or start with fewer ranks",
    fix="power-cycle the node; if the GPU does not come back, reseat or replace it",
)
def gpu_count(
    answer: Smi | Unknown,
    functions: tuple[PciFunction, ...] | Unknown,
    loaded: Driver | Unknown,
    links: dict[str, PcieLink] | Unknown,
    vendors: frozenset[str] | Unknown,
    here: Session | Unknown,
    failures: tuple[InitFailure, ...] | Unknown,
    profile: Profile,
) -> Iterator[Finding | Unknown]:
    """Whole GPUs are counted, not MIG instances; without an expected number, the sources are compared.

    A GPU that the kernel driver manages but nvidia-smi does not list is hidden if this session is in a container or in
    the cgroup of a job: the result is unknown. Otherwise the driver could not initialize it, and its log says why. In
    containers, /sys lists GPUs that /proc hides. Source of the rule that the counts agree: Oracle oci-hpc,
    check_gpu_setup.py; of the words in the log: NVIDIA open-gpu-kernel-modules, RmInitAdapter.
    """
    expected = profile.get("gpu.count", 0)
    if expected and has_no_gpu(vendors, loaded, answer):
        yield Finding(f"0 of {expected} GPUs are there", expected=expected, found=0, unit="GPUs")
        return
    if isinstance(answer, Unknown):
        yield answer
        return
    managed = set() if isinstance(loaded, Unknown) else set(loaded.gpu_addresses)
    bound = managed | (set() if isinstance(links, Unknown) else {name for name in links if ":" in name})
    on_bus = set() if isinstance(functions, Unknown) else {f.address for f in functions if f.is_gpu}
    gpus = all_gpus(answer.gpus, bound | on_bus)
    listed = {gpu.address for gpu in answer.gpus}
    unlisted = set(gpus) - listed
    if gpus and len(gpus) < expected:
        yield Finding(f"{len(gpus)} of {expected} GPUs are there", expected=expected, found=len(gpus), unit="GPUs")
    elif (answer.error and unlisted) or not gpus:
        yield Unknown(answer.error.text if answer.error else "nothing lists a GPU")
    elif len(gpus) > expected > 0:
        fix = "set the right profile in the inventory, or set expect: {gpu.count: …}"
        message = f"{len(gpus)} GPUs, more than {expected}"
        yield Finding(message, expected=expected, found=len(gpus), unit="GPUs", fix=fix, severity="warn")
    yield from _disagreements(answer, managed, on_bus)
    if answer.error:
        return
    if unlisted & bound and (isinstance(here, Unknown) or here.confined):
        why = here.why if isinstance(here, Unknown) else f"{here.confined} may hide the others"
        yield Unknown(f"this session sees {len(answer.gpus)} of {len(gpus)} GPUs: {why}")
    else:
        yield from (
            _missing(gpus[address], failures, "nvidia-smi does not list it") for address in sorted(unlisted & bound)
        )
    not_managed = "on the PCI bus, but not managed by the driver"
    yield from (_missing(gpus[address], failures, not_managed) for address in sorted(unlisted - bound))


def _disagreements(answer: Smi, managed: set[str], on_bus: set[str]) -> Iterator[Unknown]:
    """Yield what makes the number doubtful without naming a GPU that is missing."""
    listed = {gpu.address for gpu in answer.gpus}
    if not answer.error and answer.attached_gpus not in {None, len(listed)}:
        yield Unknown(f"nvidia-smi counts {answer.attached_gpus} GPUs, and describes {len(listed)}")
    for source, addresses in (("/proc/driver/nvidia", managed), ("lspci", on_bus)):
        if addresses and listed - addresses:
            yield Unknown(f"nvidia-smi lists {', '.join(sorted(listed - addresses))}, but {source} does not")


def _missing(gpu: Gpu, failures: tuple[InitFailure, ...] | Unknown, message: str) -> Finding:
    texts = defaultdict(list)
    for failure in () if isinstance(failures, Unknown) else failures:
        texts[failure.address].append(failure.text)
    said = texts[gpu.address] or texts[""]
    reason = f"; the driver says: {said[-1]}" if said else ""
    fix = "read the NVRM lines of dmesg; power-cycle the node; if that does not help, reseat or replace the GPU"
    return Finding(f"{message}{reason}", fix=fix, part=gpu.part)

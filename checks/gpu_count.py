"""nvidia-smi, the PCI bus, the kernel driver and the profile agree on the number of GPUs."""

from collections import defaultdict
from collections.abc import Iterator

from gpuops import Finding, Profile, Unknown, check
from gpuops.probes.host.lspci import PciFunction, gpu_functions
from gpuops.probes.host.pci import NVIDIA, PciDevice, pci_devices, pci_vendors
from gpuops.probes.host.pcie import PcieLink, pcie
from gpuops.probes.host.session import Session, session
from gpuops.probes.nvidia.driver import Driver, driver
from gpuops.probes.nvidia.gpus import Gpu, all_gpus
from gpuops.probes.nvidia.init_failures import InitFailure, init_failures
from gpuops.probes.nvidia.nvidia_smi import Smi, smi
from gpuops.probes.nvidia.presence import has_no_gpu


@check(
    needs=(smi, gpu_functions, driver, pcie, pci_vendors, pci_devices, session, init_failures),
    tolerates=(smi, gpu_functions, driver, pcie, pci_vendors, pci_devices, session, init_failures),
    uses=("gpu.count",),
    severity="isolate",
    tags=("quick", "start", "gpu", "nvidia-smi"),
    explains=("xid:143", "xid:79", "xid:init-failed"),
    catches="7 of 8 GPUs after a reboot: jobs fail to start, or start with fewer ranks",
    fix="power-cycle the node; if the GPU does not come back, reseat or replace it",
)
def gpu_count(  # noqa: PLR0913, PLR0917 - each source of the number is one
    answer: Smi | Unknown,
    functions: tuple[PciFunction, ...] | Unknown,
    loaded: Driver | Unknown,
    links: dict[str, PcieLink] | Unknown,
    vendors: frozenset[str] | Unknown,
    devices: tuple[PciDevice, ...] | Unknown,
    here: Session | Unknown,
    failures: tuple[InitFailure, ...] | Unknown,
    profile: Profile,
) -> Iterator[Finding | Unknown]:
    """Whole GPUs are counted, not MIG instances; without an expected number, the sources are compared.

    A GPU that the kernel driver manages but nvidia-smi does not list is hidden if this session is in a container or in
    the cgroup of a job: the result is unknown. Otherwise the driver could not initialize it, and its log says why. In
    containers, /sys lists GPUs that /proc hides. A card that another driver serves (vfio-pci for a virtual machine,
    nouveau for a screen) is not missing. Source of the rule that the counts agree: Oracle oci-hpc,
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
    in_sysfs = set() if isinstance(links, Unknown) else {name for name in links if ":" in name}
    bound = managed | in_sysfs
    on_bus = set() if isinstance(functions, Unknown) else {f.address for f in functions if f.is_gpu}
    gpus = all_gpus(answer.gpus, bound | on_bus)
    unlisted = set(gpus) - {gpu.address for gpu in answer.gpus}
    foreign = {a: by for a in unlisted - bound if (by := _foreign(devices).get(a[5:]))}
    if gpus and len(gpus) < expected:
        yield Finding(f"{len(gpus)} of {expected} GPUs are there", expected=expected, found=len(gpus), unit="GPUs")
    elif (answer.error and unlisted) or not gpus:
        yield Unknown(answer.error.text if answer.error else "nothing lists a GPU")
    elif len(gpus) - len(foreign) > expected > 0:
        fix = "set the right profile in the inventory, or set expect: {gpu.count: …}"
        message = f"{len(gpus) - len(foreign)} GPUs, more than {expected}"
        yield Finding(message, expected=expected, found=len(gpus), unit="GPUs", fix=fix, severity="warn")
    yield from _disagreements(answer, {"/proc/driver/nvidia": managed, "lspci": on_bus, "/sys": in_sysfs})
    kernel = _known_to_kernel(devices, answer)
    if kernel is not None and not answer.error and kernel != len(gpus) - len(foreign):
        yield Unknown(f"the kernel lists {kernel} GPUs of this model on the PCI bus, the other sources {len(gpus)}")
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
    yield from (_missing(gpus[a], failures, not_managed) for a in sorted(unlisted - bound - foreign.keys()))
    for address, by in foreign.items():
        message = f"served by {by}, not by NVIDIA's driver"
        yield Finding(message, fix="nothing, if that is wanted", part=gpus[address].part, severity="info")


def _foreign(devices: tuple[PciDevice, ...] | Unknown) -> dict[str, str]:
    """Return the drivers of NVIDIA's devices that are not NVIDIA's, by place without the domain."""
    own = {"", "nvidia", "nvidia-nvswitch"}
    listed = () if isinstance(devices, Unknown) else devices
    return {d.place: d.driver for d in listed if d.vendor == NVIDIA and d.driver not in own}


def _known_to_kernel(devices: tuple[PciDevice, ...] | Unknown, answer: Smi) -> int | None:
    """Return how many devices of the models that nvidia-smi lists are on the bus; None if that cannot be told.

    The kernel's list has no domains, so a place that several devices share tells nothing.
    """
    listed = () if isinstance(devices, Unknown) else devices
    places = {gpu.address[5:] for gpu in answer.gpus}
    models = {d.device for d in listed if d.vendor == NVIDIA and d.place in places and d.driver == "nvidia"}
    own = [d for d in listed if d.vendor == NVIDIA and d.device in models and d.driver in {"", "nvidia"}]
    return len(own) if models and len({d.place for d in own}) == len(own) else None


def _disagreements(answer: Smi, addresses_by_source: dict[str, set[str]]) -> Iterator[Unknown]:
    """Yield what makes the number doubtful without naming a GPU that is missing."""
    listed = {gpu.address for gpu in answer.gpus}
    if not answer.error and answer.attached_gpus not in {None, len(listed)}:
        yield Unknown(f"nvidia-smi counts {answer.attached_gpus} GPUs, and describes {len(listed)}")
    for source, addresses in addresses_by_source.items():
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

"""nvidia-smi, the PCI bus, the kernel driver and the profile agree on the number of GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpuops import Finding, Profile, Unknown, check
from gpuops.probes.host.kernel_log import KernelLog, kernel_log
from gpuops.probes.host.lspci import PciFunction, gpu_functions
from gpuops.probes.host.pci import NVIDIA, PciDevice, pci_devices, pci_vendors
from gpuops.probes.host.pcie import PcieLink, pcie
from gpuops.probes.host.session import Session, session
from gpuops.probes.nvidia.driver import Driver, driver
from gpuops.probes.nvidia.gpus import Gpu, all_gpus, part_at
from gpuops.probes.nvidia.init_failures import InitFailure, Reason, init_failures, most_telling
from gpuops.probes.nvidia.nvidia_smi import Smi, smi
from gpuops.probes.nvidia.presence import has_no_gpu
from gpuops.trends import Record, least_gpus, past

_REMEDIES: dict[Reason, str] = {
    "open-modules": "install the driver's open kernel modules in place of the proprietary ones, and reboot",
    "proprietary-modules": "install the driver's proprietary kernel modules in place of the open ones, and reboot",
    "no-bar": "enable Above 4G Decoding and Resizable BAR in the BIOS; if that does not help, boot with pci=realloc",
    "power-cable": "switch the node off, and connect every power cable of the GPU; then look at its power supply",
}
_LOST = (79, 143)
"""The Xids of a GPU that is off the bus, or could not be initialized."""
_INSPECT = "read the NVRM lines of dmesg; power-cycle the node; if that does not help, reseat or replace the GPU"
_INCLUDE = "find out why it was excluded; then remove it from NVreg_ExcludedGpus in /etc/modprobe.d, and reboot"


@check(
    needs=(smi, gpu_functions, driver, pcie, pci_vendors, pci_devices, session, init_failures, kernel_log, past),
    tolerates=(smi, gpu_functions, driver, pcie, pci_vendors, pci_devices, session, init_failures, kernel_log, past),
    uses=("gpu.count", "power.declared"),
    severity="isolate",
    tags=("quick", "start", "gpu", "nvidia-smi"),
    explains=("xid:143", "xid:154", "xid:79", "xid:init-failed"),
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
    log: KernelLog | Unknown,
    record: Record | Unknown,
    profile: Profile,
) -> Iterator[Finding | Unknown]:
    """Whole GPUs are counted, not MIG instances; without an expected number, the sources are compared.

    The number is the profile's, else that of three nodes with the same board, processors and model of GPU. Without
    either, sources that agree prove nothing: a GPU can be gone from all of them. So the result is unknown, and a
    failure if an earlier run of this machine saw more, or if the inventory declares the power cables of more. If the
    kernel log says since boot that a GPU was lost which no source lists any more, that GPU is the one that is missing.

    A GPU that the kernel driver manages but nvidia-smi does not list is hidden if this session is in a container or in
    the cgroup of a job: the result is unknown. Otherwise the driver could not initialize it, and its log says why, or
    the module's parameter NVreg_ExcludedGpus excludes it. If nvidia-smi finds no device at all, that is one finding on
    the node. In containers, /sys lists GPUs that /proc hides. A card that another driver serves (vfio-pci for a virtual
    machine, nouveau for a screen) is not missing.

    Source of the rule that the counts agree: Oracle oci-hpc, check_gpu_setup.py; of the words in the log: NVIDIA
    open-gpu-kernel-modules, kernel-open/nvidia/nv-pci.c and RmInitAdapter; of the remedies: NVIDIA driver README, "Open
    Linux Kernel Modules" and "Known Issues" (BAR1).
    """
    expected = _Expected.of(profile, record)
    if expected.least and has_no_gpu(vendors, loaded, answer):
        yield expected.missed(0)
        return
    if isinstance(answer, Unknown):
        yield answer
        return
    managed = set() if isinstance(loaded, Unknown) else set(loaded.gpu_addresses)
    in_sysfs = set() if isinstance(links, Unknown) else {name for name in links if ":" in name}
    on_bus = set() if isinstance(functions, Unknown) else {f.address for f in functions if f.is_gpu}
    seen = _Sources.of(answer, managed, in_sysfs, on_bus, devices)
    said = () if isinstance(failures, Unknown) else failures
    if _sees_all(here) and (dead := _none_works(seen, said, devices)):
        yield dead
        return
    yield from _judge_number(seen, expected, _lost(log, said) - seen.gpus.keys())
    yield from _disagreements(seen)
    if not answer.error:
        yield from _unlisted(seen, here, said, frozenset() if isinstance(loaded, Unknown) else loaded.excluded)
    if not expected.count:
        why = f"nothing says how many GPUs this machine should have ({len(seen.gpus)} are there)"
        yield Unknown(f"{why}; set expect: {{gpu.count: …}} in the inventory, or name a profile with their number")


@dataclass(frozen=True)
class _Expected:
    """How many GPUs there should be: ``count``, 0 if nothing says it; at ``least``, and what shows ``least``."""

    count: int
    least: int
    evidence: str = ""

    @classmethod
    def of(cls, profile: Profile, record: Record | Unknown) -> _Expected:
        count: int = profile.get("gpu.count", 0)
        return cls(count, count) if count else cls(0, *least_gpus(profile, record))

    def missed(self, found: int) -> Finding:
        if self.count:
            message, fix = f"{found} of {self.count} GPUs are there", ""
        else:
            message = f"{found} of {self.least} GPUs are there: {self.evidence}"
            fix = "power-cycle the node, and reseat the GPU; if it was taken out, set expect: {gpu.count: …}"
        return Finding(message, expected=self.least, found=found, unit="GPUs", fix=fix)


@dataclass(frozen=True)
class _Sources:
    """Addresses of GPUs by source.

    ``gpus`` are those of all sources. ``foreign`` are those that another driver serves. ``in_kernel`` is the kernel's
    number of devices of these models, None if that is unknown.
    """

    answer: Smi
    managed: set[str]
    in_sysfs: set[str]
    on_bus: set[str]
    gpus: dict[str, Gpu]
    foreign: dict[str, str]
    in_kernel: int | None

    @classmethod
    def of(
        cls,
        answer: Smi,
        managed: set[str],
        in_sysfs: set[str],
        on_bus: set[str],
        devices: tuple[PciDevice, ...] | Unknown,
    ) -> _Sources:
        gpus = all_gpus(answer.gpus, managed | in_sysfs | on_bus)
        drivers = _foreign_drivers(devices)
        elsewhere = gpus.keys() - {gpu.address for gpu in answer.gpus} - managed - in_sysfs
        foreign = {address: by for address in elsewhere if (by := drivers.get(address[5:]))}
        return cls(answer, managed, in_sysfs, on_bus, gpus, foreign, _known_to_kernel(devices, answer))

    @property
    def listed(self) -> set[str]:
        return {gpu.address for gpu in self.answer.gpus}

    @property
    def unlisted(self) -> set[str]:
        """GPUs that another source has and nvidia-smi does not list."""
        return self.gpus.keys() - self.listed

    @property
    def count(self) -> int:
        """Number of GPUs that are NVIDIA's driver's."""
        return len(self.gpus) - len(self.foreign)


def _lost(log: KernelLog | Unknown, said: tuple[InitFailure, ...]) -> set[str]:
    """Return the addresses of the GPUs that the kernel log calls lost, or that the driver could not initialize."""
    events = () if isinstance(log, Unknown) else log.xids
    return {event.address for event in events if event.code in _LOST} | {f.address for f in said if f.address}


def _judge_number(seen: _Sources, expected: _Expected, gone: set[str]) -> Iterator[Finding | Unknown]:
    found, error = len(seen.gpus), seen.answer.error
    if seen.gpus and found < expected.least:
        is_known = len(gone) <= expected.least - found
        for address in sorted(gone) if is_known else ():
            message = f"it is gone: {found} of {expected.least} GPUs are there"
            yield Finding(message, expected="on the PCI bus", found="gone", part=part_at(address, {}))
        if len(gone) != expected.least - found:
            yield expected.missed(found)
    elif (error and seen.unlisted) or not seen.gpus:
        yield Unknown(error.text if error else "nothing lists a GPU")
    elif seen.count > expected.count > 0:
        fix = "set the right profile in the inventory, or set expect: {gpu.count: …}"
        message = f"{seen.count} GPUs, more than {expected.count}"
        yield Finding(message, expected=expected.count, found=seen.count, unit="GPUs", fix=fix, severity="warn")


def _disagreements(seen: _Sources) -> Iterator[Unknown]:
    """Yield what makes the number doubtful without naming a GPU that is missing."""
    listed, error, attached = seen.listed, seen.answer.error, seen.answer.attached_gpus
    if not error and attached not in {None, len(listed)}:
        yield Unknown(f"nvidia-smi counts {attached} GPUs, and describes {len(listed)}")
    for source, addresses in (
        ("/proc/driver/nvidia", seen.managed),
        ("lspci", seen.on_bus),
        ("/sys", seen.in_sysfs),
    ):
        if addresses and listed - addresses:
            yield Unknown(f"nvidia-smi lists {', '.join(sorted(listed - addresses))}, but {source} does not")
    if not error and seen.in_kernel not in {None, seen.count}:
        kernel = f"the kernel lists {seen.in_kernel} GPUs of this model on the PCI bus"
        yield Unknown(f"{kernel}, the other sources {seen.count}")


def _sees_all(here: Session | Unknown) -> bool:
    """Return True if nothing hides GPUs from this session."""
    return not isinstance(here, Unknown) and not here.confined


def _none_works(
    seen: _Sources, said: tuple[InitFailure, ...], devices: tuple[PciDevice, ...] | Unknown
) -> Finding | None:
    """Return what keeps all GPUs from use, if nvidia-smi finds no device although the driver has, or refused, some."""
    own = seen.unlisted - seen.foreign.keys()
    error = seen.answer.error
    if error is None or error.kind != "no-devices" or seen.listed or isinstance(devices, Unknown):
        return None
    refused = tuple(failure for failure in said if failure.address in own)
    if not own or not (refused or own <= seen.managed):
        return None
    told = most_telling(refused)
    message = f"none of the {len(own)} GPUs works: nvidia-smi finds no device"
    message += f"; the driver says, of {told.address}: {told.text}" if told else ""
    fix = _REMEDIES.get(told.reason, _INSPECT) if told else _INSPECT
    return Finding(message, expected=len(own), found=0, unit="GPUs", fix=fix)


def _unlisted(
    seen: _Sources, here: Session | Unknown, said: tuple[InitFailure, ...], excluded: frozenset[str]
) -> Iterator[Finding | Unknown]:
    """Yield each GPU that nvidia-smi does not list, with the reason; it may be hidden from this session."""
    hidden = seen.unlisted & (seen.managed | seen.in_sysfs)
    words = dict.fromkeys(seen.unlisted - hidden, "on the PCI bus, but not managed by the driver")
    if hidden and not _sees_all(here):
        why = here.why if isinstance(here, Unknown) else f"{here.confined} may hide the others"
        yield Unknown(f"this session sees {len(seen.listed)} of {len(seen.gpus)} GPUs: {why}")
    else:
        words |= dict.fromkeys(hidden, "nvidia-smi does not list it")
    for address, message in sorted(words.items()):
        gpu = seen.gpus[address]
        if by := seen.foreign.get(address):
            other = f"served by {by}, not by NVIDIA's driver"
            yield Finding(other, fix="nothing, if that is wanted", part=gpu.part, severity="info")
        elif address in excluded:
            what = "the parameter NVreg_ExcludedGpus of the driver's module excludes it"
            yield Finding(what, fix=_INCLUDE, part=gpu.part, severity="fail")
        else:
            yield _missing(gpu, said, message)


def _foreign_drivers(devices: tuple[PciDevice, ...] | Unknown) -> dict[str, str]:
    """Return the drivers of NVIDIA's devices that are not NVIDIA's, by place without the domain."""
    own = {"", "nvidia", "nvidia-nvswitch"}
    listed = () if isinstance(devices, Unknown) else devices
    return {d.place: d.driver for d in listed if d.vendor == NVIDIA and d.driver not in own}


def _known_to_kernel(devices: tuple[PciDevice, ...] | Unknown, answer: Smi) -> int | None:
    """Return how many devices of the models that nvidia-smi lists are on the bus; None if that is unknown.

    The kernel's list has no domains, so a place that several devices share shows nothing.
    """
    listed = () if isinstance(devices, Unknown) else devices
    places = {gpu.address[5:] for gpu in answer.gpus}
    models = {d.device for d in listed if d.vendor == NVIDIA and d.place in places and d.driver == "nvidia"}
    own = [d for d in listed if d.vendor == NVIDIA and d.device in models and d.driver in {"", "nvidia"}]
    return len(own) if models and len({d.place for d in own}) == len(own) else None


def _missing(gpu: Gpu, said: tuple[InitFailure, ...], message: str) -> Finding:
    own = tuple(f for f in said if f.address == gpu.address) or tuple(f for f in said if not f.address)
    told = most_telling(own)
    reason = f"; the driver says: {told.text}" if told else ""
    return Finding(f"{message}{reason}", fix=_REMEDIES.get(told.reason, _INSPECT) if told else _INSPECT, part=gpu.part)

"""The loaded NVIDIA module, the installed module and the user-space libraries have the same version."""

from collections.abc import Iterator

from gpuops import Finding, Profile, Unknown, check
from gpuops.probes.host.kernel_log import KernelLog, kernel_log
from gpuops.probes.host.pci import NVIDIA, pci_vendors
from gpuops.probes.nvidia.driver import Driver, InstalledDriver, NotLoaded, driver, installed_driver
from gpuops.probes.nvidia.nvidia_smi import Smi, smi

_INSTALL = "modprobe nvidia; if that fails, dmesg shows why: install the driver for this kernel"
_NOUVEAU = (
    "keep nouveau off the GPUs: blacklist nouveau and options nouveau modeset=0 in /etc/modprobe.d, rebuild the "
    "initramfs (update-initramfs -u -k all, or dracut --force --regenerate-all), and reboot"
)
_SECURE_BOOT = (
    "install modules that the distribution has signed (linux-modules-nvidia-*), or enrol the key that signs yours "
    "(mokutil --import) and confirm it at the next boot, or switch Secure Boot off; do not reinstall the driver"
)


@check(
    needs=(driver, installed_driver, smi, pci_vendors, kernel_log),
    tolerates=(driver, installed_driver, smi, pci_vendors, kernel_log),
    severity="reboot",
    tags=("quick", "start", "driver", "nvidia-smi"),
    explains=("libraries:version", "cdi:version"),
    blinds=("nvidia-smi",),
    catches="a package update without a reboot: new programs fail to start, running ones are not affected yet",
    fix="reboot, or stop everything that uses the GPUs and reload the nvidia modules",
)
def driver_loaded(
    loaded: Driver | Unknown,
    installed: InstalledDriver | Unknown,
    answer: Smi | Unknown,
    vendors: frozenset[str] | Unknown,
    log: KernelLog | Unknown,
    _profile: Profile,
) -> Iterator[Finding | Unknown]:
    """A difference between the three means that the node needs a reboot.

    If the module is not loaded, the list of modules and the kernel log show why: nouveau has the GPUs, or Secure Boot
    refuses the module's key. Source: NVIDIA driver README, "API mismatch" (kernel module and libraries must be of the
    same release) and "Interaction with the Nouveau Driver"; Linux kernel, module signing ("unavailable key is
    rejected").
    """
    error = answer.error if isinstance(answer, Smi) else None
    kind = error.kind if error else ""
    versions = {
        "loaded": None if isinstance(loaded, Unknown) else loaded.loaded_version,
        "on disk": None if isinstance(installed, Unknown) else installed.version,
        "libraries": answer.driver_version if isinstance(answer, Smi) else None,
    }
    known_versions = {where: version for where, version in versions.items() if version}
    has_gpu = not isinstance(vendors, Unknown) and NVIDIA in vendors
    is_absent = isinstance(loaded, NotLoaded) and has_gpu
    if kind == "driver-not-loaded" or is_absent:
        yield _absent(loaded, installed, log)
    elif len(set(known_versions.values())) > 1 or kind == "version-mismatch":
        differing = ", ".join(f"{version} {where}" for where, version in known_versions.items())
        yield Finding(f"driver versions differ: {differing}", expected="one version", found=differing, part="driver")
    elif isinstance(loaded, Driver) and (taken := _taken(loaded, log)):
        message = f"nouveau, not nvidia, has the GPU at {', '.join(taken)}"
        yield Finding(message, fix=_NOUVEAU, part="driver", code="nouveau")
    for part in (installed, answer) if is_absent else (loaded, installed, answer):
        if isinstance(part, Unknown):
            yield part
    if isinstance(answer, Smi) and not answer.driver_version:
        yield Unknown(error.text if error else "nvidia-smi does not report the driver's version")


def _absent(loaded: Driver | Unknown, installed: InstalledDriver | Unknown, log: KernelLog | Unknown) -> Finding:
    modules = loaded.kernel_modules if isinstance(loaded, NotLoaded) else frozenset[str]()
    refused = () if isinstance(log, Unknown) else log.of_kind("unsigned-module")
    message, fix, code = "the NVIDIA kernel module is not loaded", _INSTALL, ""
    if "nouveau" in modules or (not isinstance(log, Unknown) and log.of_kind("nouveau")):
        message, fix, code = f"{message}: nouveau has the GPUs", _NOUVEAU, "nouveau"
    elif refused and isinstance(installed, InstalledDriver):
        message, fix, code = f'{message}: the kernel says "{refused[-1].text}"', _SECURE_BOOT, "secure-boot"
    return Finding(message, fix=fix, part="driver", code=code)


def _taken(loaded: Driver, log: KernelLog | Unknown) -> list[str]:
    """Return the addresses of the GPUs that nouveau had when the driver was loaded, and that it has not got since."""
    named = () if isinstance(log, Unknown) else log.of_kind("nouveau")
    addresses = {message.subject.lower()[-12:] for message in named}
    return sorted(addresses - set(loaded.gpu_addresses))

"""The loaded NVIDIA module, the installed module and the user-space libraries have the same version."""

from collections.abc import Iterator

from gpuops import Finding, Profile, Unknown, check
from gpuops.probes.host.pci import NVIDIA, pci_vendors
from gpuops.probes.nvidia.driver import Driver, InstalledDriver, NotLoaded, driver, installed_driver
from gpuops.probes.nvidia.nvidia_smi import Smi, smi


@check(
    needs=(driver, installed_driver, smi, pci_vendors),
    tolerates=(driver, installed_driver, smi, pci_vendors),
    severity="reboot",
    tags=("quick", "start", "driver", "nvidia-smi"),
    blinds=("nvidia-smi",),
    catches="a package update without a reboot: new programs fail to start, running ones are not affected yet",
    fix="reboot, or stop everything that uses the GPUs and reload the nvidia modules",
    fix_in_common="an update replaced the driver on all of them: drain and reboot them, a few at a time",
)
def driver_loaded(
    loaded: Driver | Unknown,
    installed: InstalledDriver | Unknown,
    answer: Smi | Unknown,
    vendors: frozenset[str] | Unknown,
    _profile: Profile,
) -> Iterator[Finding | Unknown]:
    """A difference between these three means that the node needs a reboot.

    Source: NVIDIA driver README, "API mismatch": kernel module and libraries must be of the same release.
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
        fix = "modprobe nvidia; if that fails, dmesg shows why: install the driver for this kernel"
        yield Finding("the NVIDIA kernel module is not loaded", fix=fix, part="driver")
    elif len(set(known_versions.values())) > 1 or kind == "version-mismatch":
        differing = ", ".join(f"{version} {where}" for where, version in known_versions.items())
        yield Finding(f"driver versions differ: {differing}", expected="one version", found=differing, part="driver")
    for part in (installed, answer) if is_absent else (loaded, installed, answer):
        if isinstance(part, Unknown):
            yield part
    if isinstance(answer, Smi) and not answer.driver_version:
        yield Unknown(error.text if error else "nvidia-smi does not report the driver's version")

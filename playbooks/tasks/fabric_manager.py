"""The fabric manager, which initializes the NVSwitches, on nodes that have NVSwitches."""

import re
from dataclasses import dataclass
from typing import Literal

from gpuops import Command, Later, Plan, Unknown, task, use
from gpuops.probes.host.lspci import gpu_functions
from gpuops.probes.nvidia.driver import driver

_BRIDGE = "0680"  # the PCI class of an NVSwitch
# switches of the fifth NVLink generation are managed through a network adapter, as its vital product data shows, which
# only root can read
_LOOK = """\
for device in /sys/bus/pci/devices/*; do
    [ "$(cat "$device/vendor")" = 0x15b3 ] && [ -e "$device/vpd" ] || continue
    [ -r "$device/vpd" ] || exit 1
    ! grep -qas SW_MNG "$device/vpd" || echo "$device"
done
"""
_MANAGED = Command(("sh", "-c", _LOOK), become="if-refused")
# GPUs before Hopper report no fabric state
_JOINED = """\
all=$(nvidia-smi -q) || exit
! echo "$all" | grep -A 1 "^ *Fabric$" | grep -qE "Not Started|In Progress"
"""
_FIRST_BRANCH = 580  # the names of NVIDIA's earlier packages contain the branch (Azure/azhpc-images)
_UNIT = "nvidia-fabricmanager"


@dataclass(frozen=True)
class Params:
    """``version``, identical to the driver's, and ``origin`` as in the task nvidia_driver.

    ``nvswitch`` states whether the node has NVSwitches; by default its PCI bus is inspected. Switches of a whole rack
    (NVL72) do not belong to the node: use the task imex.
    """

    version: str
    origin: Literal["cuda", "distribution"] = "cuda"
    nvswitch: bool | None = None

    def __post_init__(self) -> None:
        """Raise `ValueError` unless the packages of the version are known by name."""
        if not re.fullmatch(r"\d{3}\.\d+(\.\d+)?", self.version) or int(self.version[:3]) < _FIRST_BRANCH:
            raise ValueError(
                f'version must be the driver\'s, of branch 580 or later (580.126.20), found "{self.version}"'
            )


@task
def fabric_manager(params: Params) -> Plan:
    """The fabric manager runs, and every GPU has joined the fabric: before that, CUDA fails with error 802.

    On a node without NVSwitches it is stopped, because it would fail. With NVLink 5 (HGX B200, B300) NVLSM is installed
    too. It is started only with a driver of exactly the same version.
    """
    has_switches = params.nvswitch
    if has_switches is None:
        has_switches = yield from _switches()
    if has_switches is None:
        yield Later("lspci (package pciutils) is needed to detect NVSwitches; install it, or set nvswitch")
    elif has_switches:
        yield from _running(params)
    else:
        yield from use("service", name=_UNIT, state="stopped", enabled=False, optional=True)


def _switches() -> Plan:
    """Return whether the node has NVSwitches of either kind; None if that is unknown."""
    functions, adapters = yield (gpu_functions, _MANAGED)
    if adapters.out.strip():
        return True
    if isinstance(functions, Unknown) or adapters.exit != 0:
        return None
    return any(function.class_id == _BRIDGE for function in functions)


def _running(params: Params) -> Plan:
    """Install, hold and, if the loaded driver has the same version, start it."""
    suffix = f"-{params.version[:3]}" if params.origin == "distribution" else ""
    names = [f"nvidia-fabricmanager{suffix}", f"libnvidia-nscq{suffix}"]
    processor = yield Command(("uname", "-m"))
    if params.origin == "cuda" and processor.out.strip() == "x86_64":
        names.append("libnvsdm")  # not available for Arm (NVIDIA/gpu-driver-container)
    in_place = yield from use("package_set", names=names, version=params.version)
    adapters, loaded = yield (_MANAGED, driver)
    if adapters.out.strip():
        yield from use("package", names=["nvlsm", "infiniband-diags"])
        yield from use("kernel_module", name="mlx5_core", at_boot=False)
        yield from use("kernel_module", name="ib_umad")
    if isinstance(loaded, Unknown) or loaded.loaded_version != params.version:
        why = loaded.why if isinstance(loaded, Unknown) else f"the loaded driver is {loaded.loaded_version}"
        yield Later(f"{why}; the fabric manager {params.version} needs the driver of the same version")
    elif in_place:
        yield from use("service", name=_UNIT, state="started", enabled=True)
        yield from use("wait_for", words=["sh", "-c", _JOINED], seconds=300)

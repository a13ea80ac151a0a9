"""The fabric manager, which brings up the NVSwitches; no node without them has it running."""

import re
from dataclasses import dataclass
from typing import Literal

from gpuops import Command, Later, Plan, Unknown, task, use
from gpuops.probes.driver import driver
from gpuops.probes.lspci import gpu_functions

_BRIDGE = "0680"  # the PCI class of an NVSwitch
# Switches of the fifth NVLink are managed through a network adapter, whose vital product data says so; only root may
# read those.
_MANAGED = """\
for device in /sys/bus/pci/devices/*; do
    [ "$(cat "$device/vendor")" = 0x15b3 ] && [ -e "$device/vpd" ] || continue
    [ -r "$device/vpd" ] || exit 1
    ! grep -qas SW_MNG "$device/vpd" || echo "$device"
done
"""
# GPUs before Hopper have no state of a fabric.
_JOINED = """\
all=$(nvidia-smi -q) || exit
! echo "$all" | grep -A 1 "^ *Fabric$" | grep -qE "Not Started|In Progress"
"""
_UNIT = "nvidia-fabricmanager"


@dataclass(frozen=True)
class Params:
    """``version``, which is the driver's to the last digit, and ``origin`` as in task nvidia_driver.

    ``nvswitch`` says whether the node has NVSwitches; left out, its PCI bus is asked. Switches of a whole rack (NVL72)
    are not the node's: there it is task imex.
    """

    version: str
    origin: Literal["cuda", "distribution"] = "cuda"
    nvswitch: bool | None = None

    def __post_init__(self) -> None:
        """A version, of which the first number is the branch."""
        if not re.fullmatch(r"\d{3}\.\d+(\.\d+)?", self.version):
            raise ValueError(f'version is the driver\'s (580.126.20), found "{self.version}"')


@task
def fabric_manager(params: Params) -> Plan:
    """It runs, and every GPU has joined the fabric: before that CUDA fails with error 802.

    Where there are no NVSwitches it is stopped: it would fail. With NVLink 5 (HGX B200, B300) NVLSM comes along. It is
    started only beside the driver of the very same version.
    """
    functions, adapters = yield (gpu_functions, Command(("sh", "-c", _MANAGED), become="if-refused"))
    managed = bool(adapters.out.strip())
    bridges = not isinstance(functions, Unknown) and any(function.class_id == _BRIDGE for function in functions)
    if not (managed or bridges if params.nvswitch is None else params.nvswitch):
        yield from use("service", name=_UNIT, state="stopped", enabled=False, optional=True)
        return
    there = yield from use("package_set", names=_names(params), version=params.version)
    if managed:
        yield from use("package", names=["nvlsm", "infiniband-diags"])
        yield from use("kernel_module", name="mlx5_core", at_boot=False)
        yield from use("kernel_module", name="ib_umad")
    loaded = yield driver
    if isinstance(loaded, Unknown) or loaded.loaded_version != params.version:
        found = loaded.why if isinstance(loaded, Unknown) else f"the loaded driver is {loaded.loaded_version}"
        yield Later(f"{found}; the fabric manager {params.version} starts with the driver of the same version only")
    elif there:
        yield from use("service", name=_UNIT, state="started", enabled=True)
        yield from use("wait_for", words=["sh", "-c", _JOINED], seconds=300)


def _names(params: Params) -> tuple[str, ...]:
    """The packages; Ubuntu's own, and those of branches before 580, say their branch."""
    branch = params.version.partition(".")[0]
    suffix = f"-{branch}" if params.origin == "distribution" or int(branch) < 580 else ""
    return f"nvidia-fabricmanager{suffix}", f"libnvidia-nscq{suffix}"

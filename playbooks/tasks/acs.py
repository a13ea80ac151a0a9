"""PCIe access control services (ACS) switched off, so that GPUs and network adapters reach each other directly."""

import re
from dataclasses import dataclass

from gpuops import Command, Failed, Files, Plan, Unknown, task, use
from gpuops.probes.host.system import system

# from NVIDIA's NCCL troubleshooting page; devices without the capability answer with an error
_SCRIPT = """\
for device in $(lspci -D | cut -d " " -f 1); do
    if setpci -s "$device" ECAP_ACS+0x6.w >/dev/null 2>&1; then setpci -s "$device" ECAP_ACS+0x6.w=0000; fi
done
"""
_GUESTS = "/sys/bus/pci/drivers/vfio-pci/0*"


@dataclass(frozen=True)
class Params:
    """No parameters."""


@task
def acs(_params: Params) -> Plan:
    """Every bridge lets its devices talk directly, now and after every boot.

    A virtual machine is skipped, because it cannot change ACS. A node with devices assigned to guests (vfio-pci) is
    refused, because ACS keeps its guests apart.
    """
    machine, guests = yield (system, Files((_GUESTS,)))
    if isinstance(machine, Unknown):
        yield Failed(f"cannot determine whether the node is virtual: {machine.why}")
    if machine.virtual:
        return
    if guests.out:
        yield Failed("devices of this node are assigned to guests (vfio-pci), and ACS keeps guests apart")
    yield from use("package", names=["pciutils"])
    shown = yield Command(("lspci", "-vvv"), timeout_seconds=60, become="always")
    on = re.search(r"ACSCtl:.*(SrcValid|ReqRedir)\+", shown.out) is not None
    yield from use("boot_script", name="acs", about="PCIe access control off", script=_SCRIPT, due=on)

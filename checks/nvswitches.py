"""Every NVSwitch of the baseboard is on the PCI bus and answers."""

from collections.abc import Iterator

from gpuops import Finding, NotApplicable, PartName, Profile, Unknown, check
from gpuops.probes.host.lspci import PciFunction, gpu_functions
from gpuops.probes.host.system import System, system


@check(
    needs=(gpu_functions, system),
    tolerates=(system,),
    uses=("nvswitches.count",),
    severity="isolate",
    tags=("quick", "start", "nvlink"),
    explains=("sxid", "nvlink-links", "topology"),
    applies_to="baseboards whose NVSwitches are PCI devices (A100, H100, H200)",
    catches="a dead NVSwitch: the fabric manager cannot start, or routes around it, and links stay down",
    fix="power-cycle the node; if the NVSwitch does not come back, have the baseboard replaced",
)
def nvswitches(
    functions: tuple[PciFunction, ...], machine: System | Unknown, profile: Profile
) -> Iterator[Finding | Unknown | NotApplicable]:
    """The profile sets their number; a lost NVSwitch shows revision ff, as a lost GPU does.

    A virtual machine may have GPUs without any NVSwitch, because the hypervisor keeps the NVSwitches. Source: NVIDIA
    Fabric Manager User Guide, GPU Baseboard Topologies and Shared NVSwitch Virtualization Model; Oracle oci-hpc,
    check_gpu_setup.py (``rev ff``).
    """
    expected = profile.get("nvswitches.count", 0)
    if not expected:
        yield NotApplicable("the machine is not known to have NVSwitches that are PCI devices")
        return
    switches = sorted((f for f in functions if f.is_nvswitch), key=lambda f: f.address)
    is_guest = None if isinstance(machine, Unknown) else machine.virtual
    if not switches and is_guest is None:
        yield Unknown("lspci lists no NVSwitch, and it is unknown whether this is a virtual machine")
    elif not switches and is_guest:
        yield NotApplicable("the hypervisor keeps the NVSwitches")
    elif len(switches) < expected:
        message = f"{len(switches)} of {expected} NVSwitches are there"
        yield Finding(message, expected=expected, found=len(switches), unit="NVSwitches", part="baseboard")
    for number, switch in enumerate(switches):
        if switch.off_the_bus:
            part = PartName(f"nvswitch{number}", f"NVSwitch {number} ({switch.address})")
            yield Finding("fell off the bus: lspci shows rev ff", part=part)

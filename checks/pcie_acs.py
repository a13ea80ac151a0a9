"""No PCIe switch between a GPU and a NIC redirects their traffic to the processor (ACS)."""

from collections.abc import Iterator, Mapping, Sequence

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.probes.host.acs import Acs, acs
from gpuops.probes.host.pci_paths import gpu_bridges
from gpuops.probes.host.system import System, system
from gpuops.probes.network.nic_pcie import NicPath, nic_pcie

_SHOWN = 4


@check(
    needs=(acs, gpu_bridges, nic_pcie, system),
    severity="fail",
    tags=("standard", "network", "pcie"),
    catches="GPUDirect RDMA at a fraction of its speed, because each packet goes up to the processor and back",
    fix="turn ACS off in the BIOS, or at every boot with setpci (ECAP_ACS+6.w=0000) on these bridges",
)
def pcie_acs(
    control: Acs,
    bridges_by_gpu: Mapping[str, Sequence[str]],
    nics: tuple[NicPath, ...],
    machine: System,
    _profile: Profile,
) -> Iterator[Finding | Unknown | NotApplicable]:
    """Only bridges between a GPU and a NIC below the same switch count, and only on bare metal: guests need ACS.

    Source: NVIDIA NCCL user guide, troubleshooting (ACS on PCI bridges); leptonai/gpud, pci component (SrcValid+, not
    in guests).
    """
    if machine.virtual:
        yield NotApplicable("virtual machines need ACS on their host")
        return
    pairs = [_between(gpu, nic.bridges) for gpu in bridges_by_gpu.values() for nic in nics]
    between = sorted({bridge for pair in pairs for bridge in pair})
    if not between:
        yield NotApplicable("no GPU and NIC are below the same PCIe switch")
        return
    on = [bridge for bridge in between if bridge in control.enabled]
    unseen = [bridge for bridge in between if bridge not in control.bridges]
    if on:
        names = ", ".join(on[:_SHOWN]) + (f" and {len(on) - _SHOWN} others" if len(on) > _SHOWN else "")
        message = f"ACS is on at {len(on)} of {len(between)} bridges between GPUs and NICs: {names}"
        yield Finding(message, expected="SrcValid-", found="SrcValid+", part="pcie")
    if unseen:
        yield Unknown(f"lspci does not list the bridge {unseen[0]}")


def _between(gpu: Sequence[str], nic: Sequence[str]) -> list[str]:
    """Return the bridges below the switch that a GPU and a NIC share; none if they meet at a root port or above.

    ``gpu`` and ``nic`` are the bridges above each, the nearest first.
    """
    shared = [bridge for bridge in gpu if bridge in nic]
    if len(shared) < 2:  # the root port and the switch's own port above it
        return []
    return [*gpu[: gpu.index(shared[0])], *nic[: nic.index(shared[0])]]

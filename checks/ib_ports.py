"""The port of every rail is up at its full rate, and no rail is missing."""

from collections.abc import Iterator

from gpuops import Finding, PartName, Profile, Unknown, check
from gpuops.probes.host.pci import MELLANOX, pci_vendors
from gpuops.probes.network.ib import IbPort
from gpuops.probes.network.ib import ib_ports as probe
from gpuops.probes.nvidia.topo import Topology, link_distance, topo


@check(
    needs=(probe, topo, pci_vendors),
    expects=("nic.count", "nic.rate_gbps"),
    tolerates=(topo, pci_vendors),
    severity="fail",
    tags=("quick", "network", "nvidia-smi"),
    settles_seconds=300,
    applies_to="machines with RDMA rails",
    catches="a rail that is down, or a 400 Gbit/s port that came up at 200 and slows down every all-reduce",
    fix="reseat or clean the optic of the port and of its switch port",
)
def ib_ports(
    every_port: tuple[IbPort, ...], matrix: Topology | Unknown, vendors: frozenset[str] | Unknown, profile: Profile
) -> Iterator[Finding | Unknown]:
    """Rails are the devices that the inventory declares (``nic.rails``), else those near a GPU (PIX or PXB).

    If neither is known, all devices are rails, unless there are more than the profile says. Other ports do not count,
    nor do virtual functions, nor a second port without a link beside one that is active. Source of the rates: the
    profile; of the rule: leptonai/gpud, infiniband component (ports and rate by GPU model).
    """
    ports = [port for port in every_port if not port.is_virtual_function]
    here = {port.device for port in ports}
    declared = set(profile.get("nic.rails", ()))
    count = len(declared) or profile["nic.count"]
    if count and not every_port and not declared and not _has_nvidia_nic(vendors):
        yield Unknown("no RDMA device, and no NVIDIA NIC on the PCI bus: if that is right, set expect: {nic.count: 0}")
        return
    rails = declared or _near(matrix, profile.get("gpu.count", 0))
    if not rails and len(here) > count:
        yield Unknown("cannot determine which ports are rails; declare them under fabric: in the inventory")
        return
    rails = rails or here
    if len(rails & here) < count:
        gone = ", ".join(sorted(rails - here))
        message = f"{len(rails & here)} of {count} rails are there" + (f" (missing: {gone})" if gone else "")
        fix = "look for the device in lspci; if it is missing, reseat the NIC"
        yield Finding(message, expected=count, found=len(rails & here), unit="rails", fix=fix, part="rails")
    for port in ports:
        if port.device in rails and not _is_spare(port, ports):
            yield from _judge(port, profile["nic.rate_gbps"])


def _has_nvidia_nic(vendors: frozenset[str] | Unknown) -> bool:
    """Return False only if the bus is known to have none; with one, a missing RDMA device is a fault."""
    return isinstance(vendors, Unknown) or MELLANOX in vendors


def _is_spare(port: IbPort, ports: list[IbPort]) -> bool:
    """Return True for a port without a link beside an active one of the same device."""
    others = [other for other in ports if other.device == port.device and other.port != port.port]
    return port.state.lower() == "down" and any(other.state.lower() == "active" for other in others)


def _near(matrix: Topology | Unknown, gpu_count: int) -> set[str]:
    """Return the RDMA devices that share a PCIe switch with a GPU; none if this session does not see every GPU."""
    if isinstance(matrix, Unknown) or len(matrix.gpus) < gpu_count:
        return set()
    switch = link_distance("PXB")
    near = {nic for nic in matrix.nics if any(matrix.distance(gpu, nic) <= switch for gpu in matrix.gpus)}
    return {matrix.nic_names.get(nic, nic) for nic in near}


def _judge(port: IbPort, rate_gbps: float) -> Iterator[Finding | Unknown]:
    label = f"{port.device} port {port.port}" + (f" ({port.pci_address})" if port.pci_address else "")
    part = PartName(port.device, label)
    if not port.state:
        yield Unknown(f"{label} does not report its state")
    elif port.state.lower() != "active":
        fix = f"reseat or clean the optic of {port.device} and of its switch port; check the switch's log"
        if port.state.lower().startswith("init"):
            fix = "start the subnet manager, or find out why it does not bring up this port"
        state = f"{port.state}, {port.phys_state}" if port.phys_state else port.state
        yield Finding(f"port {port.port} is {state}", expected="Active", found=port.state, fix=fix, part=part)
    elif port.rate_gbps is None:
        yield Unknown(f"{label} does not report its rate")
    elif port.rate_gbps < rate_gbps:
        fix = f"reseat or clean the optic of {port.device}; compare the port's speed setting at both ends"
        message = f"{port.rate_gbps:g} Gbit/s, expected {rate_gbps:g}"
        yield Finding(message, expected=rate_gbps, found=port.rate_gbps, unit="Gbit/s", fix=fix, part=part)

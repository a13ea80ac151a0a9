"""The port of every rail is up at its full rate, and no rail is missing."""

from collections.abc import Iterator

from gpuops import Finding, PartName, Profile, Unknown, check
from gpuops.probes.network.ib import IbPort
from gpuops.probes.network.ib import ib_ports as probe
from gpuops.probes.nvidia.topo import Topology, link_distance, topo


@check(
    needs=(probe, topo),
    expects=("nic.count", "nic.rate_gbps"),
    tolerates=(topo,),
    severity="fail",
    tags=("quick", "network", "nvidia-smi"),
    catches="a rail that is down, or a 400 Gbit/s port that came up at 200 and slows down every all-reduce",
    fix="reseat or clean the optic of the port and of its switch port",
)
def ib_ports(ports: tuple[IbPort, ...], matrix: Topology | Unknown, profile: Profile) -> Iterator[Finding | Unknown]:
    """Rails are the devices that the inventory declares (``nic.rails``), else those near a GPU (PIX or PXB).

    If neither is known, all devices are rails, unless there are more than the profile says. Other ports do not count.
    Source of the rates: the profile; of the rule: leptonai/gpud, infiniband component (ports and rate by GPU model).
    """
    here = {port.device for port in ports}
    declared = set(profile.get("nic.rails", ()))
    count = len(declared) or profile["nic.count"]
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
        if port.device in rails:
            yield from _judge(port, profile["nic.rate_gbps"])


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

"""A subnet manager has reached every InfiniBand port with a link."""

from collections.abc import Iterator

from gpuops import Finding, NotApplicable, PartName, Profile, Unknown, check
from gpuops.probes.network.ib import IbPort, ib_ports
from gpuops.probes.network.ib_subnet import IbSubnet, ib_subnet, rails_with_subnet


@check(
    needs=(ib_ports, ib_subnet),
    uses=("nic.rails",),
    severity="fail",
    tags=("quick", "network"),
    settles_seconds=300,
    explains=("ib-ports",),
    applies_to="machines with InfiniBand rails",
    catches="ports that stay in Init, because nothing gives them an address: NCCL finds no network",
    fix="start the subnet manager (opensm or UFM) of this fabric; if others have one, look at the port of the switch",
    fix_in_common="start the subnet manager (opensm or UFM) of their fabric, and find out why it stopped",
)
def subnet_manager(
    ports: tuple[IbPort, ...], subnets: tuple[IbSubnet, ...], profile: Profile
) -> Iterator[Finding | Unknown | NotApplicable]:
    """A port fails if it has a link, but not the LID of a subnet manager (``sm_lid`` is 0).

    The ports are the rails that the inventory declares, else all InfiniBand ports. The check `ib-ports` judges ports
    without a link. Source: the kernel's ABI, sysfs-class-infiniband (sm_lid: 0 until a subnet manager set it);
    facebookresearch/gcm, check_iblink.py (ports in Init).
    """
    rails = list(rails_with_subnet(ports, subnets, profile.get("nic.rails", ())))
    if not rails:
        yield NotApplicable("there is no InfiniBand port")
    for port, subnet in rails:
        if port.phys_state != "LinkUp":
            continue
        if subnet.sm_lid is None:
            yield Unknown(f"{port.device} port {port.port} does not report the LID of its subnet manager")
        elif subnet.sm_lid == 0:
            message = f"port {port.port} is {port.state}: no subnet manager has reached it"
            yield Finding(message, expected="a subnet manager", found="none", part=PartName(port.device))

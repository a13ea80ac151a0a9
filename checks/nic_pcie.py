"""Every PCIe link between an RDMA device and its root port has the width and speed that both of its ends support."""

from collections.abc import Iterable, Iterator, Mapping

from gpuops import Finding, NotApplicable, PartName, Profile, Unknown, check
from gpuops.probes.host.system import System, system
from gpuops.probes.network.ib import IbPort, ib_ports
from gpuops.probes.network.nic_pcie import Link, NicPath, carried_gbps
from gpuops.probes.network.nic_pcie import nic_pcie as probe


@check(
    needs=(probe, ib_ports, system),
    tolerates=(ib_ports, system),
    severity="fail",
    tags=("quick", "network", "pcie"),
    catches="a NIC, riser or PCIe switch with a bad contact: the rail runs at half its rate or less",
    fix="reseat the NIC and its riser; check the slot's settings in the BIOS",
)
def nic_pcie(
    paths: tuple[NicPath, ...], ports: tuple[IbPort, ...] | Unknown, machine: System | Unknown, _profile: Profile
) -> Iterator[Finding | Unknown | NotApplicable]:
    """The slowest link of a device is reported, at its upper end; a link that devices share is reported once.

    An idle NIC keeps the speed of its link, so load does not matter. The two halves of a socket-direct card share its
    lanes by design. A port that is faster than its slot, but not faster than its card, is a warning. Virtual machines
    are skipped, because their links are the host's. Source of the rule: scitix/sichek,
    components/infiniband/collector/pcie_info.go (tree speed and width); of the bandwidth: PCI-SIG, PCI Express Base
    Specification (line coding).
    """
    if not paths:
        yield NotApplicable("there is no RDMA device")
        return
    if isinstance(machine, Unknown):
        yield Unknown(f"cannot judge PCIe links: it is unknown whether this is a virtual machine ({machine.why})")
        return
    if machine.virtual:
        yield NotApplicable("in a virtual machine the PCIe links are those of its host")
        return
    slots = _slots_by_board(paths)
    degraded: dict[tuple[str, str], list[tuple[NicPath, Link]]] = {}
    for path in paths:
        yield from _unread(path)
        narrow = _narrowest(path, slots.get(path.board, 1))
        if narrow:
            degraded.setdefault((_slot(narrow.lower.address), narrow.upper.address), []).append((path, narrow))
        else:
            yield from _too_slow_slot(path, () if isinstance(ports, Unknown) else ports, slots.get(path.board, 1))
    for shared in degraded.values():
        yield _finding([path for path, _ in shared], shared[0][1], slots.get(shared[0][0].board, 1))


def _slot(address: str) -> str:
    return address.rpartition(".")[0]


def _slots_by_board(paths: Iterable[NicPath]) -> Mapping[str, int]:
    """Return over how many slots each card is spread: two for socket direct, one for the functions of one slot."""
    slots: dict[str, set[str]] = {}
    for path in paths:
        if path.board:
            slots.setdefault(path.board, set()).add(_slot(path.address))
    return {board: len(own) for board, own in slots.items()}


def _unread(path: NicPath) -> Iterator[Unknown]:
    if not path.links or not path.is_whole:
        yield Unknown(f"the PCIe links above {path.device} are not all visible")
    for link in path.links:
        known = (link.speed_gt_per_s, link.width, link.max_speed_gt_per_s, link.max_width)
        if None in known:
            where = f"{link.upper.address} to {link.lower.address}"
            yield Unknown(f"the kernel does not report speed and width of the PCIe link {where} ({path.device})")


def _expected_width(path: NicPath, link: Link, slots: int) -> float:
    """Return the lanes that both ends have; those of a card in several slots are divided among them."""
    own = link.lower.address == path.address
    return (link.max_width or 0) / (slots if own else 1)


def _narrowest(path: NicPath, slots: int) -> Link | None:
    """Return the slowest of the links that are below what both of their ends support."""
    below = [
        link
        for link in path.links
        if (link.width is not None and link.width < _expected_width(path, link, slots))
        or (link.speed_gt_per_s is not None and link.speed_gt_per_s < (link.max_speed_gt_per_s or 0))
    ]
    return min(below, key=lambda link: link.gbps or 0, default=None)


def _finding(paths: list[NicPath], link: Link, slots: int) -> Finding:
    first = paths[0]
    names = ", ".join(path.device for path in paths)
    expected = _spelled(link.max_speed_gt_per_s, _expected_width(first, link, slots))
    found = _spelled(link.speed_gt_per_s, link.width)
    where = f"from {link.upper.address} to {link.lower.address}"
    fix = f"reseat {names} and the riser"
    if link.lower.address not in {path.address for path in paths}:
        fix = f"check the PCIe switch or riser above {names}, at {link.upper.address}"
    return Finding(
        f"the PCIe link {where} is {found}, expected {expected}",
        expected=expected,
        found=found,
        fix=f"{fix}; check the slot's width and generation in the BIOS",
        part=PartName(first.device, f"{names} ({first.address})"),
    )


def _spelled(speed_gt_per_s: float | None, width: float | None) -> str:
    speed = "unknown speed" if speed_gt_per_s is None else f"{speed_gt_per_s:g} GT/s"
    return f"{speed} x{width:g}" if width else speed


def _too_slow_slot(path: NicPath, ports: Iterable[IbPort], slots: int) -> Iterator[Finding]:
    """Yield a warning if the card could carry the rate of its port, and the links above it cannot."""
    rates = [port.rate_gbps or 0 for port in ports if port.device == path.device and port.state.lower() == "active"]
    carried = min(filter(None, (link.gbps for link in path.links)), default=None)
    card = carried_gbps(path.links[0].lower.max_speed_gt_per_s, path.links[0].lower.max_width) if path.links else None
    rate = max(rates, default=0)
    if carried and card and carried * slots < rate <= card:
        message = f"the port has {rate:g} Gbit/s, but its PCIe links carry {carried * slots:.0f}"
        yield Finding(
            message,
            expected=rate,
            found=round(carried * slots),
            unit="Gbit/s",
            fix="move the NIC to a slot of its own generation and width",
            part=PartName(path.device, f"{path.device} ({path.address})"),
            severity="warn",
        )

"""The port of every rail is up at its full rate, and no rail is missing."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from gpuops import Finding, NotApplicable, PartName, Profile, Unknown, check
from gpuops.probes.host.pci import MELLANOX, pci_vendors
from gpuops.probes.network.ib import IbPort
from gpuops.probes.network.ib import ib_ports as probe
from gpuops.probes.network.nic_log import NicEvent, NicLog, nic_log
from gpuops.probes.nvidia.topo import Topology, link_distance, topo

_FEWEST_PEERS = 3
"""So many like ports besides the judged one show what is usual, if no profile and no inventory does."""


@check(
    needs=(probe, topo, pci_vendors, nic_log),
    uses=("nic.count", "nic.rate_gbps", "nic.rails"),
    tolerates=(topo, pci_vendors, nic_log),
    severity="fail",
    tags=("quick", "network", "nvidia-smi"),
    settles_seconds=300,
    applies_to="machines with RDMA rails",
    catches="a rail that is down, or a 400 Gbit/s port that came up at 200 and slows down every all-reduce",
    fix="reseat or clean the optic of the port and of its switch port",
)
def ib_ports(
    every_port: tuple[IbPort, ...],
    matrix: Topology | Unknown,
    vendors: frozenset[str] | Unknown,
    log: NicLog | Unknown,
    profile: Profile,
) -> Iterator[Finding | Unknown | NotApplicable]:
    """Rails are the devices that the inventory declares (``nic.rails``), else those near a GPU (PIX or PXB).

    If neither is known, all devices are rails, unless there are more than in the profile. If the session does not see
    all GPUs, the devices near those that it sees are rails; so are all of the same kind, if that makes as many as in
    the profile. A device of a rarer kind may be another adapter, so it is not blamed and does not count in place of a
    rail that the driver could not start. Ports that are not rails are not judged. Neither are virtual functions, nor a
    card's second port that has no link while the first one is active. Without a profile, a port is compared with the
    identical ports of the node. Source of the rates: the profile; of the rule: leptonai/gpud, infiniband component
    (ports and rate by GPU model); of the peers: NVIDIA/NVSentinel pull request 1462 (a port without a link is a fault
    only if something shows that it should have one).
    """
    ports = [port for port in every_port if not port.is_virtual_function]
    declared = set(profile.get("nic.rails", ()))
    count = len(declared) or profile.get("nic.count")
    if not every_port and not declared and (count is None or (count and not _has_nvidia_nic(vendors))):
        yield _no_device(count)
        return
    sees_all = not isinstance(matrix, Unknown) and len(matrix.gpus) >= profile.get("gpu.count", 0)
    near = _near(matrix)
    rails = declared or (_of_one_kind(near, ports, count) if sees_all else _alike(near, ports, count))
    here = {port.device for port in ports}
    if count is not None and not rails and len(here) > count:
        yield Unknown("cannot determine which ports are rails; declare them under fabric: in the inventory")
        for port in (port for port in ports if port.device in near and not _is_spare(port, ports, count)):
            yield from _judge(port, profile.get("nic.rate_gbps") or _usual_rate(port, ports))
        return
    stopped = _not_started(log, every_port)
    strange = _of_rarer_kinds(ports) if count is not None and not declared else set()
    doubtful = set() if rails else strange
    rails = rails or here
    if stopped and len(rails - strange) + len(stopped) >= (count or 0):
        rails -= strange
    if count and len(rails & here) < count:
        yield _missing(rails, here, count, stopped)
    judged = [port for port in ports if port.device in rails and not _is_spare(port, ports, count)]
    if other := _other_rate(judged, profile.get("nic.rate_gbps", 0)):
        yield other
        return
    for port in judged:
        if count is not None or _is_usual("active", port.state.lower(), [p.state.lower() for p in _like(port, judged)]):
            found = _judge(port, profile.get("nic.rate_gbps") or _usual_rate(port, judged))
            yield from map(_doubt, found) if port.device in doubtful else found


def _other_rate(ports: Collection[IbPort], expected: float) -> Finding | None:
    """Return a warning if all of several rails are up at one lower rate: other adapters, or another fabric."""
    rates = {port.rate_gbps for port in ports if port.state.lower() == "active"}
    rate = rates.pop() if len(rates) == 1 and len(ports) > 1 else None
    if rate is None or rate >= expected or any(port.state.lower() != "active" for port in ports):
        return None
    fix = f"if the adapters and the fabric are of this rate, set expect: {{nic.rate_gbps: {rate:g}}}"
    message = f"all {len(ports)} rails run at {rate:g} Gbit/s, expected {expected:g}"
    return Finding(message, expected=expected, found=rate, unit="Gbit/s", fix=fix, part="rails", severity="warn")


def _no_device(count: int | None) -> Unknown | NotApplicable:
    if count is None:
        return NotApplicable("there is no RDMA device, and no profile that expects one")
    return Unknown("no RDMA device, and no NVIDIA NIC on the PCI bus: if that is right, set expect: {nic.count: 0}")


def _not_started(log: NicLog | Unknown, ports: Collection[IbPort]) -> list[NicEvent]:
    """Return the last event of each NIC that the driver could not start, and that has no RDMA device since."""
    events = () if isinstance(log, Unknown) else log.of_kind("not-started")
    here = {port.pci_address for port in ports}
    return list({event.address: event for event in events if event.address and event.address not in here}.values())


def _of_rarer_kinds(ports: Collection[IbPort]) -> set[str]:
    """Return the devices that are not of the commonest kind; none if no kind is the commonest."""
    kinds = {port.device: (port.hca_type, port.board_id) for port in ports}
    ranked = Counter(kinds.values()).most_common(2)
    if len(ranked) < 2 or ranked[0][1] == ranked[1][1]:
        return set()
    return {device for device, kind in kinds.items() if kind != ranked[0][0]}


def _doubt(judged: Finding | Unknown) -> Unknown:
    if isinstance(judged, Unknown):
        return judged
    return Unknown(
        f"cannot determine whether {judged.part} is a rail ({judged.message}); declare the rails under fabric:"
    )


def _missing(rails: set[str], here: set[str], count: int, stopped: Sequence[NicEvent]) -> Finding:
    gone = ", ".join(sorted(rails - here))
    message = f"{len(rails & here)} of {count} rails are there" + (f" (missing: {gone})" if gone else "")
    fix = "look for the device in lspci; if it is missing, reseat the NIC"
    if stopped:
        addresses = ", ".join(event.address for event in stopped)
        said = stopped[-1].text.partition(f"{stopped[-1].address}: ")[2]
        message += f"; the driver could not start {addresses}: {said}"
        fix = f"power-cycle the node; if {addresses} does not come back, update its firmware, or replace the NIC"
    return Finding(message, expected=count, found=len(rails & here), unit="rails", fix=fix, part="rails")


def _has_nvidia_nic(vendors: frozenset[str] | Unknown) -> bool:
    """Return False only if the bus is known to have none; with one, a missing RDMA device is a fault."""
    return isinstance(vendors, Unknown) or MELLANOX in vendors


def _like(port: IbPort, ports: Collection[IbPort]) -> list[IbPort]:
    """Return the other ports of the same board and kind."""
    kind = (port.hca_type, port.board_id, port.link_layer)
    return [other for other in ports if other != port and (other.hca_type, other.board_id, other.link_layer) == kind]


def _is_usual(expected: str, own: str, others: Collection[str]) -> bool:
    """Return True if a port has the expected state, or should have it because like ports do."""
    return own == expected or (
        len(others) >= _FEWEST_PEERS and 4 * sum(o == expected for o in others) >= 3 * len(others)
    )


def _usual_rate(port: IbPort, ports: Collection[IbPort]) -> float:
    """Return the rate of nearly all like ports, or 0 if there is none."""
    rates = Counter(other.rate_gbps for other in _like(port, ports) if other.state.lower() == "active")
    ((rate, most),) = rates.most_common(1) or [(None, 0)]
    return rate or 0 if most >= _FEWEST_PEERS and 4 * most >= 3 * rates.total() else 0


def _card(port: IbPort) -> str:
    """Return what the ports of one card share: the slot, or the device if its address is unknown."""
    return port.pci_address.rpartition(".")[0] or port.device


def _is_spare(port: IbPort, ports: Collection[IbPort], count: int | None) -> bool:
    """Return True for a port without a link beside an active one of its card, if no like card has more active ones."""
    if port.state.lower() != "down":
        return False
    active = Counter(_card(other) for other in ports if other.state.lower() == "active")
    if not active[_card(port)]:
        return False
    if any(other.device == port.device and other.port != port.port for other in ports):
        return True
    cards = {_card(other) for other in _like(port, ports)} - {_card(port)}
    return all(active[card] <= active[_card(port)] for card in cards) if cards else active.total() >= (count or 0)


def _near(matrix: Topology | Unknown) -> set[str]:
    """Return the RDMA devices that share a PCIe switch with a GPU that is seen."""
    if isinstance(matrix, Unknown):
        return set()
    switch = link_distance("PXB")
    near = {nic for nic in matrix.nics if any(matrix.distance(gpu, nic) <= switch for gpu in matrix.gpus)}
    return {matrix.nic_names.get(nic, nic) for nic in near}


def _alike(near: set[str], ports: Collection[IbPort], count: int | None) -> set[str]:
    """Return the devices of the same kinds as those near some of the GPUs, if these are as many as expected."""
    kinds = {(port.hca_type, port.board_id) for port in ports if port.device in near}
    alike = {port.device for port in ports if (port.hca_type, port.board_id) in kinds}
    return alike if len(alike) == count else set()


def _of_one_kind(near: set[str], ports: Collection[IbPort], count: int | None) -> set[str]:
    """Return the only kind of NIC that has as many devices as expected, if more than these are near a GPU."""
    kinds: dict[tuple[str, str], set[str]] = {}
    for port in ports:
        if port.device in near:
            kinds.setdefault((port.hca_type, port.board_id), set()).add(port.device)
    chosen = [devices for devices in kinds.values() if len(devices) == count]
    return chosen[0] if len(near) > (count or 0) and len(chosen) == 1 else near


def _judge(port: IbPort, rate_gbps: float) -> Iterator[Finding | Unknown]:
    label = f"{port.device} port {port.port}" + (f" ({port.pci_address})" if port.pci_address else "")
    part = PartName(port.device, label)
    state = f"{port.state}, {port.phys_state}" if port.phys_state else port.state
    if not port.state:
        yield Unknown(f"{label} does not report its state")
    elif port.state.lower() != "active" or _retrains(port):
        found = port.phys_state if _retrains(port) else port.state
        yield Finding(f"port {port.port} is {state}", expected="Active", found=found, fix=_state_fix(port), part=part)
    elif port.rate_gbps is None:
        yield Unknown(f"{label} does not report its rate")
    else:
        yield from _judge_rate(port, rate_gbps, part)


def _retrains(port: IbPort) -> bool:
    """Return True while the link recovers from errors, during which its state may still be Active."""
    return port.phys_state.replace(" ", "").lower() == "linkerrorrecovery"


def _state_fix(port: IbPort) -> str:
    """Return the remedy, which depends on why there is no link."""
    if _retrains(port) or port.state.lower().startswith("active"):
        return f"the link drops and retrains because of errors: clean or replace the optic or cable of {port.device}"
    if port.state.lower().startswith(("init", "arm")):
        return "start the subnet manager, or find out why it does not bring up this port"
    if port.phys_state.lower() == "disabled" and port.link_layer == "InfiniBand":
        return f"the port is disabled: find out why, then enable it (mlxlink -d {port.device} --port_state UP)"
    if port.phys_state.lower() == "disabled":
        return f"bring up the interface of {port.device} (ip link); if it is up, reseat or clean the optic"
    if port.phys_state.lower() == "polling":
        return (
            f"no partner answers: plug in the cable of {port.device}, reseat or clean its optic, enable the switch port"
        )
    return f"reseat or clean the optic of {port.device} and of its switch port; check the switch's log"


def _judge_rate(port: IbPort, rate_gbps: float, part: PartName) -> Iterator[Finding]:
    """Compare the rate with the expected one; a port cannot be faster than its lanes, whatever it reports."""
    reported = port.rate_gbps or 0.0
    carried = min(reported, port.carries_gbps or reported)
    lanes = f" over {port.lanes} lane{'s' * (port.lanes != 1)}" if port.lanes else ""
    one_lane = port.lanes == 1 and port.link_layer == "InfiniBand"
    if carried >= rate_gbps and carried >= reported and not one_lane:
        return
    message = f"{carried:g} Gbit/s{lanes}" + (f", expected {rate_gbps:g}" if rate_gbps > carried else "")
    message += f" (it reports {reported:g})" if reported > carried else ""
    fix = f"reseat or clean the optic of {part}; compare the port's speed setting at both ends"
    if one_lane:
        fix = f"lanes of the link are missing: reseat or clean the optic or cable of {part}, then replace it"
    yield Finding(message, expected=rate_gbps or "4 lanes", found=carried, unit="Gbit/s", fix=fix, part=part)

"""The InfiniBand ports of a rail are in the same partitions and have the same subnet manager on every node."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from gpuops import Finding, NotApplicable, PartName, Profile, Unknown, check
from gpuops.judging.majority import FEWEST_NODES, majority
from gpuops.probes.network.ib import IbPort, ib_ports
from gpuops.probes.network.ib_subnet import IbSubnet, ib_subnet, rails_with_subnet

_Port = tuple[str, int]
_WORDS = {True: "full member", False: "limited member", None: "no member"}
_OTHER_MANAGER = "look which switch the port is plugged into; if it is the right one, reset the port (ibportstate)"


class _Difference(NamedTuple):
    """What a port of a node has (``found``), and what most of the nodes have; ``share`` is how many these are."""

    node: str
    port: _Port
    code: str
    expected: str
    found: str
    share: str


@check(
    needs=(ib_ports, ib_subnet),
    scope="group",
    uses=("nic.rails",),
    severity="fail",
    tags=("quick", "network"),
    applies_to="three or more nodes of one profile with InfiniBand rails",
    catches="a port that left the partition of the job, or is a limited member, so that its packets are dropped",
    fix="add the port's GUID to the partition as a full member (partitions.conf of opensm, or UFM)",
)
def subnets_agree(
    nodes: Mapping[str, tuple[tuple[IbPort, ...], tuple[IbSubnet, ...]]], profile: Profile
) -> Iterator[Finding | Unknown | NotApplicable]:
    """Each port has the partition keys of most nodes' ports of that name, and is a full member where they are.

    Two limited members of a partition cannot communicate. If no port is a full member of any partition, that is one
    warning on the fabric. A port may have additional keys. Other keys that at least three nodes share belong to another
    tenant, if these nodes are full members. If fewer than three nodes have another subnet manager, that is a warning:
    they may be plugged into another fabric, or missed that another manager took over. Source: InfiniBand Architecture
    Specification, volume 1, partition keys (membership is the most significant bit); Microsoft Azure, HPC documentation
    (0x800b beside 0x7fff is healthy).
    """
    active = {node: dict(_active(*value, profile)) for node, value in nodes.items()}
    ports = dict.fromkeys(port for own in active.values() for port in own)
    if not ports or len(active) < FEWEST_NODES:
        yield NotApplicable("there are no three nodes of this profile with active InfiniBand ports")
        return
    differences = [each for port in ports for each in _differences(port, active)]
    yield from _findings(differences)
    yield from _limited([subnet for subnets in active.values() for subnet in subnets.values()])
    unread = [f"{node} {d}" for node, own in active.items() for (d, _), subnet in own.items() if not subnet.pkeys]
    if unread:
        yield Unknown(f"cannot read the partition keys of {', '.join(unread[:4])}")


def _active(
    ports: tuple[IbPort, ...], subnets: tuple[IbSubnet, ...], profile: Profile
) -> Iterator[tuple[_Port, IbSubnet]]:
    for port, subnet in rails_with_subnet(ports, subnets, profile.get("nic.rails", ())):
        if port.state.lower() == "active":
            yield (port.device, port.port), subnet


def _limited(subnets: list[IbSubnet]) -> Iterator[Finding]:
    """Yield one finding if all keys are known, and none of them is that of a full member."""
    if all(subnet.pkeys for subnet in subnets) and not any(any(s.membership.values()) for s in subnets):
        message = "no port is a full member of a partition: the nodes cannot reach each other"
        found = "limited members only"
        yield Finding(message, expected="full members", found=found, part="fabric", severity="warn", code="limited")


def _differences(port: _Port, active: Mapping[str, Mapping[_Port, IbSubnet]]) -> Iterator[_Difference]:
    subnets = {node: own[port] for node, own in active.items() if port in own}
    yield from _other_partitions(port, {node: subnet.membership for node, subnet in subnets.items() if subnet.pkeys})
    yield from _other_manager(port, {node: subnet.sm_lid for node, subnet in subnets.items() if subnet.sm_lid})


def _other_partitions(port: _Port, memberships: Mapping[str, Mapping[int, bool]]) -> Iterator[_Difference]:
    like = Counter(frozenset(own.items()) for own in memberships.values() if any(own.values()))
    for key in sorted({key for own in memberships.values() for key in own}):
        usual = majority((own.get(key) for own in memberships.values()), fewest=FEWEST_NODES)
        if usual is None or usual.value is None:
            continue
        expected = f"{_WORDS[usual.value]} of partition {key:#06x}"
        for node, own in memberships.items():
            is_less = own.get(key) is None or (usual.value and not own[key])
            if is_less and like[frozenset(own.items())] < FEWEST_NODES:
                yield _Difference(node, port, "key", expected, _WORDS[own.get(key)], f"{usual.count} of {usual.total}")


def _other_manager(port: _Port, lids: Mapping[str, int]) -> Iterator[_Difference]:
    usual, like = majority(lids.values(), fewest=FEWEST_NODES), Counter(lids.values())
    for node, lid in lids.items():
        if usual and lid != usual.value and like[lid] < FEWEST_NODES:
            share = f"{usual.count} of {usual.total}"
            yield _Difference(node, port, "manager", f"subnet manager at LID {usual.value}", f"LID {lid}", share)


def _findings(differences: list[_Difference]) -> Iterator[Finding]:
    """Yield one finding for the ports of a node that differ in the same way."""
    ports: dict[_Difference, list[str]] = {}
    for each in differences:
        ports.setdefault(each._replace(port=("", 0)), []).append(f"{each.port[0]} port {each.port[1]}")
    for each, names in ports.items():
        part = PartName(names[0].partition(" ")[0], ", ".join(names))
        message = f"{', '.join(names)}: {each.found}; {each.share} nodes: {each.expected}"
        finding = Finding(message, expected=each.expected, found=each.found, part=part, host=each.node, code=each.code)
        yield replace(finding, severity="warn", fix=_OTHER_MANAGER) if each.code == "manager" else finding

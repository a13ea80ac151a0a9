"""Where the ranks of a job meet: addresses and interfaces, declared or chosen from the networks of its nodes; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuops.placement.network import NodeNetwork
from gpuops.placement.shape import NodeShape


@dataclass(frozen=True)
class Meeting:
    """Where ranks meet: at ``master``; the address of each node, and its interface where that has to be said.

    ``why`` says why this network was chosen.
    """

    master: str
    address_by_node: Mapping[str, str] = field(hash=False)
    interface_by_node: Mapping[str, str] = field(default_factory=dict, hash=False)
    why: str = ""


def meeting_of(nodes: Sequence[NodeShape]) -> Meeting:
    """Return where the ranks on ``nodes`` meet.

    What the inventory declares comes first, then a network of the fabric that all nodes are in. Otherwise ranks meet
    at the addresses for ssh, over their interface where a node has several networks. Nodes that share an address, as
    the ports of one machine, are known by their names.
    """
    if any(node.job_address or node.job_interface for node in nodes):
        return _declared(nodes)
    common = _common(nodes) if len(nodes) > 1 else []
    fabric = [own for own in common if all(network.is_fabric for network in own.values())]
    if fabric:
        why = "the network of the ports next to the GPUs, in which all nodes have an address"
        return _over(fabric[0], why)
    return _as_for_ssh(nodes)


def _common(nodes: Sequence[NodeShape]) -> list[dict[str, NodeNetwork]]:
    """Return the networks in which every node has an address of its own, in the order of the first node."""
    by_node = {node.name: {own.network: own for own in reversed(node.networks)} for node in nodes}
    found = [
        {name: own[network] for name, own in by_node.items()}
        for network in by_node[nodes[0].name]
        if all(network in own for own in by_node.values())
    ]
    return [own for own in found if len({network.address for network in own.values()}) == len(nodes)]


def _over(own: Mapping[str, NodeNetwork], why: str) -> Meeting:
    found = {name: network.address for name, network in own.items()}
    return Meeting(_first(found), found, {name: network.interface for name, network in own.items()}, why)


def _first(address_by_node: Mapping[str, str]) -> str:
    return next(iter(address_by_node.values()))


def _declared(nodes: Sequence[NodeShape]) -> Meeting:
    found, interfaces = {}, {}
    for node in nodes:
        of_address = {network.address: network.interface for network in node.networks}
        of_interface = {network.interface: network.address for network in reversed(node.networks)}
        found[node.name] = node.job_address or of_interface.get(node.job_interface, node.address)
        interfaces[node.name] = node.job_interface or of_address.get(node.job_address, "")
    return Meeting(_first(found), found, interfaces if all(interfaces.values()) else {}, "declared in the inventory")


def _as_for_ssh(nodes: Sequence[NodeShape]) -> Meeting:
    """Return the addresses for ssh. Of ports of this machine the ranks meet at its loopback address."""
    is_shared = len({node.address for node in nodes}) < len(nodes)
    found = {node.name: node.name if is_shared else node.address for node in nodes}
    master = nodes[0].address if is_shared and _is_loopback(nodes[0].address) else _first(found)
    interfaces = {
        node.name: next((network.interface for network in node.networks if network.address == node.address), "")
        for node in nodes
    }
    several = any(len({network.interface for network in node.networks}) > 1 for node in nodes)
    is_known = several and len(nodes) > 1 and all(interfaces.values())
    return Meeting(master, found, interfaces if is_known else {}, "the interface of the address that ssh uses")


def _is_loopback(address: str) -> bool:
    return address in ("localhost", "::1") or address.startswith("127.")

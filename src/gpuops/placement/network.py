"""The networks of a node, and which of them belong to the RDMA devices of its GPUs; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from gpuops.facts import Facts
from gpuops.probes.network.addresses import Address, addresses
from gpuops.probes.network.gids import Gid, gids
from gpuops.probing import Unknown

_VIRTUAL = ("docker", "br-", "virbr", "veth", "cni", "flannel", "cali", "cilium", "lxc", "podman", "kube", "tun", "tap")
"""Prefixes of interfaces of containers and virtual machines, over which other nodes are not reached."""
_GUID_DIGITS = 16


@dataclass(frozen=True)
class NodeNetwork:
    """A network (CIDR) that a node has an ``address`` in; ``is_fabric`` if RDMA devices of its GPUs are in it."""

    network: str
    interface: str
    address: str
    is_fabric: bool = False


def networks_of(facts: Facts, nics: Collection[str]) -> tuple[NodeNetwork, ...]:
    """Return the networks of a node; ``nics`` are the RDMA devices of its GPUs. None are known without ``ip``."""
    listed, table = facts[addresses], facts[gids]
    if isinstance(listed, Unknown):
        return ()
    own = [gid for gid in table if gid.device in nics] if not isinstance(table, Unknown) else []
    return tuple(
        NodeNetwork(address.network, address.interface, address.address, is_fabric=_is_of(address, own))
        for address in listed
        if not address.interface.startswith(_VIRTUAL)
    )


def _is_of(address: Address, own: Iterable[Gid]) -> bool:
    """Return True for an interface of one of these GIDs: by its name (RoCE), or by the port's GUID (IPoIB).

    The last 8 bytes of an IPoIB hardware address are the GUID of its port (RFC 4391, section 9.1.1).
    """
    hardware = address.hardware.replace(":", "")[-_GUID_DIGITS:] if address.link_type == "infiniband" else "-"
    return any(
        gid.interface == address.interface or gid.gid.replace(":", "")[-_GUID_DIGITS:] == hardware for gid in own
    )

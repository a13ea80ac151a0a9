"""The nodes under test with their rails and leaves, from the inventory, the nodes' facts and the cabling."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuops.collective.pool import Pool
from gpuops.facts import Facts
from gpuops.inventory import Host
from gpuops.isolation.fabric import Fabric, FabricNic, FabricNode
from gpuops.placement.shape import GpuShape, NodeShape, shape_of
from gpuops.probes.network import ibnetdiscover
from gpuops.probes.network.gids import gids
from gpuops.probes.network.ib import IbPort, ib_ports
from gpuops.probes.network.ibnetdiscover import Cable, parse_ibnetdiscover
from gpuops.probes.network.lldp import lldp
from gpuops.probes.nvidia.nvidia_smi import smi
from gpuops.probes.nvidia.topo import topo
from gpuops.probing import Probe, Unknown

NEEDS: tuple[Probe[Any], ...] = (smi, topo, ib_ports, gids)
"""The probes whose answers `fabric_of` reads."""
_BITS_PER_BYTE = 8
_TRIES = 2
Leaves = Mapping[tuple[str, str], str]
"""The leaf switch of each port, by node and RDMA device; unknown ports are absent."""


def fabric_of(hosts: Sequence[Host], facts: Mapping[str, Facts], leaves: Leaves | None = None) -> Fabric:
    """Return the fabric of those of ``hosts`` whose GPUs are known. The inventory overrides ``leaves``.

    Only NICs that are nearest to a GPU count. A NIC without a declared rail gets its position among the names of all
    NICs, in the order of the GPUs that they serve. So a node that lacks one NIC keeps the rails of its others.
    """
    shapes = {h.name: shape for h in hosts if isinstance(shape := shape_of(h, facts[h.name]), NodeShape)}
    served = sorted({(g.index, g.nic) for shape in shapes.values() for g in shape.gpus if g.nic})
    order = {name: rail for rail, name in enumerate(dict.fromkeys(name for _, name in served))}
    return Fabric({name: _node(shape, facts[name], order, leaves or {}) for name, shape in shapes.items()})


def _node(shape: NodeShape, facts: Facts, order: Mapping[str, int], leaves: Leaves) -> FabricNode:
    """Return a node with NICs in rail order and the GPU that each serves at the same position, other GPUs last."""
    rates = {port.device: port.rate_gbps / _BITS_PER_BYTE for port in _ports(facts) if port.rate_gbps and _up(port)}
    link_layers = {port.device: port.link_layer for port in _ports(facts)}
    first: dict[str, GpuShape] = {}
    for gpu in shape.gpus:
        if gpu.nic:
            first.setdefault(gpu.nic, gpu)
    nics = sorted(
        (
            FabricNic(
                name,
                order[name] if gpu.rail is None else gpu.rail,
                rates.get(name, 0.0),
                gpu.leaf or leaves.get((shape.name, name)),
                link_layers.get(name, ""),
            )
            for name, gpu in first.items()
        ),
        key=lambda nic: nic.rail,
    )
    gpus = dict.fromkeys([*(first[nic.name].index for nic in nics), *(gpu.index for gpu in shape.gpus)])
    return FabricNode(shape.name, tuple(gpus), tuple(nics))


def _ports(facts: Facts) -> tuple[IbPort, ...]:
    ports = facts[ib_ports]
    return () if isinstance(ports, Unknown) else ports


def _up(port: IbPort) -> bool:
    return port.state == "Active"


def leaves_of(pool: Pool, facts: Mapping[str, Facts]) -> Leaves:
    """Return the leaves that the fabric reports: for InfiniBand through one node, for Ethernet through each node."""
    layers = {name: {port.link_layer for port in _ports(own) if _up(port)} for name, own in facts.items()}
    leaves: dict[tuple[str, str], str] = {}
    for name in [name for name, kinds in layers.items() if "InfiniBand" in kinds][:_TRIES]:
        answers = pool.ask([ibnetdiscover.QUESTION], [name]).get(name)
        cables = parse_ibnetdiscover(answers[0].out) if answers and not answers[0].exit else Unknown("refused")
        if not isinstance(cables, Unknown):
            leaves |= by_cables(cables, facts)
            break
    lldp_answers = pool.ask([lldp.question], [name for name, kinds in layers.items() if "Ethernet" in kinds])
    return {**leaves, **by_neighbours({name: lldp.read(answer) for name, (answer,) in lldp_answers.items()}, facts)}


def by_cables(cables: Iterable[Cable], facts: Mapping[str, Facts]) -> Leaves:
    """Return the leaves of InfiniBand ports, identified by GUID or by the name ``node device`` that they announce."""
    switches = {
        end: cable.far.name
        for cable in cables
        if (cable.near.kind, cable.far.kind) == ("CA", "SW")
        for end in (cable.near.guid, cable.near.name)
    }
    ends = {
        (name, port.device): (port.guid.replace(":", ""), f"{name} {port.device}")
        for name, own in facts.items()
        for port in _ports(own)
    }
    return {place: leaf for place, ids in ends.items() if (leaf := switches.get(ids[0]) or switches.get(ids[1]))}


def by_neighbours(neighbours_by_node: Mapping[str, Mapping[str, str] | Unknown], facts: Mapping[str, Facts]) -> Leaves:
    """Return the leaves of Ethernet ports, by the interfaces that their GIDs belong to."""
    leaves: dict[tuple[str, str], str] = {}
    for name, neighbours in neighbours_by_node.items():
        table = facts[name][gids]
        if not isinstance(neighbours, Unknown) and not isinstance(table, Unknown):
            leaves |= {(name, gid.device): neighbours[gid.interface] for gid in table if gid.interface in neighbours}
    return leaves

"""The properties of a node that a placement needs: its GPUs with their links, NICs and NUMA nodes, and its location."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuops.facts import Facts
from gpuops.inventory import Host, Port
from gpuops.inventory.machine_vars import completed
from gpuops.inventory.ssh_options import ssh_options
from gpuops.placement.network import NodeNetwork, networks_of
from gpuops.probes.host.pcie import pcie
from gpuops.probes.host.system import system
from gpuops.probes.network.addresses import addresses
from gpuops.probes.network.gids import gids
from gpuops.probes.nvidia.gpus import shared_nvlink_domain
from gpuops.probes.nvidia.nvidia_smi import Gpu, smi
from gpuops.probes.nvidia.topo import Topology, link_distance, topo
from gpuops.probing import Probe, Unknown

SHAPE_PROBES: tuple[Probe[Any], ...] = (smi, topo, pcie, system, gids, addresses)
"""The probes from which a shape is made."""
_DEVICE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,62}", re.ASCII)
"""Name of an RDMA device or a network interface: the kernel allows 63 characters (IB_DEVICE_NAME_MAX)."""


@dataclass(frozen=True)
class GpuShape:
    """A GPU that a job can use. ``nic`` is the RDMA device nearest to it, on ``rail`` and cabled to ``leaf``.

    ``clique`` numbers the NVLink cliques of a node; without NVLink all its GPUs have the same number.
    """

    index: int
    uuid: str
    address: str
    numa: int | None
    nic: str | None
    clique: int
    rail: int | None = None
    leaf: str | None = None


@dataclass(frozen=True)
class NodeShape:
    """One node. ``leaves`` are the switches that its ports are cabled to, sorted: nodes that share them are one unit.

    ``domain`` is the NVLink domain that spans nodes (an NVL72 rack), else the node's own name. ``links`` holds how two
    GPUs, by index, are connected: NV18, PIX, …, SYS. ``gpu_name`` is the model of its GPUs, if known. ``login`` are
    options of ``ssh_config``. ``networks`` are those that it has an address in; ``job_address`` and ``job_interface``
    are what the inventory declares (empty: nothing). ``cores`` is the number of its physical cores, and
    ``host_gib`` its memory; None if unknown.
    """

    name: str
    address: str
    gpus: tuple[GpuShape, ...]
    leaves: tuple[str, ...]
    rack: str | None
    domain: str
    links: Mapping[tuple[int, int], str] = field(default_factory=dict, hash=False, repr=False)
    gpu_name: str = ""
    login: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    networks: tuple[NodeNetwork, ...] = ()
    job_address: str = ""
    job_interface: str = ""
    cores: int | None = None
    host_gib: float | None = None

    def nvlink_domain(self, gpu: GpuShape) -> tuple[str, int]:
        """Return a key that the GPUs reachable over NVLink share: the domain, and within a node the clique."""
        return (self.domain, gpu.clique if self.domain == self.name else 0)

    def link(self, indices: Sequence[int]) -> str:
        """Return the weakest link between the GPUs with these indices; ``unknown`` if one pair is unknown."""
        pairs = ((a, b) for a in indices for b in indices if a < b)
        return max((self.links.get(pair, "unknown") for pair in pairs), key=link_distance, default="")


def largest_domain(shapes: Iterable[NodeShape]) -> int:
    """Return the number of GPUs in the largest NVLink domain: tensor parallelism must fit into it."""
    return max(Counter(shape.nvlink_domain(gpu) for shape in shapes for gpu in shape.gpus).values(), default=0)


def declared_shape(host: Host, gpus: int) -> NodeShape:
    """Return the shape of a host that was not asked: ``gpus`` GPUs in one NVLink domain, with unknown links and NICs.

    Its rack and its leaves are those that the inventory declares.
    """
    shapes = (GpuShape(index, "", "", None, None, 0) for index in range(gpus))
    shape = NodeShape(host.name, host.address, tuple(shapes), _leaves(host), host.rack, host.name)
    return declared_by(host, shape)


def declared_by(host: Host, shape: NodeShape) -> NodeShape:
    """Return ``shape`` with what the inventory says of the way to the node: its login, and where a job's ranks meet."""
    return replace(
        shape,
        login=ssh_options(host),
        job_address=host.job_address or "",
        job_interface=host.job_interface or "",
    )


def shape_of(host: Host, facts: Facts) -> NodeShape | Unknown:
    """Return the shape of ``host``; `Unknown` if its GPUs or links are unknown. GPUs split by MIG do not count."""
    host = completed(host, facts.declared)
    smi_report, matrix, machine = facts[smi], facts[topo], facts[system]
    if isinstance(smi_report, Unknown):
        return smi_report
    if not smi_report.gpus:
        return Unknown(smi_report.error.text if smi_report.error else "nvidia-smi shows no GPU")
    if isinstance(matrix, Unknown):
        return matrix
    if matrix.gpus != tuple(f"GPU{gpu.index}" for gpu in smi_report.gpus):
        return Unknown(f"nvidia-smi -q shows {len(smi_report.gpus)} GPUs, but topo -m {', '.join(matrix.gpus)}"[:120])
    if why := _unusable_names(host.fabric, matrix):
        return Unknown(why)
    usable = [gpu for gpu in smi_report.gpus if gpu.uuid and not gpu.mig_mode]  # a lost GPU has no UUID
    gpus = tuple(_gpus(host, usable, matrix, _numa_nodes(usable, matrix, facts)))
    shape = NodeShape(
        host.name,
        host.address,
        gpus,
        _leaves(host),
        host.rack,
        _domain(host.name, usable),
        _links(matrix),
        next((gpu.name or "" for gpu in usable), ""),
        networks=networks_of(facts, {gpu.nic for gpu in gpus if gpu.nic}),
        cores=None if isinstance(machine, Unknown) else machine.cores,
        host_gib=None if isinstance(machine, Unknown) else machine.memory_gib,
    )
    return declared_by(host, shape)


def _leaves(host: Host) -> tuple[str, ...]:
    return tuple(sorted({port.leaf for port in host.fabric.values() if port.leaf}))


def _unusable_names(ports: Mapping[str, Port], matrix: Topology) -> str:
    """Return why the names of the NICs cannot go into launch files; an empty string if they can.

    Without a name that is missing or malformed, a job would silently use fewer NICs than there are.
    """
    for nic, name in matrix.nic_names.items():
        if not _DEVICE_NAME.fullmatch(name):
            return f"nvidia-smi topo -m gives {nic} the name {name[:80]!a}, which no device has"
    missing = [nic for nic in matrix.nics if nic not in matrix.nic_names]
    if missing and (not ports or ports.keys() - set(matrix.nic_names.values())):
        return f"nvidia-smi topo -m gives no device name for {', '.join(missing)}"
    return ""


def _links(matrix: Topology) -> dict[tuple[int, int], str]:
    """Return how two GPUs are connected, by index."""
    indices = {gpu: int(gpu[3:]) for gpu in matrix.gpus}
    return {(indices[a], indices[b]): link for (a, b), link in matrix.links.items() if a in indices and b in indices}


def _gpus(
    host: Host, gpus: Sequence[Gpu], matrix: Topology, numa_nodes: Mapping[int, int | None]
) -> Iterable[GpuShape]:
    cliques, nics = _cliques(matrix), _nics(host.fabric, gpus, matrix)
    for gpu in gpus:
        nic, index = nics[gpu.index], gpu.index
        port = host.fabric.get(nic or "", Port())
        clique = cliques[f"GPU{index}"]
        yield GpuShape(index, gpu.uuid or "", gpu.address, numa_nodes[index], nic, clique, port.rail, port.leaf)


def _numa_nodes(gpus: Iterable[Gpu], matrix: Topology, facts: Facts) -> dict[int, int | None]:
    """Return the NUMA node by GPU index, from topo, else from the kernel."""
    links = facts[pcie]
    kernel = {} if isinstance(links, Unknown) else {address: link.numa_node for address, link in links.items()}
    affinities = [(gpu, matrix.numa_affinity.get(f"GPU{gpu.index}") or "") for gpu in gpus]
    # if firmware reports no single node, topo prints a list of them, which does not count
    return {gpu.index: int(text) if text.isdecimal() else kernel.get(gpu.address) for gpu, text in affinities}


def _cliques(matrix: Topology) -> dict[str, int]:
    """Return the clique of each GPU: all GPUs that NVLink connects, directly or through others."""
    clique = {gpu: number for number, gpu in enumerate(matrix.gpus)}
    joined = [pair for pair, link in matrix.links.items() if link.startswith("NV")]
    for a, b in joined:
        low, high = sorted((clique[a], clique[b]))
        if low != high:
            clique = {gpu: low if number == high else number for gpu, number in clique.items()}
    return clique if joined else dict.fromkeys(clique, 0)


def _nics(ports: Mapping[str, Port], gpus: Iterable[Gpu], matrix: Topology) -> dict[int, str | None]:
    """Return the nearest RDMA device by GPU index; of several, one that no GPU uses yet, then the GPU's own rail.

    If the inventory declares the fabric, only its ports count: the others carry storage or management.
    """
    names = {nic: name for nic, name in matrix.nic_names.items() if name in ports} or matrix.nic_names
    rails = {name: ports[name].rail if name in ports else number for number, name in enumerate(names.values())}
    taken: Counter[str] = Counter()
    nearest: dict[int, str | None] = {}
    for gpu in gpus:
        ranked = [
            (matrix.distance(f"GPU{gpu.index}", nic), taken[name], rails[name] != gpu.index, number, name)
            for number, (nic, name) in enumerate(names.items())
        ]
        nearest[gpu.index] = name = min(ranked)[-1] if ranked else None
        taken[name or ""] += 1
    return nearest


def _domain(node: str, gpus: Iterable[Gpu]) -> str:
    """Return the NVLink domain if all GPUs report the same (ClusterUUID and CliqueId, as in NVL72), else the node."""
    shared = shared_nvlink_domain(gpus)
    return f"{shared[0]}.{shared[1]}" if shared else node

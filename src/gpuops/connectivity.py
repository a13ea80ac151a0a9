"""Connections between the GPUs and NICs of a node, and what they mean for training; pure.

The rate of a pair is for one direction, at best:

- NVLink: the number of links between the two, times the rate of one as ``nvidia-smi nvlink -s`` prints it.
- PCIe: lanes times the rate of a lane (`LANE_GB_PER_S`), of the narrower of the two slots. GPUs slow down an idle link,
  so the generation that GPU and slot can do counts, but the lanes that are in use.

``DDP`` adds up the gradients of all n GPUs in each step, an all-reduce. On a ring, each GPU sends and receives
2·(n-1)/n times the payload (NVIDIA/nccl-tests, doc/PERFORMANCE.md), so a step takes at least

    2·(n-1)/n · payload / rate of the slowest hop

with all of a GPU's NVLinks in use if NVLinks make a ring through all GPUs (NCCL makes several rings), else the slowest
PCIe slot. The payload is that of a model of 7 billion parameters in bf16: 2 bytes each, 14 GB. ZeRO-1 and ZeRO-2 move
as much; ZeRO-3 gathers the parameters twice and scatters the gradients once, 3·(n-1)/n times the payload (Rajbhandari
et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, section 7). Real figures are higher, and
part of this time is hidden behind the computation; ``gpuops allreduce`` measures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gpuops.bandwidth import bus_factor
from gpuops.facts import Facts
from gpuops.probes.host.lspci import gpu_functions
from gpuops.probes.host.pci import pci_vendors
from gpuops.probes.host.pcie import PcieLink, pcie
from gpuops.probes.network.ib import IbPort, ib_ports
from gpuops.probes.nvidia.driver import driver
from gpuops.probes.nvidia.gpus import shared_nvlink_domain
from gpuops.probes.nvidia.nvidia_smi import Gpu, smi
from gpuops.probes.nvidia.nvlink import GpuLinks, nvlink
from gpuops.probes.nvidia.presence import NO_GPU, has_no_gpu
from gpuops.probes.nvidia.topo import Topology, link_distance, topo
from gpuops.probing import Probe, Unknown

PROBES: tuple[Probe[Any], ...] = (smi, topo, nvlink, pcie, gpu_functions, ib_ports, pci_vendors, driver)
"""What the connections are read from."""
LANE_GB_PER_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""GB/s of one PCIe lane in one direction, by generation (PCI-SIG, PCI Express Base Specification: the transfer rate
without the line code: 8b/10b to generation 2, 128b/130b to 5, FLIT mode in 6)."""
PAYLOAD_GB = 14.0
"""Gradients of 7 billion parameters in bf16."""
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
_MOST_SEARCHED = 16

Means = Literal["nvlink", "nvlink-ring", "mixed", "pcie-switch", "pcie-host", "none", "unknown"]


@dataclass(frozen=True)
class GpuPlace:
    """One GPU: its NUMA node, its slot, and its active NVLinks; None if unknown.

    Rates are in GB/s for one direction, that of ``nvlink_gb_per_s`` of all NVLinks together.
    """

    index: int
    name: str
    address: str
    numa: int | None
    in_mig_mode: bool
    pcie_generation: int | None
    pcie_width: int | None
    pcie_gb_per_s: float | None
    nvlinks: int | None
    nvlink_gb_per_s: float | None


@dataclass(frozen=True)
class NicPlace:
    """One RDMA device; ``column`` is its name in the matrix."""

    device: str
    column: str
    numa: int | None
    rate_gbps: float | None
    link_layer: str
    active: bool | None


@dataclass(frozen=True)
class Pair:
    """Connection of two GPUs, by index; ``link`` is the word of ``nvidia-smi topo -m``, None if unknown."""

    one: int
    other: int
    link: str | None
    gb_per_s: float | None


@dataclass(frozen=True)
class Cost:
    """Least seconds per step that exchanging the gradients takes, on ``gpus`` GPUs at ``gb_per_s``."""

    gpus: int
    gb_per_s: float
    ddp_seconds: float
    zero3_seconds: float


@dataclass(frozen=True)
class Connectivity:
    """Connections of one node. ``near`` is the word between a GPU (by index) and a NIC (by column).

    ``nvswitches`` is the number on the node's PCI bus. ``domain`` is set if NVLink leads beyond the node. ``unknown``
    are the reasons why parts are missing.
    """

    gpus: tuple[GpuPlace, ...]
    nics: tuple[NicPlace, ...] = ()
    pairs: tuple[Pair, ...] = ()
    near: Mapping[tuple[int, str], str] = field(default_factory=dict, hash=False)
    nvswitches: int | None = None
    domain: str = ""
    unknown: tuple[str, ...] = ()

    @property
    def whole_gpus(self) -> tuple[GpuPlace, ...]:
        """The GPUs that are not split by MIG: only these exchange data directly."""
        return tuple(gpu for gpu in self.gpus if not gpu.in_mig_mode)

    @property
    def whole_pairs(self) -> tuple[Pair, ...]:
        """The pairs of whole GPUs."""
        whole = {gpu.index for gpu in self.whole_gpus}
        return tuple(pair for pair in self.pairs if {pair.one, pair.other} <= whole)

    @property
    def means(self) -> Means:
        """How the whole GPUs reach each other.

        ``nvlink-ring``: NVLinks make a ring through all of them, but do not join all pairs. ``mixed``: they join some.
        """
        pairs = self.whole_pairs
        if len(self.whole_gpus) < 2:
            return "none"
        if not pairs or any(pair.link is None for pair in pairs):
            return "unknown"
        joined = [pair for pair in pairs if _is_nvlink(pair)]
        if len(joined) == len(pairs):
            return "nvlink"
        if joined:
            return "nvlink-ring" if _has_ring([gpu.index for gpu in self.whole_gpus], joined) else "mixed"
        farthest = max((pair.link or "" for pair in pairs), key=link_distance)
        return "pcie-switch" if link_distance(farthest) <= link_distance("PXB") else "pcie-host"

    @property
    def is_switched(self) -> bool:
        """True if each whole GPU reaches all others with all its NVLinks at once: only switches can do that."""
        links = {gpu.index: gpu.nvlinks for gpu in self.whole_gpus}
        if len(links) < 3 or not self.whole_pairs:
            return False
        ends = ((pair.link, {f"NV{links[pair.one]}", f"NV{links[pair.other]}"}) for pair in self.whole_pairs)
        return all(link in own for link, own in ends)

    @property
    def cost(self) -> Cost | None:
        """The cost of a step within the node; None if there is nothing to exchange, or a rate is unknown."""
        means, gpus = self.means, self.whole_gpus
        if means in ("none", "unknown"):
            return None
        over_nvlink = means in ("nvlink", "nvlink-ring")
        rates = [gpu.nvlink_gb_per_s if over_nvlink else gpu.pcie_gb_per_s for gpu in gpus]
        return _cost(len(gpus), rates)

    @property
    def cost_between_nodes(self) -> Cost | None:
        """The cost of a step on two such nodes: a ring whose slowest hop is all NICs of the GPUs together.

        These are the active ones behind the same PCIe switches as a GPU; if there is none, all active ones.
        """
        switch = link_distance("PXB")
        near = {nic for (_, nic), word in self.near.items() if link_distance(word) <= switch}
        active = [nic for nic in self.nics if nic.active and nic.rate_gbps]
        used = [nic for nic in active if nic.column in near] or active
        rates = [nic.rate_gbps or 0 for nic in used]
        gpus = 2 * len(self.whole_gpus)
        return _cost(gpus, [sum(rates) / 8]) if rates and gpus else None


def connectivity_of(facts: Facts) -> Connectivity | Unknown:
    """Return the connections of a node; `Unknown` if it has no GPU, or nvidia-smi shows none."""
    listing, matrix, links, slots = facts[smi], facts[topo], facts[nvlink], facts[pcie]
    vendors, loaded = facts[pci_vendors], facts[driver]
    if has_no_gpu(vendors, loaded, listing):
        return Unknown(NO_GPU)
    if isinstance(listing, Unknown):
        return listing
    if not listing.gpus:
        return Unknown(listing.error.text if listing.error else "nvidia-smi lists no GPU")
    gaps = [each.why for each in (matrix, links, slots, facts[ib_ports]) if isinstance(each, Unknown)]
    gaps += [listing.error.text] if listing.error else []
    known = Topology(()) if isinstance(matrix, Unknown) else matrix
    by_name = {} if isinstance(slots, Unknown) else slots
    links_by_gpu = None if isinstance(links, Unknown) else {each.index: each for each in links}
    gpus = tuple(_gpu(gpu, known, links_by_gpu, by_name) for gpu in listing.gpus)
    ports = facts[ib_ports]
    nics = tuple(_nics(() if isinstance(ports, Unknown) else ports, known, by_name))
    functions = facts[gpu_functions]
    return Connectivity(
        gpus,
        nics,
        tuple(_pairs(gpus, known)) if known.gpus else (),
        {
            (gpu.index, nic.column): known.links[f"GPU{gpu.index}", nic.column]
            for gpu in gpus
            for nic in nics
            if (f"GPU{gpu.index}", nic.column) in known.links
        },
        None if isinstance(functions, Unknown) else sum(function.is_nvswitch for function in functions),
        _domain(listing.gpus),
        tuple(dict.fromkeys(gaps)),
    )


def nvlink_groups(pairs: Iterable[Pair], gpus: Iterable[int]) -> list[list[int]]:
    """Return the GPUs that NVLink joins, directly or through others, in groups of two and more."""
    groups = {gpu: {gpu} for gpu in gpus}
    for pair in pairs:
        if _is_nvlink(pair):
            joined = groups[pair.one] | groups[pair.other]
            groups.update(dict.fromkeys(joined, joined))
    return [list(each) for each in dict.fromkeys(tuple(sorted(group)) for group in groups.values()) if len(each) > 1]


def _gpu(
    gpu: Gpu, matrix: Topology, links_by_gpu: Mapping[int, GpuLinks] | None, slots: Mapping[str, PcieLink]
) -> GpuPlace:
    slot = slots.get(gpu.address)
    affinity = matrix.numa_affinity.get(f"GPU{gpu.index}") or ""
    generation = gpu.pcie_generation_max or (_GENERATIONS.get(slot.max_speed_gt_per_s or 0) if slot else None)
    width = gpu.pcie_width or (slot.width if slot else None)
    own = links_by_gpu.get(gpu.index) if links_by_gpu is not None else None
    rates = None if own is None else [link.gb_per_s for link in own.links if link.gb_per_s]
    return GpuPlace(
        gpu.index,
        gpu.name or "unknown GPU",
        gpu.address,
        int(affinity) if affinity.isdecimal() else slot.numa_node if slot else None,
        bool(gpu.mig_mode),
        generation,
        width,
        LANE_GB_PER_S[generation] * width if generation in LANE_GB_PER_S and width else None,
        None if rates is None else len(rates),
        None if rates is None else sum(rates),
    )


def _pairs(gpus: Sequence[GpuPlace], matrix: Topology) -> Iterator[Pair]:
    for number, one in enumerate(gpus):
        for other in gpus[number + 1 :]:
            there = matrix.links.get((f"GPU{one.index}", f"GPU{other.index}"))
            back = matrix.links.get((f"GPU{other.index}", f"GPU{one.index}"))
            link = there if there == back else None
            yield Pair(one.index, other.index, link, _rate(link, one, other))


def _rate(link: str | None, one: GpuPlace, other: GpuPlace) -> float | None:
    """Return the rate of a pair: its NVLinks, each at the rate of the slower GPU's, else the narrower slot."""
    if link is None:
        return None
    if link.startswith("NV"):
        each = [gpu.nvlink_gb_per_s / gpu.nvlinks for gpu in (one, other) if gpu.nvlinks and gpu.nvlink_gb_per_s]
        return int(link[2:]) * min(each) if len(each) == 2 else None
    rates = [gpu.pcie_gb_per_s for gpu in (one, other) if gpu.pcie_gb_per_s]
    return min(rates) if len(rates) == 2 else None


def _nics(ports: Sequence[IbPort], matrix: Topology, slots: Mapping[str, PcieLink]) -> Iterator[NicPlace]:
    """Yield the RDMA devices of the matrix, then those that only the kernel lists."""
    by_device = {port.device: port for port in ports if not port.is_virtual_function}
    columns = {device: column for column, device in matrix.nic_names.items()}
    for device in dict.fromkeys([*columns, *by_device]):
        port, slot = by_device.get(device), slots.get(device)
        yield NicPlace(
            device,
            columns.get(device, ""),
            slot.numa_node if slot else None,
            port.rate_gbps if port else None,
            port.link_layer if port else "",
            port.state.lower() == "active" if port and port.state else None,
        )


def _domain(gpus: Iterable[Gpu]) -> str:
    """Return the NVLink domain that leads beyond the node (ClusterUUID and CliqueId, as in NVL72), else nothing."""
    shared = shared_nvlink_domain(gpus)
    return f"{shared[0]}, clique {shared[1]}" if shared else ""


def _cost(gpus: int, rates: Sequence[float | None]) -> Cost | None:
    known = [rate for rate in rates if rate]
    if len(known) < len(rates):
        return None
    rate = min(known)
    ddp, zero3 = bus_factor("all_reduce", gpus), bus_factor("all_gather", gpus) * 3
    return Cost(gpus, rate, ddp * PAYLOAD_GB / rate, zero3 * PAYLOAD_GB / rate)


def _is_nvlink(pair: Pair) -> bool:
    return bool(pair.link and pair.link.startswith("NV"))


def _has_ring(gpus: Sequence[int], joined: Iterable[Pair]) -> bool:
    """Return True if NVLinks make a ring through all ``gpus``; for more than 16 this is not searched."""
    if not 2 < len(gpus) <= _MOST_SEARCHED:
        return False
    beside: dict[int, set[int]] = {gpu: set() for gpu in gpus}
    for pair in joined:
        beside[pair.one].add(pair.other)
        beside[pair.other].add(pair.one)
    return all(len(others) > 1 for others in beside.values()) and _closes([gpus[0]], beside)


def _closes(path: list[int], beside: Mapping[int, set[int]]) -> bool:
    if len(path) == len(beside):
        return path[0] in beside[path[-1]]
    return any(_closes([*path, after], beside) for after in sorted(beside[path[-1]] - set(path)))

"""Clusters to train on: from a catalogue string, or from the shapes of nodes and what was measured on them; pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuops.bandwidth import Network, on_rail, within_node
from gpuops.errors import LayoutError, did_you_mean, format_count
from gpuops.placement import NodeShape, largest_domain
from gpuops.planner.constants import PRIORS, Constants
from gpuops.planner.gpus import GpuSpec, gpu_named
from gpuops.profile import Profile

_RAIL_EFFICIENCY = 0.9
"""Fraction of a NIC's line rate that a ring over it reaches; `bandwidth.PRIOR` at 1 GiB."""
_NVLINK_EFFICIENCY = 0.77
"""Fraction of all NVLinks' rate that a ring reaches: 230 of 300 GB/s on A100, 365 of 450 on H100 (profiles)."""
_ETHERNET_GB_PER_S = 1.25
"""What a node without a known NIC is taken to have: one port of 10 Gbit/s."""
USUAL_NVME_GB_PER_S = 3.0
"""What a GPU is taken to have of its node's NVMe drives: those of four drives that eight GPUs share."""


@dataclass(frozen=True)
class ClusterSpec:
    """Identical GPUs, their memory and their links.

    ``nvlink_gb_per_s`` and ``network_gb_per_s`` are bus bandwidths of one GPU as nccl-tests defines them: of a ring
    inside an NVLink domain of ``domain_gpus`` GPUs, and of a rail between nodes. Without NVLink, the first is that of
    PCIe. ``host_bytes`` and ``nvme_bytes`` are per node; ``pcie_gb_per_s`` and ``nvme_gb_per_s`` are per GPU.
    ``matmul_tflops`` holds measured rates by precision, in place of the published ones, and ``constants`` those that a
    calibration found. ``sources`` names where each number is from.
    """

    name: str
    gpu: GpuSpec
    gpus: int
    gpus_per_node: int
    domain_gpus: int
    nvlink_gb_per_s: float
    network_gb_per_s: float
    has_nvlink: bool = True
    nvlink_latency_us: float = 8.0
    network_latency_us: float = 20.0
    host_bytes: int = 0
    nvme_bytes: int = 0
    pcie_gb_per_s: float = 25.0
    nvme_gb_per_s: float = 0.0
    matmul_tflops: Mapping[str, float] = field(default_factory=dict, hash=False)
    constants: Constants = PRIORS
    sources: Mapping[str, str] = field(default_factory=dict, hash=False, compare=False)

    @property
    def nodes(self) -> int:
        """Number of nodes, the last of which may be used in part."""
        return -(-self.gpus // self.gpus_per_node)

    @property
    def reach(self) -> int:
        """Number of GPUs within which traffic stays off the network: those of an NVLink domain, or of a node."""
        return max(self.domain_gpus, self.gpus_per_node)

    def with_gpus(self, gpus: int) -> ClusterSpec:
        """Return the same cluster with another number of GPUs."""
        if gpus < 1:
            raise LayoutError(f"{self.name}: a cluster needs at least one GPU, not {gpus}")
        return replace(self, gpus=gpus)

    def with_constants(self, constants: Constants, source: str) -> ClusterSpec:
        """Return the cluster with the constants of a calibration."""
        return replace(self, constants=constants, sources={**self.sources, "constants": source})

    def with_storage(self, host_gib: float | None, nvme_gib: float | None) -> ClusterSpec:
        """Return the cluster with so much host memory and NVMe in each node; None leaves what is known."""
        cluster = self if host_gib is None else replace(self, host_bytes=int(host_gib * (1 << 30)))
        if nvme_gib is None:
            return cluster
        sources = {**self.sources, "nvme_gb_per_s": f"assumed: NVMe of {USUAL_NVME_GB_PER_S:g} GB/s a GPU"}
        return replace(
            cluster, nvme_bytes=int(nvme_gib * (1 << 30)), nvme_gb_per_s=USUAL_NVME_GB_PER_S, sources=sources
        )

    def with_measurements(
        self,
        *,
        nvlink_gb_per_s: float | None = None,
        network_gb_per_s: float | None = None,
        matmul_tflops: Mapping[str, float] | None = None,
        source: str = "measured on this cluster",
    ) -> ClusterSpec:
        """Return the cluster with measured bus bandwidths, of the slowest link a ring crosses, and matmul rates."""
        values = {
            "nvlink_gb_per_s": nvlink_gb_per_s,
            "network_gb_per_s": network_gb_per_s,
            "matmul_tflops": matmul_tflops,
        }
        measured = {key: value for key, value in values.items() if value is not None}
        for key, value in measured.items():
            lowest = min(value.values(), default=1.0) if isinstance(value, Mapping) else value
            if lowest <= 0:
                raise LayoutError(f"{self.name}: {key} must be above 0, not {lowest}")
        changed: dict[str, object] = {**measured, "sources": {**self.sources, **dict.fromkeys(measured, source)}}
        return replace(self, **changed)  # type: ignore[arg-type]


def from_catalogue(text: str, profiles: Mapping[str, Profile]) -> ClusterSpec:
    """Return the cluster that ``text`` describes: nodes and their profile, as ``16xhgx-h100``."""
    match = re.fullmatch(r"(?:([0-9]{1,6})\s*[x*])?\s*([A-Za-z][\w.-]*)", text.strip())
    if not match:
        raise LayoutError(f'--cluster: "{text[:60]}" is not NODESxPROFILE, such as 16xhgx-h100')
    nodes, name = int(match[1] or 1), match[2]
    if name not in profiles:
        hint = did_you_mean(name, profiles) or f"; known profiles: {', '.join(sorted(profiles))}"
        raise LayoutError(f'--cluster: no profile named "{name}"{hint}')
    if nodes < 1:
        raise LayoutError(f"--cluster: {text.strip()} has no nodes; at least one is needed")
    profile = profiles[name]
    if profile.match is None or not profile.match.gpu_names:
        raise LayoutError(f"--cluster: the profile {name} does not say which GPU its machines have")
    per_node = profile.get("gpu.count") or profile.match.fewest
    cluster = from_profile(profile, gpu_named(profile.match.gpu_names[0]), per_node)
    return replace(cluster, name=text.strip(), gpus=nodes * per_node)


def from_profile(profile: Profile, gpu: GpuSpec, gpus_per_node: int) -> ClusterSpec:
    """Return one node of ``profile``; what the profile does not set is derived, or assumed and named so."""
    nvlink, nvlink_source = _nvlink(profile, gpu, gpus_per_node)
    network, network_source = _network(profile, gpus_per_node)
    has_nvlink = bool(profile.get("nvlink.links"))
    return ClusterSpec(
        profile.name,
        gpu,
        gpus_per_node,
        gpus_per_node,
        profile.get("nvlink.domain_gpus") or (gpus_per_node if has_nvlink else 1),
        nvlink,
        network,
        has_nvlink,
        pcie_gb_per_s=profile.get("pcie.host_gb_per_s") or gpu.pcie_gb_per_s,
        sources={"nvlink_gb_per_s": nvlink_source, "network_gb_per_s": network_source},
    )


def _nvlink(profile: Profile, gpu: GpuSpec, gpus_per_node: int) -> tuple[float, str]:
    """Return a ring's bus bandwidth within a node, and its source; without NVLink, half of what PCIe moves."""
    if links := profile.get("nvlink.links"):
        ring = within_node(profile, gpus_per_node, nvls=False)
        if ring:
            return ring.gb_per_s, f"profile {profile.name}, allreduce.ring"
        per_link = profile.get("nvlink.gb_per_s") or 25
        return links * per_link * _NVLINK_EFFICIENCY, f"{_NVLINK_EFFICIENCY} of {links} links of {per_link} GB/s"
    pcie = profile.get("pcie.host_gb_per_s") or gpu.pcie_gb_per_s
    return pcie / 2, f"half of the {pcie:g} GB/s of PCIe"


def _network(profile: Profile, gpus_per_node: int) -> tuple[float, str]:
    """Return the bus bandwidth of one GPU between nodes, and its source."""
    nics, rate = profile.get("nic.count") or 0, (profile.get("nic.rate_gbps") or 0) / 8
    network = Network(2, 2 * gpus_per_node, nics, rate, "profile", "datasheet")
    rail = on_rail(network)
    if not network.known or rail is None:
        per_gpu = _ETHERNET_GB_PER_S / gpus_per_node
        return per_gpu, f"assumed: one port of 10 Gbit/s a node, since the profile {profile.name} has no NICs"
    per_gpu = nics * rate * _RAIL_EFFICIENCY / gpus_per_node
    return per_gpu, f"{_RAIL_EFFICIENCY} of {format_count(nics, 'NIC')} of {rate * 8:g} Gbit/s a node"


def from_nodes(
    shapes: Sequence[NodeShape], gpu_names: Mapping[str, str], profile: Profile, memory_bytes: int | None = None
) -> ClusterSpec:
    """Return the cluster of the nodes that are there; ``gpu_names`` holds the GPU's name by node.

    Nodes with fewer GPUs lower the number in a node for all, since a layout needs identical nodes. Raise `LayoutError`
    if there are no nodes, or if the GPUs are of several types.
    """
    usable = [shape for shape in shapes if shape.gpus]
    if not usable:
        raise LayoutError("no node has a GPU that a job could use; gpuops validate says why")
    counts = Counter(gpu_names[shape.name] for shape in usable)
    if len(counts) > 1:
        found = ", ".join(f"{format_count(count, 'node')} with {name}" for name, count in counts.most_common())
        raise LayoutError(f"the nodes have different GPUs ({found}); choose those of one type with --limit")
    per_node = min(len(shape.gpus) for shape in usable)
    gpu = gpu_named(next(iter(counts)))
    cluster = from_profile(profile, replace(gpu, memory_bytes=memory_bytes) if memory_bytes else gpu, per_node)
    linked = any(link.startswith("NV") for shape in usable for link in shape.links.values())
    domain = min(largest_domain(usable), per_node * len(usable)) if linked or profile.get("nvlink.domain_gpus") else 1
    name = f"{format_count(len(usable), 'node')} of {per_node} {gpu.name}"
    cluster = cluster.with_storage(_least_host_gib(usable), None)
    return replace(cluster, name=name, gpus=per_node * len(usable), domain_gpus=domain, has_nvlink=domain > 1)


def _least_host_gib(shapes: Sequence[NodeShape]) -> float | None:
    """Return the host memory of the node with least; None if that of any is unknown."""
    known = [shape.host_gib for shape in shapes if shape.host_gib]
    return min(known) if len(known) == len(shapes) else None

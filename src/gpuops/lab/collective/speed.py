"""The speed of the hardware model: the bus bandwidth of one communicator, from its GPUs' links and its NICs' rates.

Sources: T4 and T5 are published runs. NCCL's rings reach .77 of a GPU's NVLink rate (V100, A100 and H100 alike), NVLS
all of it (H100: 480 of 478 GB/s); a PCIe hop through the host reaches half of one direction. Between nodes the caps are
Ring g·r and Tree g·r·(n-1)/n, twice that for two nodes, with .95 and .98 of them reached.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuops.lab.model import Gpu, Nic, Node
from gpuops.lab.topology import links_up

_RING_SHARE, _NVLS_SHARE, _PCIE_SHARE = 0.77, 1.004, 0.5
_RING_REACHED, _TREE_REACHED, _RAIL_REACHED = 0.95, 0.98, 0.96
_LEAST_NVLS_GPUS = 5
_PCIE_GB_PER_S = {3: 0.985, 4: 1.969, 5: 3.938}  # per lane, one direction
_SOCKET_GB_PER_S = 1.1  # the management network: 10 Gbit/s
_WITHIN_SECONDS, _STEP_SECONDS = 60e-6, 80e-6


@dataclass(frozen=True)
class Place:
    """A host's part of a communicator: its node, the GPUs it uses and the settings that NCCL reads there."""

    host: str
    node: Node
    gpus: tuple[Gpu, ...]
    environment: Mapping[str, str]

    @property
    def nics(self) -> tuple[Nic, ...]:
        """The RDMA devices that NCCL may use: with a link, and selected by ``NCCL_IB_HCA``, else near its GPUs."""
        usable = [nic for nic in self.node.nics if nic.up and _allowed(nic.name, self.environment.get("NCCL_IB_HCA"))]
        if self.environment.get("NCCL_IB_DISABLE") == "1":
            return ()
        if "NCCL_IB_HCA" in self.environment:
            return tuple(usable)
        return tuple(nic for nic in usable if nic.rail in {gpu.index for gpu in self.gpus})


@dataclass(frozen=True)
class Speed:
    """Bus bandwidth for infinite payloads, the time of an empty one, and NCCL's names of algorithm and network."""

    gb_per_s: float
    latency_seconds: float
    algorithm: str
    network: str

    def seconds(self, size_bytes: int, factor: float) -> float:
        """Return the time of one operation; ``factor`` is bus bandwidth over algorithm bandwidth."""
        return self.latency_seconds + size_bytes * factor / self.gb_per_s / 1e9


def _allowed(name: str, hca_filter: str | None) -> bool:
    """Return whether ``NCCL_IB_HCA`` allows a device: prefixes, exact names after ``=``, all others after ``^``.

    Ports are ignored.
    """
    if not hca_filter:
        return True
    exact, refused = "=" in hca_filter[:2], hca_filter.startswith("^")
    names = [part.partition(":")[0] for part in hca_filter.lstrip("^=").split(",")]
    matches = name in names if exact else any(name.startswith(prefix) for prefix in names)
    return matches != refused


def speed(places: Sequence[Place]) -> Speed:
    """Return the speed of the communicator of all ``places``."""
    if len(places) == 1:
        algorithm, rate = _within(places[0])
        return Speed(rate, _WITHIN_SECONDS, algorithm, "")
    latency = _WITHIN_SECONDS + _STEP_SECONDS * math.log2(len(places))
    count = min(len(place.nics) for place in places)
    if not count:
        return Speed(_SOCKET_GB_PER_S, latency, "RING", "Socket")
    rate = min(nic.duplex_gb_per_s for place in places for nic in place.nics)
    ranks = sum(len(place.gpus) for place in places)
    if ranks == len(places):
        return Speed(rate * _RAIL_REACHED, latency, "RING", "IB")
    algorithm, within = min(map(_within, places), key=lambda each: each[1])
    tree = _TREE_REACHED * count * rate * (ranks - 1) / ranks * (2 if len(places) == 2 else 1)
    ring = min(_RING_REACHED * count * rate, *map(_ring, places))
    best = max((min(within, tree), "NVLS_TREE" if algorithm == "NVLS" else "TREE"), (ring, "RING"))
    return Speed(best[0], latency, best[1], "IB")


def _within(place: Place) -> tuple[str, float]:
    """Return the algorithm within the node, and its bus bandwidth."""
    if len(place.gpus) == 1:
        return "RING", math.inf
    switched = place.gpus[0].model.nvlink_peer == "switch" and place.gpus[0].model.fabric
    if switched and len(place.gpus) >= _LEAST_NVLS_GPUS and _on(place, "NCCL_NVLS_ENABLE") and _peer_to_peer(place):
        return "NVLS", _NVLS_SHARE * min(map(_nvlink, place.gpus))
    return "RING", _ring(place)


def _ring(place: Place) -> float:
    if len(place.gpus) == 1:
        return math.inf
    nvlink = _RING_SHARE * min(map(_nvlink, place.gpus)) if _peer_to_peer(place) else 0.0
    return nvlink or _PCIE_SHARE * min(gpu.width * _PCIE_GB_PER_S[gpu.model.gen] for gpu in place.gpus)


def _nvlink(gpu: Gpu) -> float:
    return len(links_up(gpu)) * float(gpu.model.nvlink_gb_per_s) * (1 - gpu.nvlink_slow_percent / 100)


def _on(place: Place, name: str) -> bool:
    return place.environment.get(name, "1") != "0"


def _peer_to_peer(place: Place) -> bool:
    return place.environment.get("NCCL_P2P_DISABLE", "0") != "1"

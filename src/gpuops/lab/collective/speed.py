"""The speed of the hardware model: the bus bandwidth of one communicator, from its GPUs' links and its NICs' rates.

Sources: T4 and T5 are published runs. NCCL's rings reach .77 of a GPU's NVLink rate (V100, A100 and H100 alike), NVLS
all of it (H100: 480 of 478 GB/s); a PCIe hop through the host reaches half of one direction. Between nodes the caps are
Ring g·r and Tree g·r·(n-1)/n, twice that for two nodes, with .95 and .98 of them reached.

NCCL's three protocols trade latency for bandwidth: LL carries 4 of 8 bytes and LL128 120 of 128, without the fences
that SIMPLE needs. What LL128 and LL save of the latency is our own choice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuops.lab.model import PCIE_GB_PER_S, Gpu, Nic, Node
from gpuops.lab.topology import links_up

_RING_SHARE, _NVLS_SHARE, _PCIE_SHARE = 0.77, 1.004, 0.5
_RING_REACHED, _TREE_REACHED, _RAIL_REACHED = 0.95, 0.98, 0.96
_SHARP_REACHED = 0.93
_LEAST_NVLS_GPUS = 5
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


_PROTOCOLS = (("LL", 0.3, 0.5), ("LL128", 0.55, 120 / 128), ("SIMPLE", 1.0, 1.0))


@dataclass(frozen=True)
class Speed:
    """Bus bandwidth for infinite payloads, the time of an empty one, and NCCL's names of algorithm and network.

    Both are those of the protocol SIMPLE.
    """

    gb_per_s: float
    latency_seconds: float
    algorithm: str
    network: str

    def seconds(self, size_bytes: int, factor: float) -> float:
        """Return the time of one operation; ``factor`` is bus bandwidth over algorithm bandwidth."""
        return self._fastest(size_bytes, factor)[0]

    def protocol(self, size_bytes: int, factor: float) -> str:
        """Return the protocol that NCCL chooses: the fastest one."""
        return self._fastest(size_bytes, factor)[1]

    def _fastest(self, size_bytes: int, factor: float) -> tuple[float, str]:
        moving = size_bytes * factor / self.gb_per_s / 1e9
        return min((self.latency_seconds * wait + moving / rate, name) for name, wait, rate in _PROTOCOLS)


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
    choices = [(min(within, tree), "NVLS_TREE" if algorithm == "NVLS" else "TREE"), (ring, "RING")]
    if collnet(places) == "works":
        reduced = _SHARP_REACHED * 2 * count * rate * (ranks - 1) / ranks
        choices.append((min(within, reduced), "NVLS" if algorithm == "NVLS" else "COLLNET_DIRECT"))
    best = max(choices)
    return Speed(best[0], latency, best[1], "IB")


def collnet(places: Sequence[Place]) -> str:
    """Return how NCCL's attempt to use SHARP ends: works or fails; none if it is not asked to, or has no plugin."""
    states = {place.node.behaviour.sharp for place in places}
    if len(places) < 2 or "none" in states or any(p.environment.get("NCCL_COLLNET_ENABLE") != "1" for p in places):
        return "none"
    return "fails" if "fails" in states else "works"


def multicast(place: Place) -> bool | None:
    """Return whether NCCL finds multicast on the GPUs of a host; None if it does not look."""
    if len(place.gpus) == 1 or not _on(place, "NCCL_NVLS_ENABLE"):
        return None
    model = place.gpus[0].model
    return model.nvlink_peer == "switch" and model.fabric and place.node.behaviour.multicast


def _within(place: Place) -> tuple[str, float]:
    """Return the algorithm within the node, and its bus bandwidth."""
    if len(place.gpus) == 1:
        return "RING", math.inf
    if multicast(place) and len(place.gpus) >= _LEAST_NVLS_GPUS and _peer_to_peer(place):
        slow = 1 - place.node.behaviour.multicast_slow_percent / 100
        return "NVLS", _NVLS_SHARE * slow * min(map(_nvlink, place.gpus))
    return "RING", _ring(place)


def _ring(place: Place) -> float:
    if len(place.gpus) == 1:
        return math.inf
    nvlink = _RING_SHARE * min(map(_nvlink, place.gpus)) if _peer_to_peer(place) else 0.0
    return nvlink or _PCIE_SHARE * min(gpu.width * PCIE_GB_PER_S[gpu.model.gen] for gpu in place.gpus)


def _nvlink(gpu: Gpu) -> float:
    return len(links_up(gpu)) * float(gpu.model.nvlink_gb_per_s) * (1 - gpu.nvlink_slow_percent / 100)


def _on(place: Place, name: str) -> bool:
    return place.environment.get(name, "1") != "0"


def _peer_to_peer(place: Place) -> bool:
    return place.environment.get("NCCL_P2P_DISABLE", "0") != "1"

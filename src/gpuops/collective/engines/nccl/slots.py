"""Rank slots: which process on which node is which rank of a group, and how much data its ranks move."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from gpuops.bandwidth import GIB, min_payload_bytes
from gpuops.collective.engines import Load
from gpuops.isolation.fabric import Fabric, FabricNode
from gpuops.isolation.rounds import RankGroup

_SPARE_BYTES = 2 * GIB
"""Memory reserved for NCCL's own buffers: 5 to 10 MiB per channel and peer, and NVLS' multicast buffers."""
_VARIANTS: Mapping[str, Mapping[str, str]] = {
    "": {},
    "ring": {"NCCL_NVLS_ENABLE": "0"},
    "no-p2p": {"NCCL_P2P_DISABLE": "1"},
}


@dataclass(frozen=True)
class RankSlot:
    """One rank: a process on ``node`` that uses ``gpu`` and ``nics``, with ``environment`` added to its own."""

    rank: int
    node: str
    gpu: int
    nics: tuple[str, ...]
    environment: Mapping[str, str] = field(hash=False)

    @property
    def name(self) -> str:
        """The name as a part: ``gpu017:gpu3``."""
        return f"{self.node}:gpu{self.gpu}"


Party = tuple[RankSlot, ...]
"""The ranks of one group, in order."""


def seats(group: RankGroup, fabric: Fabric, environment: Mapping[str, str] = MappingProxyType({})) -> Party:
    """Return the ranks of ``group``, in the order of its nodes; raise `LookupError` with what a node lacks.

    ``environment`` is added to that of the group's variant.

    NCCL reads its NIC settings once per process, so a rank on other NICs needs another process. Groups of one rail
    share their processes from round to round, and so do groups of whole nodes, which may use every NIC of the fabric.
    """
    variant = {**_VARIANTS[group.variant], **environment}
    places = [(node, *place) for node in group.nodes for place in _on(fabric.nodes[node], group)]
    if len(places) < 2:
        raise LookupError(f"{', '.join(group.nodes)}: a group of {len(places)} GPUs moves no data")
    return tuple(RankSlot(rank, *place, variant) for rank, place in enumerate(places))


def _on(node: FabricNode, group: RankGroup) -> Iterator[tuple[int, tuple[str, ...]]]:
    every = tuple(nic.name for nic in node.nics)
    if group.rail is None:
        yield from ((gpu, every) for gpu in group.gpus or node.gpus)
        return
    place = next((k for k, nic in enumerate(node.nics) if nic.rail == group.rail), None)
    if place is None or place >= len(node.gpus):
        raise LookupError(f"{node.name} has no NIC and GPU on rail {group.rail}")
    yield node.gpus[place], (every[place],)


def payload_bytes(load: Load, ranks: int, free_bytes: int) -> int:
    """Return the bytes that each of ``ranks`` moves, as nccl-tests counts them, limited to what fits.

    The size is that of the load, or the one that can be judged. ``free_bytes`` is the minimum of free memory among its
    GPUs; each rank needs a send and a receive buffer.
    """
    desired = load.size_bytes or min_payload_bytes(ranks)
    unit = 4 if load.operation in ("all_reduce", "send_recv") else 4 * ranks
    room = max(free_bytes - _SPARE_BYTES, free_bytes // 8) // 2
    return max(min(desired, room) // unit, 1) * unit

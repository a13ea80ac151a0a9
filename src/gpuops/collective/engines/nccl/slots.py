"""Seats: which process of which node is which rank of a group, and how much its ranks move."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gpuops.bandwidth import GIB, min_payload_bytes
from gpuops.collective.engines import Load
from gpuops.isolation.fabric import Fabric, FabricNode
from gpuops.isolation.rounds import RankGroup

_SPARE_BYTES = 2 * GIB
"""Left to NCCL for its own buffers: some 5 to 10 MiB a channel and peer, and NVLS' multicast buffers."""
_VARIANTS: Mapping[str, Mapping[str, str]] = {
    "": {},
    "ring": {"NCCL_NVLS_ENABLE": "0"},
    "no-p2p": {"NCCL_P2P_DISABLE": "1"},
}


@dataclass(frozen=True)
class RankSlot:
    """One rank: a process on ``node`` that holds ``gpu`` and may use ``nics``, under ``environment`` besides."""

    rank: int
    node: str
    gpu: int
    nics: tuple[str, ...]
    environment: Mapping[str, str] = field(hash=False)

    @property
    def name(self) -> str:
        """As parts are named: ``gpu017:gpu3``."""
        return f"{self.node}:gpu{self.gpu}"


Party = tuple[RankSlot, ...]
"""The ranks of one group, in order."""


def seats(group: RankGroup, fabric: Fabric) -> Party:
    """The ranks of ``group``, node by node in its order; `LookupError` says what a node lacks.

    NCCL reads its pins once a process, so whoever is pinned to another NIC is another process: the groups of one rail
    share theirs from round to round, and so do those of whole nodes, which may use every NIC of the fabric.
    """
    variant = _VARIANTS[group.variant]
    places = [(node, *place) for node in group.nodes for place in _on(fabric.nodes[node], group)]
    if len(places) < 2:
        raise LookupError(f"{', '.join(group.nodes)}: a group of {len(places)} GPUs moves nothing")
    return tuple(RankSlot(rank, *place, variant) for rank, place in enumerate(places))


def _on(node: FabricNode, group: RankGroup) -> Iterator[tuple[int, tuple[str, ...]]]:
    every = tuple(nic.name for nic in node.nics)
    if group.rail is None:
        yield from ((gpu, every) for gpu in group.gpus or node.gpus)
        return
    place = next((k for k, nic in enumerate(node.nics) if nic.rail == group.rail), None)
    if place is None or place >= len(node.gpus):
        raise LookupError(f"{node.name} has no NIC with a GPU on rail {group.rail}")
    yield node.gpus[place], (every[place],)


def payload_bytes(load: Load, ranks: int, free_bytes: int) -> int:
    """The size, as nccl-tests counts it, that each of ``ranks`` moves: the load's, or what can be judged, if it fits.

    ``free_bytes`` is the least free memory among its GPUs; a buffer is needed on either side.
    """
    desired = load.size_bytes or min_payload_bytes(ranks)
    unit = 4 if load.operation in ("all_reduce", "send_recv") else 4 * ranks
    room = max(free_bytes - _SPARE_BYTES, free_bytes // 8) // 2
    return max(min(desired, room) // unit, 1) * unit

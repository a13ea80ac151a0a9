"""Groups of ranks that run at the same time, and their results."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Scope = Literal["node", "rail", "pair", "group"]
"""``node``: the GPUs of one node. ``rail``: one GPU and one NIC of each member. ``pair``, ``group``: all of them."""
Variant = Literal["", "ring", "no-p2p"]
"""``ring`` runs without NVLink SHARP (``NCCL_NVLS_ENABLE=0``), ``no-p2p`` without NVLink (``NCCL_P2P_DISABLE=1``)."""
Trouble = Literal["", "hang", "unreachable", "wrong", "socket", "no-gpudirect", "error"]
"""Why a result has no usable speed: ranks did not arrive in time, no connection was made, the sums are wrong, NCCL fell
back to TCP on a fabric that has RDMA or copied through host memory because GPUDirect RDMA does not work, or the engine
failed for another reason."""


@dataclass(frozen=True)
class RankGroup:
    """One communicator: its nodes in ring order; on ``rail`` it uses one GPU and one NIC of each node.

    ``gpus`` names the participating GPUs within a node; empty means all of them.
    """

    nodes: tuple[str, ...]
    rail: int | None = None
    gpus: tuple[int, ...] = ()
    variant: Variant = ""


@dataclass(frozen=True)
class GroupResult:
    """The result of one group: its bus bandwidth in GB/s, as nccl-tests defines it, and the spread of iterations.

    ``gb_per_s`` is None if nothing was measured. ``absent`` are the members that did not arrive: names of nodes, or of
    GPUs (``gpu017:gpu3``) if the engine can tell them apart.
    """

    group: RankGroup
    gb_per_s: float | None
    trouble: Trouble = ""
    absent: tuple[str, ...] = ()
    spread: float = 0.0
    detail: str = ""


_MAX_WORDS = 2


def own_words(results: Iterable[GroupResult]) -> tuple[str, ...]:
    """Return what the nodes said about the results, the most frequent first, two at most."""
    words = Counter(result.detail for result in results if result.detail)
    return tuple(detail for detail, _ in words.most_common(_MAX_WORDS))


@dataclass(frozen=True)
class Round:
    """Groups that share no part of a node, so they can run at once; ``why`` is shown as progress."""

    scope: Scope
    groups: tuple[RankGroup, ...]
    why: str = ""

    @functools.cached_property
    def group_indices(self) -> dict[tuple[str, int | None], tuple[int, ...]]:
        """The indices of the groups that contain a node, by its name and the groups' rail."""
        indices: dict[tuple[str, int | None], tuple[int, ...]] = {}
        for index, group in enumerate(self.groups):
            for node in group.nodes:
                key = (node, group.rail)
                indices[key] = (*indices[key], index) if key in indices else (index,)
        return indices

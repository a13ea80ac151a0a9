"""The links that transfers share on their way between units, and whether those of one round disturb one another."""

from __future__ import annotations

import functools
import statistics
from collections import Counter
from collections.abc import Mapping

from gpuops.isolation.evidence import Measured
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.rounds import RankGroup

_UNKNOWN_SHARE = 16
"""If leaves are unknown, transfers of up to this fraction of the nodes hardly meet on one link."""

SharedLink = str | int
"""The links of a leaf to the spine, by the leaf's name; if it is unknown, all links of a rail, by its number."""


@functools.lru_cache(maxsize=1 << 16)
def shared_links(group: RankGroup, fabric: Fabric) -> frozenset[SharedLink]:
    """Return the links that the group shares with others: those of its leaves to the spine, none inside a unit.

    If a leaf is unknown, those of the whole unit; if that is unknown, too, all that its rail crosses.
    """
    units = {fabric.unit_of.get(node) for node in group.nodes}
    if len(units) == 1 and None not in units:
        return frozenset()
    rails = fabric.rails if group.rail is None else (group.rail,)
    return frozenset(
        fabric.leaf_of.get((node, rail), fabric.unit_of.get(node, rail)) for node in group.nodes for rail in rails
    )


def fits(loads: Mapping[SharedLink, int], fabric: Fabric) -> bool:
    """Return True if no transfer is disturbed by others on the same links; few of a fleet meet on an unknown fabric."""
    share = max(1, len(fabric.nodes) // _UNKNOWN_SHARE)
    return all(load <= (1 if isinstance(link, str) else share) for link, load in loads.items())


@functools.lru_cache(maxsize=48)
def loads_of(measured: Measured, fabric: Fabric) -> Counter[SharedLink]:
    """Return how many groups of the round use each shared link."""
    groups = (group for group in measured.round.groups if len(group.nodes) > 1)
    return Counter(link for group in groups for link in shared_links(group, fabric))


def is_crowded(group: RankGroup, measured: Measured, fabric: Fabric) -> bool:
    """Return True if the group crosses a link that carries more transfers of its round than most links do."""
    loads = loads_of(measured, fabric)
    links = shared_links(group, fabric)
    return bool(links) and max(loads[link] for link in links) > _usual_load(measured, fabric)


@functools.lru_cache(maxsize=48)
def _usual_load(measured: Measured, fabric: Fabric) -> int:
    return statistics.median_low(loads_of(measured, fabric).values())

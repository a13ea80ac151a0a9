"""The results of each node and NIC of a measurement with their spread, for trends and own expectations; pure.

A result counts for a part only if no other part that is blamed took part in it, so a slow partner does not lower it.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gpuops.isolation.evidence import Blame, Evidence
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.rounds import RankGroup, Scope


@dataclass(frozen=True)
class Figures:
    """The number of results, and in GB/s of bus bandwidth their median and their ends.

    ``spread`` is the median absolute deviation from the median, as a fraction of it; None with fewer than two results.
    For normally distributed results, 1.48 times that is the standard deviation (P. J. Rousseeuw and C. Croux,
    Alternatives to the median absolute deviation, JASA 88, 1993).
    """

    results: int
    median_gb_per_s: float
    lowest_gb_per_s: float
    highest_gb_per_s: float
    spread: float | None

    @classmethod
    def of(cls, rates: Sequence[float]) -> Figures:
        """Return the figures of at least one result."""
        median = statistics.median(rates)
        deviation = statistics.median(abs(rate - median) for rate in rates) / median if len(rates) > 1 else None
        return cls(len(rates), median, min(rates), max(rates), deviation)


def to_document(evidence: Evidence, blame: Blame) -> dict[str, Any]:
    """Return the figures of nodes, NICs and the fleet as plain data.

    ``fleet`` has an entry for each scope and number of nodes, of the results without a blamed part. Parts without a
    result are omitted.
    """
    blamed = {part for each in blame.blamed for part in (each.part, *each.alternatives)}
    parts = _Parts(evidence.fabric)
    nodes: dict[str, list[float]] = {}
    nics: dict[tuple[str, int], list[float]] = {}
    fleet: dict[tuple[Scope, int], list[float]] = {}
    for scope, group, rate in _results(evidence):
        guilty = blamed & set(parts.of_group(group)) if blamed else blamed
        if not guilty:
            fleet.setdefault((scope, len(group.nodes)), []).append(rate)
        if scope == "node":
            nodes.setdefault(group.nodes[0], []).append(rate)
        for node in group.nodes if group.rail is not None else ():
            if guilty <= set(parts.of_node(node, group.rail)):
                nics.setdefault((node, group.rail or 0), []).append(rate)
    return {
        "nodes": [{"node": node, **_entry(rates, blamed, parts.within(node))} for node, rates in nodes.items()],
        "nics": [
            {
                "node": node,
                "nic": parts.nic(node, rail),
                "rail": rail,
                **_entry(rates, blamed, parts.of_node(node, rail)),
            }
            for (node, rail), rates in sorted(nics.items())
        ],
        "fleet": [
            {"scope": scope, "nodes": size, **asdict(Figures.of(rates))} for (scope, size), rates in fleet.items()
        ],
    }


def _entry(rates: Sequence[float], blamed: Collection[str], parts: Iterable[str]) -> dict[str, Any]:
    return {**asdict(Figures.of(rates)), "blamed": any(part in blamed for part in parts)}


def _results(evidence: Evidence) -> Iterator[tuple[Scope, RankGroup, float]]:
    """Yield the results of whole groups, without those of some GPUs or with a feature off."""
    for measured in evidence.rounds:
        for figure in measured.figures:
            group = figure.group
            if figure.gb_per_s and not (figure.trouble or group.gpus or group.variant):
                yield measured.round.scope, group, figure.gb_per_s


class _Parts:
    """The parts of a fabric that groups use, by their names."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._unit = {node: unit for unit, nodes in fabric.units.items() for node in nodes}

    def of_group(self, group: RankGroup) -> Iterator[str]:
        """Yield nodes and GPUs; between nodes also NICs and leaves, and across units the uplinks and the spine."""
        if len(group.nodes) == 1:
            yield from self.within(group.nodes[0])
            return
        across = len({self._unit.get(node) for node in group.nodes}) > 1
        yield from ["spine"] if across else []
        for node in group.nodes:
            yield from self.of_node(node, group.rail)
            for nic in self._fabric.nodes[node].nics:
                if group.rail in (None, nic.rail):
                    yield f"leaf:{nic.leaf}"
                    yield from [f"unit:{self._unit.get(node)}/rail{nic.rail}"] if across else []

    def within(self, node: str) -> Iterator[str]:
        """Yield a node and its GPUs."""
        yield node
        yield from (f"{node}:gpu{gpu}" for gpu in self._fabric.nodes[node].gpus)

    def of_node(self, node: str, rail: int | None) -> Iterator[str]:
        """Yield a node with its GPUs and NICs; on a rail, only with those of the rail."""
        own = self._fabric.nodes[node]
        place = next((k for k, nic in enumerate(own.nics) if nic.rail == rail), None)
        chosen = slice(None) if place is None else slice(place, place + 1)
        yield node
        yield from (f"{node}:{nic.name}" for nic in own.nics[chosen])
        yield from (f"{node}:gpu{gpu}" for gpu in own.gpus[chosen])

    def nic(self, node: str, rail: int) -> str:
        """Return the name of the NIC of a node on a rail."""
        nic = self._fabric.nodes[node].nic(rail)
        return nic.name if nic else ""

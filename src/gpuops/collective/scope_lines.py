"""A measurement summarized by scope: how many parts are healthy, their GB/s, and what was expected; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuops.bandwidth import ExpectedBandwidth
from gpuops.collective.heat_map import WELL, HeatMap, HeatmapRow
from gpuops.isolation.evidence import Evidence
from gpuops.isolation.rounds import GroupResult, RankGroup

Expected = Mapping[RankGroup, ExpectedBandwidth]


@dataclass(frozen=True)
class ScopeLine:
    """One scope: how many parts or groups were measured, how many are healthy, their GB/s, and what was expected."""

    label: str
    measured: int
    well: int
    low: float | None
    high: float | None
    expected: ExpectedBandwidth | None

    @property
    def all_low(self) -> bool:
        """True if even the best result is below the expectation's floor, so that something is wrong with all of them.

        Published healthy machines are above that floor. It blames no part by itself.
        """
        return self.high is not None and self.expected is not None and self.high < self.expected.floor_gb_per_s


def scope_lines(evidence: Evidence, heat: HeatMap, expected: Expected) -> Iterator[ScopeLine]:
    """Yield a line for single nodes, for all rails together, for pairs of full nodes, and for each size of group."""
    within, rails = _rows(heat)
    examples = example_groups(heat)
    if within:
        yield _parts("within nodes", within, expected.get(examples[None]))
    if rails:
        yield _parts("rails", rails, expected.get(examples[rails[0].rail]))
    by_size: dict[int, list[GroupResult]] = {}
    for measured in evidence.rounds:
        for figure in measured.figures if measured.round.scope in {"pair", "group"} else ():
            by_size.setdefault(len(figure.group.nodes), []).append(figure)
    for size, figures in sorted(by_size.items()):
        yield _groups(size, figures, expected.get(figures[-1].group))


def example_groups(heat: HeatMap) -> dict[int | None, RankGroup]:
    """Return a group that stands for all single nodes (None), and one that stands for all rails, by its rail."""
    within, rails = _rows(heat)
    groups = {row.rail: RankGroup(heat.nodes[:1]) for row in within}
    return groups | {row.rail: RankGroup(heat.nodes[:2], rail=row.rail) for row in rails[:1]}


def _rows(heat: HeatMap) -> tuple[list[HeatmapRow], list[HeatmapRow]]:
    """Return the rows within nodes, and those of rails."""
    return [row for row in heat.rows if row.rail is None], [row for row in heat.rows if row.rail is not None]


def _parts(label: str, rows: Sequence[HeatmapRow], expected: ExpectedBandwidth | None) -> ScopeLine:
    cells = [cell for row in rows for cell in row.cells.values()]
    return _line(label, len(cells), [cell.gb_per_s for cell in cells if cell.gb_per_s and cell.well], expected)


def _groups(size: int, figures: Sequence[GroupResult], expected: ExpectedBandwidth | None) -> ScopeLine:
    rates = [figure.gb_per_s for figure in figures if figure.gb_per_s is not None]
    label = "pairs of nodes" if size == 2 else f"group of {size}" if len(figures) == 1 else f"groups of {size}"
    return _line(label, len(figures), [rate for rate in rates if rate >= WELL * max(rates)], expected)


def _line(label: str, measured: int, rates: Sequence[float], expected: ExpectedBandwidth | None) -> ScopeLine:
    return ScopeLine(label, measured, len(rates), min(rates, default=None), max(rates, default=None), expected)

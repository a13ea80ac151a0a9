"""A chart of points on two logarithmic axes in plain characters, 80 columns wide or less."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

_ROWS, _LEFT = 14, 9
"""Rows of the chart, and columns of its vertical axis."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_TICK_COLUMNS = 9


def format_size(size_bytes: float) -> str:
    """Return a size in three digits: ``1 KiB``, ``43.7 MiB``."""
    power = min(max(int(math.log2(max(size_bytes, 1)) / 10), 0), len(_UNITS) - 1)
    return f"{size_bytes / 1024**power:.3g} {_UNITS[power]}"


@dataclass(frozen=True)
class LogChart:
    """The axes: sizes in bytes to the right, rates upwards; both logarithmic, and more than 0."""

    sizes: tuple[float, float]
    rates: tuple[float, float]
    columns: int

    @classmethod
    def over(cls, points: Sequence[tuple[float, float]], width: int) -> LogChart:
        """Return the axes that hold ``points``, in ``width`` columns with the vertical axis."""
        sizes, rates = zip(*points, strict=True)
        return cls((min(sizes), max(sizes)), (min(rates), max(rates)), max(20, width - _LEFT - 2))

    def column(self, size: float) -> int:
        """Return the column of a size."""
        return _place(size, self.sizes, self.columns)

    def row(self, rate: float) -> int:
        """Return the row of a rate, counted from below."""
        return _place(rate, self.rates, _ROWS)

    def lines(
        self,
        points: Sequence[tuple[float, float]],
        line: Callable[[float], float] | None = None,
        mark: float | None = None,
    ) -> Iterator[str]:
        """Yield the chart with a ``*`` at each point, dots along ``line``, and a bar at the size ``mark``."""
        cells = [[" "] * self.columns for _ in range(_ROWS)]
        if mark is not None:
            for row in cells:
                row[self.column(mark)] = "|"
        for column in range(self.columns if line else 0):
            rate = line(self._size_at(column)) if line else 0.0
            if self.rates[0] <= rate <= self.rates[1]:
                cells[self.row(rate)][column] = "."
        for size, rate in points:
            cells[self.row(rate)][self.column(size)] = "*"
        ticks = self._rate_ticks()
        for number in reversed(range(_ROWS)):
            yield f"{ticks.get(number, ''):>{_LEFT}} |{''.join(cells[number])}".rstrip()
        yield f"{'':>{_LEFT}} +{'-' * self.columns}"
        yield f"{'':>{_LEFT}}  {self._size_ticks()}".rstrip()

    def _size_at(self, column: int) -> float:
        low, high = map(math.log, self.sizes)
        return math.exp(low + (high - low) * column / max(self.columns - 1, 1))

    def _rate_ticks(self) -> dict[int, str]:
        """Return the powers of ten on the vertical axis by row, or its ends if it holds less than two of them."""
        low, high = self.rates
        powers = [10.0**power for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]
        return {self.row(rate): f"{rate:.3g}" for rate in (powers if len(powers) > 1 else self.rates)}

    def _size_ticks(self) -> str:
        """Return the powers of two below the horizontal axis, as many as fit."""
        low, high = math.ceil(math.log2(self.sizes[0])), math.floor(math.log2(self.sizes[1]))
        step = max(1, math.ceil((high - low) * _TICK_COLUMNS / self.columns))
        text = ""
        for power in range(low, high + 1, step):
            label, column = format_size(2.0**power), self.column(2.0**power)
            if column + len(label) <= self.columns and (not text or column > len(text)):
                text = f"{text:<{column}}{label}"
        return text


def _place(value: float, ends: tuple[float, float], count: int) -> int:
    low, high = map(math.log, ends)
    share = (math.log(value) - low) / (high - low) if high > low else 0.0
    return min(max(round(share * (count - 1)), 0), count - 1)

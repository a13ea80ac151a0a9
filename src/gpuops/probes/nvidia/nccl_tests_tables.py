"""Tables of nccl-tests as printed, in text or with ``-J`` in JSON.

``#  Rank  0 Group  0 Pid  901 on      gpu01 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3`` is rank 0 on the host gpu01.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gpuops.probes.nvidia.launched_output import plain_lines, without_nccl

_START = re.compile(r"#.*\bnThread \d+ nGpus \d+ |# Using devices|# nccl-tests version |# Collective test starting")
_RANK = re.compile(
    r"#\s+Rank\s+(\d{1,7})\s+(?:Group\s+\d+\s+)?Pid\s+\d+ on\s+(\S+) device\s+(\d{1,4}) \[(\S+)\] (\S.*)", re.ASCII
)
_RANK_START = re.compile(r"#\s+Rank ")
_BOUNDS = re.compile(r"# Out of bounds values\s*: (\d{1,18}) (\w+)", re.ASCII)
_AVERAGE = re.compile(r"# Avg bus bandwidth\s*: (\S+)")
_ERROR = re.compile(r"# error: (.+)")
_WITHIN_ROW = re.compile(r"#\s+(?:NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY: |rank=\d).*")
"""alltoallv_perf can print these lines between the cells of a row."""
_HEADER = ("size", "count", "type")
HALF = ("time", "algbw", "busbw")
CHECKS = ("#wrong", "error")
CPU_TIME = "cputime"
NO_VALUE = "N/A"
_OPERATIONS = frozenset(("sum", "prod", "max", "min", "avg", "mulsum", "none"))
_PER_ITERATION = ("i_min", "i_max", "i_p99", "i_cv%")
_NUMERIC = frozenset((*HALF, CPU_TIME, *CHECKS, *_PER_ITERATION, "root", "#iters"))
_NOT_FINITE = re.compile(r"[-+]?(?:nan|inf)", re.IGNORECASE)
"""Cells of ``error`` in old releases, if a result is not a number or infinitely wrong; C prints ``-nan``, too."""
_NUMBER = re.compile(r"-?\d{1,20}(?:\.\d{1,20})?(?:[eE][-+]?\d{1,3})?", re.ASCII)
_TIMESTAMP = re.compile(r"\b(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)\b", re.ASCII)
_BLANK_HALF = re.compile(r"(?<=\S)\s{24,}")
"""nccl-tests prints 32 blanks for a missing half; between two cells of a row there are at most 13."""


@dataclass(frozen=True, slots=True)
class PrintedRank:
    """One rank: its host and GPU as listed by nccl-tests; ``bus`` has at least the bus number of the PCI address."""

    rank: int
    host: str
    device: int
    bus: str
    name: str


@dataclass(frozen=True)
class Table:
    """One run as printed: its cells by column, and the lines around the table.

    ``out_of_bounds`` and ``average`` are its last lines, None if the run did not get that far. ``error`` is NCCL's last
    error, which also a run without a failure may report. ``all_ranks`` is False if a process had more ranks than fit
    into its list, which nccl-tests then ends with an ellipsis.
    """

    columns: tuple[str, ...] = ()
    cells: tuple[tuple[str, ...], ...] = ()
    ranks: tuple[PrintedRank, ...] = ()
    out_of_bounds: tuple[int, str] | None = None
    average: str | None = None
    error: str = ""
    all_ranks: bool = True

    @property
    def check_column(self) -> str | None:
        """Name of the check column in this release."""
        return next((name for name in CHECKS if name in self.columns), None)

    @property
    def not_finite(self) -> int:
        """The number of errors in the check column that are not finite: these results are wrong, whatever it counts."""
        checks = [number for number, name in enumerate(self.columns) if name in CHECKS]
        return sum(bool(_NOT_FINITE.fullmatch(cells[number])) for cells in self.cells for number in checks)

    def half(self, cells: tuple[str, ...], *, in_place: bool) -> dict[str, str]:
        """Return the cells of one half of a row, by column."""
        first, width = _first_half(self.columns)
        start = first + width if in_place else first
        return dict(zip(self.columns[start : start + width], cells[start : start + width], strict=True))


def read_tables(text: str) -> list[Table]:
    """Return every run with a header, as printed."""
    if text.lstrip().startswith("{"):
        return _tables_of_report(text)
    tables: list[_Draft] = []
    for line in plain_lines(text):
        draft = tables[-1] if tables else None
        if draft is None or draft.ends_before(line.strip()):
            tables.append(draft := _Draft())
        draft.read(_WITHIN_ROW.sub("", without_nccl(line)))
    return [draft.table() for draft in tables if draft.columns]


def finite(text: str | None) -> float | None:
    """Return the number in a cell; None if it is not a finite number."""
    value = float(text) if text and _NUMBER.fullmatch(text) else math.nan
    return value if math.isfinite(value) else None


class _Draft:
    """Draft of a run while its lines are read."""

    def __init__(self) -> None:
        self.columns: tuple[str, ...] = ()
        self.cells: list[tuple[str, ...]] = []
        self.ranks: list[PrintedRank] = []
        self.out_of_bounds: tuple[int, str] | None = None
        self.average: str | None = None
        self.error = ""
        self.all_ranks = True
        self._open: tuple[str, ...] = ()

    def ends_before(self, line: str) -> bool:
        """Return True if ``line`` belongs to the next run."""
        return bool(self.columns and (_START.match(line) or _RANK.match(line) or _columns(line)))

    def read(self, line: str) -> None:
        """Read one line; ignore lines of a shell or a launcher."""
        bare = line.strip()
        if bare.startswith("#"):
            self._end_row()
            self._comment(bare)
        elif self.columns and bare:
            self._extend_row(line)

    def _comment(self, line: str) -> None:
        self.columns = self.columns or _columns(line)
        self.all_ranks = self.all_ranks and not (_RANK_START.match(line) and line.endswith("..."))
        if rank := _RANK.match(line):
            self.ranks.append(PrintedRank(int(rank[1]), rank[2], int(rank[3]), rank[4], rank[5]))
        elif bounds := _BOUNDS.match(line):
            self.out_of_bounds = int(bounds[1]), bounds[2]
        elif average := _AVERAGE.match(line):
            self.average = average[1]
        elif error := _ERROR.match(line):
            self.error = error[1]

    def _extend_row(self, line: str) -> None:
        """Add the cells of a line to the row that they continue or begin; a row has as many cells as columns."""
        cells = tuple(_TIMESTAMP.sub(r"\1T\2", line).split())
        if _begins_row(cells):
            self._end_row()
            self._open = _with_blanks(line, _with_operation(cells, self.columns), self.columns)
        elif self._open and all(_is_value(cell) or _is_time(cell) for cell in cells):
            self._open += cells
        if len(self._open) >= len(self.columns):
            self._keep(self._open)
            self._open = ()

    def _end_row(self) -> None:
        """Keep a row that ended after its out-of-place half."""
        first, width = _first_half(self.columns) if self._open else (0, 0)
        if self._open and len(self._open) == first + width:
            self._keep(self._open + (NO_VALUE,) * (len(self.columns) - first - width))
        self._open = ()

    def _keep(self, cells: tuple[str, ...]) -> None:
        if len(cells) == len(self.columns) and _is_row(cells, self.columns):
            self.cells.append(cells)

    def table(self) -> Table:
        """Return the finished run; a row that the end of the text truncated is not part of it."""
        rows, ranks = tuple(self.cells), tuple(self.ranks)
        return Table(self.columns, rows, ranks, self.out_of_bounds, self.average, self.error, self.all_ranks)


def _columns(line: str) -> tuple[str, ...]:
    """Return the names of the columns if ``line`` is a complete header."""
    names = tuple(line.removeprefix("#").split())
    halves = names.count("busbw") == 2 and 2 in (names.count("time"), names.count(CPU_TIME))
    return names if names[:3] == _HEADER and halves and sum(map(names.count, CHECKS)) == 2 else ()


def _first_half(columns: tuple[str, ...]) -> tuple[int, int]:
    """Return the index and the width of the out-of-place half."""
    name = HALF[0] if HALF[0] in columns else CPU_TIME
    first = columns.index(name)
    return first, columns.index(name, first + 1) - first


def _begins_row(cells: tuple[str, ...]) -> bool:
    return len(cells) > 2 and all(_is_whole(cell) for cell in cells[:2]) and cells[2][0].isalpha()


def _with_operation(cells: tuple[str, ...], columns: tuple[str, ...]) -> tuple[str, ...]:
    """Add the empty name of an operation that does not reduce, where a release prints only blanks for it."""
    blank = columns[3] == "redop" and finite("".join(cells[3:4])) is not None and cells[2] not in _OPERATIONS
    return (*cells[:3], "", *cells[3:]) if blank else cells


def _with_blanks(line: str, cells: tuple[str, ...], columns: tuple[str, ...]) -> tuple[str, ...]:
    """Fill the out-of-place half if it was printed as blanks."""
    first, width = _first_half(columns)
    gap = _BLANK_HALF.search(line)
    if not gap or first - len(line[: gap.start()].split()) not in (0, 1 if "" in cells else 0):
        return cells
    return (*cells[:first], *(NO_VALUE,) * width, *cells[first:])


def _is_row(cells: tuple[str, ...], columns: tuple[str, ...]) -> bool:
    pairs = zip(columns, cells, strict=True)
    valid = all(
        _is_value(cell) if name in CHECKS else cell == NO_VALUE or finite(cell) is not None
        for name, cell in pairs
        if name in _NUMERIC
    )
    return valid and all(_is_whole(cell) for cell in cells[:2])


def _is_value(cell: str) -> bool:
    return cell == NO_VALUE or finite(cell) is not None or _NOT_FINITE.fullmatch(cell) is not None


def _is_whole(cell: str) -> bool:
    return cell.isascii() and cell.isdigit()


def _is_time(cell: str) -> bool:
    return bool(_TIMESTAMP.fullmatch(cell.replace("T", " ")))


def _tables_of_report(text: str) -> list[Table]:
    """Return the run in a JSON report; the first releases with ``-J`` misspelt two keys.

    A run that fails closes the report early, in the middle of a result.
    """
    try:
        report = json.loads(text)
        results = [result for result in report["results"] if {"out_of_place", "in_place"} <= result.keys()]
        columns, rows = _columns_of_report(results), [_cells_of_result(result) for result in results]
        ranks = tuple(map(_rank_of_device, report.get("config", {}).get("devices", ())))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []
    return [Table(columns, tuple(row for row in rows if _is_row(row, columns)), ranks, *_summary(report))]


def _columns_of_report(results: Iterable[Any]) -> tuple[str, ...]:
    halves = [half for result in results for half in (result["out_of_place"], result["in_place"]) if half]
    time = CPU_TIME if any("cpu_time" in half for half in halves) else HALF[0]
    return (*_HEADER, "redop", "root", *(time, *HALF[1:], CHECKS[0]) * 2)


def _cells_of_result(result: dict[str, Any]) -> tuple[str, ...]:
    lead = (str(result[name]).strip() for name in (*_HEADER, "redop", "root"))
    return (*lead, *_cells_of_half(result["out_of_place"]), *_cells_of_half(result["in_place"]))


def _cells_of_half(half: dict[str, Any] | None) -> tuple[str, ...]:
    if half is None:
        return (NO_VALUE,) * 4
    values = (half.get("time", half.get("cpu_time")), half["alg_bw"], half["bus_bw"], half["nwrong"])
    return tuple(NO_VALUE if value is None else str(value) for value in values)


def _rank_of_device(device: dict[str, Any]) -> PrintedRank:
    words = (str(device[name]) for name in ("hostname", "device_hex", "device_info"))
    host, bus, name = words
    return PrintedRank(int(device["rank"]), host, int(device["device"]), bus, name)


def _summary(report: dict[str, Any]) -> tuple[tuple[int, str] | None, str | None, str]:
    bounds, errors = report.get("out_of_bounds"), report.get("errors")
    average = report.get("average_bus_bandwidth") or report.get("average_bus_bandwidith")
    rate = (average.get("bandwidth") or average.get("bandwidith")) if isinstance(average, dict) else None
    out_of_bounds = _bounds(bounds) if isinstance(bounds, dict) else None
    error = str(errors[0]) if isinstance(errors, list) and errors else ""
    return out_of_bounds, None if rate is None else str(rate), error


def _bounds(bounds: dict[str, Any]) -> tuple[int, str] | None:
    count = str(bounds.get("count"))
    return (int(count), "OK" if bounds.get("okay") == "true" else "FAILED") if _is_whole(count) else None

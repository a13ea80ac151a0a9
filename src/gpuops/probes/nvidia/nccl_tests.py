"""Parser of the output of nccl-tests (all_reduce_perf and others).

``8589934592  2147483648  float  sum  -1  31262  274.77  480.85  0  31245  274.92  481.11  0`` is 480.85 GB/s out of
place and 481.11 GB/s in place, with 8 GiB. The columns differ between releases (``error`` or ``#wrong``, with or
without ``redop``, ``root`` and ``#iters``), so a row is read by the header above it. Launchers put a tag in front of
each line, NCCL logs between the lines (`gpuops.probes.nvidia.nccl_log`), and a log may contain several runs.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from gpuops.probing import Unknown

_TAG = re.compile(r"^(?:\[[^\]\s]*\]<std(?:out|err)>: ?| *\d+: )", re.ASCII)  # mpirun --tag-output, srun --label
_START = re.compile(r"#.*\bnThread \d+ nGpus \d+ |# Using devices")
_RANK = re.compile(
    r"#\s+Rank\s+(\d{1,7})\s+(?:Group\s+\d+\s+)?Pid\s+\d+ on (\S+) device\s+(\d{1,4}) \[(\S+)\] (\S.*)", re.ASCII
)
_BOUNDS = re.compile(r"# Out of bounds values : (\d{1,18}) (\w+)", re.ASCII)
_AVERAGE = re.compile(r"# Avg bus bandwidth\s*: (\S+)")
_HEADER = ("size", "count", "type")
_HALF = ("time", "algbw", "busbw")
_CHECKS = ("#wrong", "error")
_NO_VALUE = "N/A"
_NUMBER = re.compile(r"-?\d{1,20}(?:\.\d{1,20})?(?:[eE][-+]?\d{1,3})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class PrintedRank:
    """One rank: its host and GPU as listed by nccl-tests; ``bus`` has at least the bus number of the PCI address."""

    rank: int
    host: str
    device: int
    bus: str
    name: str


@dataclass(frozen=True, slots=True)
class Timing:
    """One half of a row: the mean of its iterations; bandwidths in GB/s as defined in nccl-tests' doc/PERFORMANCE.md.

    ``check`` is the number of wrong values (``#wrong``) or the largest error (old releases); None if not checked or not
    reported.
    """

    time_us: float | None
    algbw_gb_per_s: float | None
    busbw_gb_per_s: float | None
    check: float | None


@dataclass(frozen=True, slots=True)
class Row:
    """One size, measured out of place and in place."""

    size_bytes: int
    count: int
    out_of_place: Timing
    in_place: Timing


@dataclass(frozen=True)
class Table:
    """One run as printed: its cells by column, and the lines around the table.

    ``out_of_bounds`` and ``average`` are its last lines, None if the run did not get that far.
    """

    columns: tuple[str, ...] = ()
    cells: tuple[tuple[str, ...], ...] = ()
    ranks: tuple[PrintedRank, ...] = ()
    out_of_bounds: tuple[int, str] | None = None
    average: str | None = None

    @property
    def check_column(self) -> str | None:
        """Name of the check column in this release."""
        return next((name for name in _CHECKS if name in self.columns), None)

    def half(self, cells: tuple[str, ...], *, in_place: bool) -> dict[str, str]:
        """Return the cells of one half of a row, by column."""
        first = self.columns.index("time")
        width = self.columns.index("time", first + 1) - first
        start = first + width if in_place else first
        return dict(zip(self.columns[start : start + width], cells[start : start + width], strict=True))


@dataclass(frozen=True)
class NcclTestsRun:
    """One run of a test; not ``complete`` if its last lines are missing (truncated, killed or hung)."""

    rows: tuple[Row, ...]
    ranks: tuple[PrintedRank, ...]
    counts_wrong: bool
    out_of_bounds: int | None
    average_gb_per_s: float | None
    complete: bool

    @property
    def largest(self) -> Row | None:
        """Last row of the largest size, which is the one to judge: averages include sizes that are too small."""
        return max(reversed(self.rows), key=lambda row: row.size_bytes, default=None)

    @property
    def wrong(self) -> bool:
        """True if results were wrong: by a count in a row, or by the verdict of old releases in the last lines."""
        checks = [half.check for row in self.rows for half in (row.out_of_place, row.in_place)]
        return bool(self.out_of_bounds) or (self.counts_wrong and any(checks))


def parse_nccl_tests(text: str) -> tuple[NcclTestsRun, ...] | Unknown:
    """Return the runs in a log that have at least one row; `Unknown` if there is none."""
    runs = tuple(_run(table) for table in read_tables(text) if table.cells)
    return runs or Unknown("found no results of nccl-tests")


def read_tables(text: str) -> list[Table]:
    """Return every run with a header, as printed."""
    tables: list[_Draft] = []
    for line in text.splitlines():
        bare = _TAG.sub("", line).strip()
        draft = tables[-1] if tables else None
        if draft is None or draft.ends_before(bare):
            tables.append(draft := _Draft())
        draft.read(bare)
    return [draft.table() for draft in tables if draft.columns]


class _Draft:
    """Draft of a run while its lines are read."""

    def __init__(self) -> None:
        self.columns: tuple[str, ...] = ()
        self.cells: list[tuple[str, ...]] = []
        self.ranks: list[PrintedRank] = []
        self.out_of_bounds: tuple[int, str] | None = None
        self.average: str | None = None

    def ends_before(self, line: str) -> bool:
        """Return True if ``line`` belongs to the next run."""
        return bool(self.columns and (_START.match(line) or _RANK.match(line) or _columns(line)))

    def read(self, line: str) -> None:
        """Read one line; ignore lines of NCCL or a shell."""
        if not line.startswith("#"):
            cells = tuple(line.split())
            if self.columns and len(cells) == len(self.columns) and _is_row(cells, self.columns):
                self.cells.append(cells)
            return
        self.columns = self.columns or _columns(line)
        if rank := _RANK.match(line):
            self.ranks.append(PrintedRank(int(rank[1]), rank[2], int(rank[3]), rank[4], rank[5]))
        elif bounds := _BOUNDS.match(line):
            self.out_of_bounds = int(bounds[1]), bounds[2]
        elif average := _AVERAGE.match(line):
            self.average = average[1]

    def table(self) -> Table:
        """Return the finished run."""
        return Table(self.columns, tuple(self.cells), tuple(self.ranks), self.out_of_bounds, self.average)


def _columns(line: str) -> tuple[str, ...]:
    """Return the names of the columns if ``line`` is a complete header."""
    names = tuple(line.removeprefix("#").split())
    halves = names.count("time") == names.count("busbw") == 2
    return names if names[:3] == _HEADER and halves and sum(map(names.count, _CHECKS)) == 2 else ()


def _is_row(cells: tuple[str, ...], columns: tuple[str, ...]) -> bool:
    numeric = (*_HEADER[:2], *_HALF, *_CHECKS, "root", "#iters")
    pairs = zip(columns, cells, strict=True)
    whole = all(cell.isascii() and cell.isdigit() for cell in cells[:2])
    return whole and all(cell == _NO_VALUE or _finite(cell) is not None for name, cell in pairs if name in numeric)


def _finite(text: str | None) -> float | None:
    value = float(text) if text and _NUMBER.fullmatch(text) else math.nan
    return value if math.isfinite(value) else None


def _run(table: Table) -> NcclTestsRun:
    average = _finite(table.average)
    bounds = table.out_of_bounds
    wrong = None if bounds is None else bounds[0] or int(bounds[1] != "OK")
    rows = tuple(_row(table, cells) for cells in table.cells)
    complete = average is not None and bounds is not None
    return NcclTestsRun(rows, table.ranks, table.check_column == "#wrong", wrong, average, complete)


def _row(table: Table, cells: tuple[str, ...]) -> Row:
    return Row(int(cells[0]), int(cells[1]), _timing(table, cells), _timing(table, cells, in_place=True))


def _timing(table: Table, cells: tuple[str, ...], *, in_place: bool = False) -> Timing:
    half = table.half(cells, in_place=in_place)
    return Timing(*(_finite(half.get(name)) for name in (*_HALF, str(table.check_column))))

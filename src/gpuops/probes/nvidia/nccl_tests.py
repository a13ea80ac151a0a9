"""Parser of the output of nccl-tests (all_reduce_perf and others).

``8589934592  2147483648  float  sum  -1  31262  274.77  480.85  0  31245  274.92  481.11  0`` is 480.85 GB/s out of
place and 481.11 GB/s in place, with 8 GiB. The columns differ between releases and options (``error`` or ``#wrong``,
with or without ``redop``, ``root``, ``#iters``; ``cputime`` with ``-C``, ``timestamp`` with ``-S``, ``i_min`` with
``-I``), so a row is read by the header above it. Launchers put a tag in front of each line, NCCL logs between and
within the lines (`gpuops.probes.nvidia.nccl_log`), and a log may contain several runs. The JSON report of ``-J`` is
read too.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuops.probes.nvidia.nccl_tests_tables import HALF, PrintedRank, Table, finite, read_tables
from gpuops.probing import Unknown

__all__ = ["NcclTestsRun", "PrintedRank", "Row", "Table", "Timing", "parse_nccl_tests", "read_tables"]


@dataclass(frozen=True, slots=True)
class Timing:
    """One half of a row: the mean of its iterations; bandwidths in GB/s as defined in nccl-tests' doc/PERFORMANCE.md.

    ``time_us`` is None if the column contains CPU time (``-C``). A half that was not measured has no values.
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
class NcclTestsRun:
    """One run of a test; not ``complete`` if its last lines are missing (truncated, killed or hung).

    ``error`` is NCCL's last error, if the run reported one. ``all_ranks`` is False if the list of ranks ends with an
    ellipsis because a process had more of them than fit.
    """

    rows: tuple[Row, ...]
    ranks: tuple[PrintedRank, ...]
    counts_wrong: bool
    out_of_bounds: int | None
    average_gb_per_s: float | None
    complete: bool
    error: str = ""
    all_ranks: bool = True

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


def _run(table: Table) -> NcclTestsRun:
    average = finite(table.average)
    bounds = table.out_of_bounds
    wrong = None if bounds is None else bounds[0] or int(bounds[1] != "OK")
    wrong = wrong or table.not_finite or wrong  # NaN exceeds no threshold, so old releases do not count it
    rows = tuple(_row(table, cells) for cells in table.cells)
    complete = average is not None and bounds is not None
    counts_wrong = table.check_column == "#wrong"
    return NcclTestsRun(rows, table.ranks, counts_wrong, wrong, average, complete, table.error, table.all_ranks)


def _row(table: Table, cells: tuple[str, ...]) -> Row:
    return Row(int(cells[0]), int(cells[1]), _timing(table, cells), _timing(table, cells, in_place=True))


def _timing(table: Table, cells: tuple[str, ...], *, in_place: bool = False) -> Timing:
    half = table.half(cells, in_place=in_place)
    return Timing(*(finite(half.get(name)) for name in (*HALF, str(table.check_column))))

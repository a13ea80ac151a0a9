"""Output of a launched program, without what launchers, terminals and NCCL's log add to its lines.

``[1,0]<stdout>:#  Rank  0 …`` is the line ``#  Rank  0 …``, and ``  float     sum      -1gpu01:71:71 [0] NCCL INFO …``
is ``  float     sum      -1``, the beginning of a row that NCCL interrupted.
"""

from __future__ import annotations

import re

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
_DATE = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_LABELS = (
    rf"{_DATE} ",  # kubectl logs --timestamps
    r"\[pod/[^\]\s]*\] ",  # kubectl logs --prefix
    r"[^<>#]{0,99}<std(?:out|err)>: ?",  # mpirun --tag-output and --timestamp-output
    r" *\d{1,7}: ",  # srun --label
    r"(?:\[\d{1,7}\] |[\w.-]{1,255}(?:: | *\| ))(?=\s*(?:#|\d))",  # mpiexec -prepend-rank, pdsh, clush, compose
)
_LABEL = re.compile(f"^(?:{'|'.join(_LABELS)})", re.ASCII)
_MOST_LABELS = 4
_LOGGED = re.compile(r":\d+:\d+ \[-?\d+\] (?:\S{1,300} ){0,2}?NCCL [A-Z]+ |NCCL version \d")
_DATED = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.\d]*\] $")  # NCCL_DEBUG_TIMESTAMP_LEVELS
_CELL = re.compile(r"-1|N/A|\d+(?:\.\d+)?e[+-]\d+|\d+\.\d+|\d", re.ASCII)


def plain_lines(text: str) -> list[str]:
    """Return the lines without colours, carriage returns, and the labels and times of launchers."""
    return [_without_labels(line) for line in _ANSI.sub("", text).splitlines()]


def _without_labels(line: str) -> str:
    for _ in range(_MOST_LABELS):
        bare = _LABEL.sub("", line)
        if bare == line:
            break
        line = bare
    return line


def without_nccl(line: str) -> str:
    """Return what a program printed before NCCL's log began in the same line; empty if NCCL printed the whole line.

    nccl-tests ends a row's line only after its last cell, and NCCL reports each operation in between. NCCL's host name
    then follows the last cell without a space: ``-1`` is the root, ``0`` the number of wrong values.
    """
    log = _LOGGED.search(line)
    if not log:
        return line
    before = line[: log.start()]
    host = "" if log[0].startswith("NCCL") else before[before.rfind(" ") + 1 :]
    cells = before.removesuffix(host)
    dated = _DATED.search(cells)
    if dated or not host or not cells.strip():
        return cells[: dated.start()] if dated else cells
    cell = _CELL.match(host)
    return cells + cell[0] if cell else cells


def only_nccl(line: str) -> str:
    """Return NCCL's log in a line without the cells in front of it; a line without its usual beginning is returned."""
    return line[len(without_nccl(line)) :] or line

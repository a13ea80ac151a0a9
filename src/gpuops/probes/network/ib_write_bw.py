"""Parser of perftest's ``ib_write_bw``: bandwidth of RDMA writes between two ports.

``65536  5000  391.12  390.54  0.744898`` is an average of 390.54 Gbit/s with messages of 65536 bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuops.probing import Unknown

# beside the plain form there are those with a service level, the CPU's use, and each of two ports
_HEADER = re.compile(
    r"#bytes\s+(?:#sl\s+)?#iterations\s+BW peak\[(\S+)\]\s+BW average\[\1\]\s+MsgRate\[Mpps\]"
    r"(?:\s+CPU_Util\[%\])?(?:\s+(?:BW|MsgRate) Port[12]\[\S+\])*"
)
_RATE = r"(\d{1,9}\.\d{1,9})"
_ROW = re.compile(
    rf"(\d{{1,12}})\s+(?:\d{{1,2}}\s+)?(\d{{1,12}})\s+{_RATE}\s+{_RATE}\s+{_RATE}(?:\s+\d{{1,9}}\.\d{{1,9}}){{0,4}}",
    re.ASCII,
)
# perftest's MB is 2^20 bytes (its BW_MB); its Gb is 10^9 bits
_GBPS = {"Gb/sec": 1.0, "MB/sec": 8 * 2**20 / 1e9, "MiB/sec": 8 * 2**20 / 1e9, "GB/sec": 8.0}


@dataclass(frozen=True, slots=True)
class WriteRow:
    """One message size: peak and mean bandwidth in Gbit/s."""

    size_bytes: int
    iterations: int
    peak_gbps: float
    average_gbps: float


@dataclass(frozen=True)
class WriteTable:
    """Rows as printed, and the ``unit`` in their header."""

    header: str = ""
    unit: str = ""
    rows: tuple[tuple[str, ...], ...] = ()


def read_table(text: str) -> WriteTable:
    """Return the first header and every row below it: server and client may share a log, with warnings in between."""
    header, unit, rows = "", "", []
    for line in map(str.strip, text.splitlines()):
        header_match = _HEADER.fullmatch(line)
        row_match = _ROW.fullmatch(line)
        if header_match and not header:
            header, unit = line, header_match[1]
        elif row_match and header:
            rows.append(tuple(row_match.groups()))
    return WriteTable(header, unit, tuple(rows))


def parse_ib_write_bw(text: str) -> tuple[WriteRow, ...] | Unknown:
    """Parse the output of ib_write_bw, one row per message size and side; `Unknown` if it measured nothing."""
    table = read_table(text)
    if table.unit not in _GBPS:
        return Unknown("ib_write_bw printed no header" if not table.unit else f'unknown unit "{table.unit}"')
    scale = _GBPS[table.unit]
    rows = tuple(WriteRow(int(r[0]), int(r[1]), float(r[2]) * scale, float(r[3]) * scale) for r in table.rows)
    return rows or Unknown("ib_write_bw printed no results")

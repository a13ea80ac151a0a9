"""Parser of the CSV of ``nvidia-smi --query-gpu=… --format=csv``, and of the queries for processes and retired pages.

Below the header ``index, power.draw [W]``, the row ``0, 71.35 W`` is a ``power.draw`` of 71.35 W for GPU 0.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass

from gpuops.probes.nvidia.nvidia_smi.record import bare, read_text
from gpuops.probing import Unknown

_HEADING = re.compile(r"([A-Za-z][\w.]*)(?: \[([^\]]+)\])?")
_NUMBER = re.compile(r"(-?[0-9]{1,15}(?:\.[0-9]{1,9})?)(?: (\S+))?")


@dataclass(frozen=True)
class CsvRow:
    """One row: the text of each field by name, and the units from the header (``power.draw: W``).

    Names are without units. ``cells`` contains the text as printed, including ``[N/A]``.
    """

    cells: dict[str, str]
    units: dict[str, str]

    def text(self, name: str) -> str | None:
        """Return the text of one field; None if nvidia-smi does not report it or it was not queried."""
        return read_text(self.cells.get(name, ""))

    def number(self, name: str) -> float | None:
        """Return the number in one field, in the unit of the header; None for any other text or unit."""
        match = _NUMBER.fullmatch(bare(self.cells.get(name, "")))
        if match is None or (match[2] and match[2] != self.units.get(name)):
            return None
        return float(match[1])


def parse_gpu_csv(text: str) -> tuple[CsvRow, ...] | Unknown:
    """Parse the rows below a header with names and units; a row with more or fewer cells makes all of it `Unknown`."""
    if not text.strip():
        return Unknown("nvidia-smi printed no CSV")
    if not text.endswith("\n"):
        return Unknown("the CSV of nvidia-smi is truncated: its last line is incomplete")
    try:
        header, *rows = [row for row in csv.reader(io.StringIO(text.strip()), skipinitialspace=True) if row]
    except csv.Error as error:
        return Unknown(f"the CSV of nvidia-smi cannot be read: {error}")
    headings = [_HEADING.fullmatch(cell.strip()) for cell in header]
    names = [h[1] for h in headings if h]
    if len(set(names)) != len(header):
        return Unknown(f'the CSV of nvidia-smi has no header of distinct names: "{", ".join(header)[:80]}"')
    uneven = next((row for row in rows if len(row) != len(names)), None)
    if uneven is not None:
        return Unknown(f"the CSV of nvidia-smi has a row with {len(uneven)} cells below a header with {len(names)}")
    units = {h[1]: h[2] for h in headings if h and h[2]}
    return tuple(CsvRow({n: c.strip() for n, c in zip(names, row, strict=True)}, units) for row in rows)

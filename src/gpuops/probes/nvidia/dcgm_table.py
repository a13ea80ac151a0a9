"""The table that ``dcgmi diag`` prints for people: tests by section, with warnings broken over several rows.

``| GPU Memory | Fail - GPU: 0 |`` is a failed test of GPU 0; DCGM 4 prints ``| memory | Fail |`` and then one row
``GPU0: Fail`` for each GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_ROW = re.compile(r"\|(?P<left>[^|]*)\|(?P<right>.*?)\|?\s*")
_SECTION = re.compile(r"[|+]-+ +(\w[\w ]*?) +-+")
_END = re.compile(r"\+-+\+-+\+")
_RESULT = re.compile(r"(Pass|Fail|Warn|Skip|Not Run)(?: - (?:GPUs?:? ?(?P<gpus>[\d, ]+)|All))?", re.IGNORECASE)
_OF_GPU = re.compile(r"GPU ?(?P<gpu>\d{1,3}): (?P<word>\w[\w ]*)")
_GPU = re.compile(r"GPU ?(\d{1,3})\b")
_TEXT_WIDTH = 45
"""Characters of a text in one row; the next row goes on in the middle of a word."""


@dataclass
class TableTest:
    """One test: its results by GPU (None: all, or the node), and texts, each with the GPU that it names."""

    name: str
    results: dict[int | None, str] = field(default_factory=dict)
    texts: list[tuple[int | None, str]] = field(default_factory=list)


@dataclass
class _Reading:
    tests: list[TableTest] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)
    section: str = ""
    text: list[str] | None = None
    keeps: bool = False

    def close(self) -> None:
        """Add the text that ends here to its test."""
        if self.text is not None and self.keeps:
            whole = "".join(self.text).strip()
            gpu = _GPU.search(whole)
            self.tests[-1].texts.append((int(gpu[1]) if gpu else None, whole))
        self.text = None


def is_table(text: str) -> bool:
    """Return True if ``text`` contains the head of such a table."""
    return "+====" in text and "| Diagnostic " in text


def read_table(text: str) -> tuple[list[TableTest], str] | None:
    """Return the tests and DCGM's version; None if the table is truncated or a row has an unknown result."""
    lines = text.partition("+====")[2].splitlines()[1:]
    rows = [line.rstrip() for line in lines if line.lstrip()[:1] in ("|", "+")]
    if not rows or not _END.fullmatch(rows[-1]):
        return None
    reading = _Reading()
    for row in rows:
        section = _SECTION.match(row)
        if section or row.startswith("+"):
            reading.close()
            reading.section = section[1] if section else ""
        elif not _read_row(reading, row):
            return None
    return reading.tests, reading.metadata.get("DCGM Version", "")


def _read_row(reading: _Reading, row: str) -> bool:
    """Read one row; return False if it is neither a result nor a text."""
    match = _ROW.fullmatch(row)
    if match is None:
        return False
    left, right = match["left"].strip(), match["right"]
    if reading.section == "Metadata":
        reading.metadata[left] = right.strip()
    elif not left and reading.text is not None:
        reading.text.append(right[1 : _TEXT_WIDTH + 1])
    elif left.startswith(("Warning", "Error", "Info")):
        _open_text(reading, left, right)
    else:
        return _read_result(reading, left, right.strip())
    return True


def _open_text(reading: _Reading, left: str, right: str) -> None:
    reading.close()
    reading.keeps = not left.startswith("Info")
    named = f"{left.partition(':')[2].strip()} " if ":" in left else ""
    reading.text = [named, right[1 : _TEXT_WIDTH + 1]]
    if left.startswith("Error") and (not reading.tests or reading.tests[-1].name != reading.section):
        reading.tests.append(TableTest(reading.section, {None: "fail"}))


def _read_result(reading: _Reading, left: str, right: str) -> bool:
    reading.close()
    if left:
        reading.tests.append(TableTest(left))
    gpu, whole = _OF_GPU.fullmatch(right), _RESULT.fullmatch(right)
    if not reading.tests or (gpu is None and whole is None):
        return False
    results = reading.tests[-1].results
    if gpu:
        results.pop(None, None)  # the row of the test says the same of all its GPUs
        results[int(gpu["gpu"])] = _word(gpu["word"])
    elif whole:
        gpus: Sequence[int | None] = [int(n) for n in re.findall(r"\d+", whole["gpus"] or "")] or [None]
        results.update(dict.fromkeys(gpus, _word(whole[1])))
    return True


def _word(text: str) -> str:
    return text.strip().lower().replace(" ", "_")


def results_of(tests: Sequence[TableTest]) -> Iterator[tuple[str, str, int | None, tuple[str, ...]]]:
    """Yield test, status, GPU and texts of each result; a text that names no GPU belongs to each bad result."""
    for test in tests:
        for gpu, status in test.results.items():
            own = [text for named, text in test.texts if named == gpu or (status != "pass" and None in (named, gpu))]
            yield test.name, status, gpu, tuple(own)

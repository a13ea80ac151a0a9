"""Live table of nodes at work: one row per node, those that have been at it for the longest first."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TextIO

from gpuops.errors import format_count
from gpuops.events import GateDone, GateStarted, HostActivity
from gpuops.report.page import clean, columns_of

_NARROWEST = 20
_MOST_ROWS = 16
_OTHER_LINES = 6
"""Lines of the terminal that stay for what was printed before."""
_FIRST_WORDS_SECONDS = 60.0
_NEXT_WORDS_SECONDS = 300.0


@dataclass
class _Row:
    """What a node is doing: the ``gate``, the last words about it, and since when."""

    gate: str
    since: float
    text: str = ""


@dataclass
class LiveTable:
    """The nodes that are at a gate; an event of a node changes its row."""

    rows: dict[str, _Row] = field(default_factory=dict)
    _next_words: dict[str, float] = field(default_factory=dict)

    def note(self, event: GateStarted | HostActivity | GateDone) -> str:
        """Change the row of the event's node; return a line if it has been waited for long, now and then, else ""."""
        if isinstance(event, GateStarted):
            self.rows[event.host] = _Row(event.gate, time.monotonic())
        elif isinstance(event, GateDone):
            self.rows.pop(event.host, None)
        elif row := self.rows.get(event.host):
            row.text = format_activity(event)
        if isinstance(event, HostActivity) and self._is_due(event):
            return f"{event.host}: {format_activity(event)}"
        return ""

    def _is_due(self, event: HostActivity) -> bool:
        seconds = event.seconds or 0.0
        if seconds < _FIRST_WORDS_SECONDS:
            self._next_words.pop(event.host, None)
            return False
        if seconds < self._next_words.get(event.host, 0.0):
            return False
        self._next_words[event.host] = seconds + _NEXT_WORDS_SECONDS
        return True

    def lines(self, columns: int, most: int) -> Iterator[str]:
        """Yield ``gpu07   provision    7:12   waiting for it to come back: 7 of 30 min``, at most ``most`` lines."""
        now, width = time.monotonic(), max(map(len, self.rows), default=0)
        oldest = sorted(self.rows, key=lambda node: self.rows[node].since)
        shown = oldest if len(oldest) <= most else oldest[: most - 1]
        for node in shown:
            row = self.rows[node]
            seconds = int(now - row.since)
            line = f"{clean(node):<{width}}   {row.gate:<11}  {seconds // 60:>3}:{seconds % 60:02}   {clean(row.text)}"
            yield line.rstrip()[: max(_NARROWEST, columns)]
        if hidden := oldest[len(shown) :]:
            gates = Counter(self.rows[node].gate for node in hidden)
            at_gates = ", ".join(f"{count} at {gate}" for gate, count in gates.most_common())
            yield f"and {format_count(len(hidden), 'more node')}: {at_gates}"[: max(_NARROWEST, columns)]


def block(table: LiveTable | None, status: tuple[str, str], stream: TextIO) -> tuple[str, str]:
    """Return the rows of a table, a line each, and a status line, whose first part is cut to fit the terminal."""
    room, (text, end) = max(_NARROWEST, columns_of(stream) - 4), status
    most = max(1, min(_MOST_ROWS, shutil.get_terminal_size().lines - _OTHER_LINES))
    rows = "".join(f"  {row}\n" for row in table.lines(room, most)) if table else ""
    line = (clean(text)[: room - len(end)] + end)[:room]
    return rows, f"  {line}" if line else ""


def format_activity(event: HostActivity) -> str:
    """Return ``waiting for it to come back: 7 of 30 min``, or the activity alone if it is no wait."""
    if event.seconds is None or event.most_seconds is None:
        return event.text
    return f"{event.text}: {event.seconds / 60:.0f} of {event.most_seconds / 60:.0f} min"

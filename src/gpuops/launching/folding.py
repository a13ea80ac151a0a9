"""Equal lines of many ranks as one line, while they arrive; pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

WINDOW_SECONDS = 0.5
"""A line waits so long for the same line of other sources, which all wait for the one before it."""
_MOST_WAITING = 4096


@dataclass
class _Entry:
    number: int
    text: str
    since: float
    sources: dict[str, None] = field(default_factory=dict)


class Folder:
    """Lines of ``count`` sources; each comes out once, with the sources that printed it, in the order of each source.

    ``show`` gets the sources in order of arrival, and the text.
    """

    def __init__(self, count: int, show: Callable[[tuple[str, ...], str], None]) -> None:
        self._count = count
        self._show = show
        self._waiting: deque[_Entry] = deque()
        self._last: dict[str, int] = {}
        self._number = 0

    def add(self, source: str, text: str, now: float) -> None:
        """Take one line of ``source``; join it to an equal one that no other line of this source follows."""
        entry = next(self._joinable(source, text), None)
        if entry is None:
            self._number += 1
            entry = _Entry(self._number, text, now)
            self._waiting.append(entry)
        entry.sources[source] = None
        self._last[source] = entry.number

    def _joinable(self, source: str, text: str) -> Iterator[_Entry]:
        after = self._last.get(source, 0)
        return (entry for entry in self._waiting if entry.number > after and entry.text == text)

    def flush(self, now: float) -> None:
        """Show the lines that wait for nobody any more, and too many lines in any case."""
        while self._waiting and self._is_due(self._waiting[0], now):
            entry = self._waiting.popleft()
            self._show(tuple(entry.sources), entry.text)

    def _is_due(self, entry: _Entry, now: float) -> bool:
        late = now - entry.since >= WINDOW_SECONDS
        return late or len(entry.sources) >= self._count or len(self._waiting) > _MOST_WAITING

    def close(self) -> None:
        """Show all that is left."""
        self.flush(float("inf"))

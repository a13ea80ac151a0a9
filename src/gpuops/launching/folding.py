"""Equal lines of many ranks as one line, while they arrive; pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

WINDOW_SECONDS = 0.5
"""A line waits so long for the same line of other sources, which all wait for the one before it."""
REPEAT_SECONDS = 5.0
"""A line that other sources printed before waits so long: on a busy machine, ranks start over some seconds."""
_MOST_WAITING = 4096
_MOST_SHOWN = 1024


@dataclass
class _Entry:
    number: int
    text: str
    since: float
    is_repeat: bool
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
        self._shown: dict[str, set[str]] = {}
        self._number = 0

    def add(self, source: str, text: str, now: float) -> None:
        """Take one line of ``source``; join it to an equal one that no other line of this source follows."""
        entry = next(self._joinable(source, text), None)
        if entry is None:
            self._number += 1
            entry = _Entry(self._number, text, now, self._is_repeat(source, text))
            self._waiting.append(entry)
        entry.sources[source] = None
        self._last[source] = entry.number

    def _is_repeat(self, source: str, text: str) -> bool:
        """Return True if only others have printed a line; it is a new one if ``source`` itself repeats it."""
        if source in self._shown.get(text, ()):
            del self._shown[text]
        return text in self._shown

    def _joinable(self, source: str, text: str) -> Iterator[_Entry]:
        after = self._last.get(source, 0)
        return (entry for entry in self._waiting if entry.number > after and entry.text == text)

    def flush(self, now: float) -> None:
        """Show the lines that wait for nobody any more, and too many lines in any case.

        Repeated lines hold up no other sources, and their own sources only until these have something else to show.
        """
        held, sources = list[_Entry](), set[str]()
        while self._waiting and (self._waiting[0].is_repeat or self._is_due(self._waiting[0], now)):
            is_due = self._is_due(self._waiting[0], now)
            entry = self._waiting.popleft()
            if is_due and sources.isdisjoint(entry.sources):
                self._put_out([entry])
            elif is_due:
                self._put_out([*held, entry])
                held, sources = [], set()
            else:
                held.append(entry)
                sources.update(entry.sources)
        self._waiting.extendleft(reversed(held))

    def _put_out(self, entries: Iterable[_Entry]) -> None:
        for entry in entries:
            self._show(tuple(entry.sources), entry.text)
            sources = self._shown.pop(entry.text, set()).union(entry.sources)
            if len(sources) < self._count:
                self._shown[entry.text] = sources
        while len(self._shown) > _MOST_SHOWN:
            del self._shown[next(iter(self._shown))]

    def _is_due(self, entry: _Entry, now: float) -> bool:
        late = now - entry.since >= (REPEAT_SECONDS if entry.is_repeat else WINDOW_SECONDS)
        others = self._shown.get(entry.text, ()) if entry.is_repeat else ()
        return late or len(entry.sources) + len(others) >= self._count or len(self._waiting) > _MOST_WAITING

    def close(self) -> None:
        """Show all that is left."""
        self.flush(float("inf"))

"""The end of a terminal: a table of the nodes at work and a status line, drawn again each second."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from gpuops.events import GateDone, GateStarted, HostActivity
    from gpuops.report.live import LiveTable

_EVERY_SECONDS = 1.0


class LiveBlock:
    """The last lines of stderr if it is a terminal; otherwise nothing is drawn."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._lock = threading.RLock()  # the log comes from other threads
        self._status = ("", "")
        self._rows_drawn = -1  # 0 with a status line alone
        self._table: LiveTable | None = None
        self._closed = threading.Event()

    @property
    def has_rows(self) -> bool:
        """True if nodes are at work in the table."""
        return self._table is not None and bool(self._table.rows)

    @contextmanager
    def out_of_the_way(self) -> Iterator[None]:
        """Remove what is drawn, and draw the table again after something was printed; the status line is gone."""
        with self._lock:
            self._status = ("", "")
            self._erase()
            yield
            if self.has_rows:
                self._draw()

    def show(self, text: str, end: str = "") -> None:
        """Replace the status line by ``text`` and its ``end``, of which the first is cut to fit the terminal."""
        with self._lock:
            self._status = (text, end)
            self._draw()

    def close(self) -> None:
        """Remove everything."""
        with self._lock:
            self._status, self._table = ("", ""), None
            self._closed.set()
            self._erase()

    def note(self, event: GateStarted | HostActivity | GateDone) -> str:
        """Change the row of the event's node; return what is to be said if no table is drawn: a long wait."""
        from gpuops.report.live import LiveTable

        with self._lock:
            if self._table is None:
                self._table, self._closed = LiveTable(), threading.Event()
                threading.Thread(target=self._tick, args=(self._closed,), daemon=True).start()
            said = self._table.note(event)
        return "" if self._is_terminal else said

    def _tick(self, closed: threading.Event) -> None:
        while self._is_terminal and not closed.wait(_EVERY_SECONDS):
            with self._lock:
                if not closed.is_set():
                    self._draw()

    def _erase(self) -> None:
        if self._rows_drawn >= 0:
            click.echo(self._taken_away(), nl=False, err=True)
            self._rows_drawn = -1

    def _taken_away(self) -> str:
        return f"\x1b[{self._rows_drawn}F\x1b[J" if self._rows_drawn > 0 else "\r\x1b[K"

    def _draw(self) -> None:
        from gpuops.report.live import block

        if self._is_terminal:
            rows, status = block(self._table, self._status, sys.stderr)
            click.echo(f"{self._taken_away()}{rows}{status}", nl=False, err=True)
            self._rows_drawn = rows.count("\n") if rows or status else -1

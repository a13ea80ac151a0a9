"""The logs of a job: a file for each rank, and one for each node with what no rank printed by itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuops.errors import OutputError

_LAST_LINES = 20
NODE = "-1"
"""The key of a node's own output, as in ``node/job.py``."""


class Logs:
    """A new directory of logs, which only its owner can enter: what a job prints may be secret.

    Raise `OutputError` if it cannot be created, or exists already.
    """

    def __init__(self, folder: Path, world: int) -> None:
        self.folder = folder
        self._digits = len(str(max(world - 1, 0)))
        self._last: dict[str, deque[str]] = {}
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700)
        except OSError as error:
            raise OutputError(f"{folder}: cannot create it: {(error.strerror or str(error)).lower()}") from error

    @classmethod
    def beside(cls, folder: Path, world: int, number: int = 1) -> Logs:
        """Return logs in ``folder``, or in one of that name with a ``number`` if another job has it already."""
        place = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        try:
            return cls(place, world)
        except OutputError:
            if not place.exists():
                raise
        return cls.beside(folder, world, number + 1)

    def add(self, node: str, lines: Mapping[str, Sequence[str]]) -> None:
        """Append what the ranks of ``node`` printed."""
        for rank, texts in lines.items():
            self._last.setdefault(self._key(node, rank), deque(maxlen=_LAST_LINES)).extend(texts)
            with self._path(node, rank).open("a", encoding="utf-8", errors="surrogateescape") as file:
                file.writelines(f"{text}\n" for text in texts)

    def last_lines(self, node: str, rank: int | None) -> tuple[str, ...]:
        """Return the last lines of a rank, or of the node itself, that are not empty."""
        key = self._key(node, NODE if rank is None else str(rank))
        return tuple(line for line in self._last.get(key, ()) if line.strip())

    def _path(self, node: str, rank: str) -> Path:
        return self.folder / (f"node-{node}.log" if rank == NODE else f"rank-{int(rank):0{self._digits}}.log")

    def _key(self, node: str, rank: str) -> str:
        return f"node {node}" if rank == NODE else rank

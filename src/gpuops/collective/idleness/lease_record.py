"""Records of leases, so that the next run ends those of a run that was killed.

Each lease has a file in the project, ``leases/TOKEN``, which names its nodes. The file is locked while its run lives.
The kernel releases that lock when the run dies, so a record that can be locked belongs to a dead run.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuops.errors import OutputError
from gpuops.files.replacing import open_private, private_directory

_TOKEN = re.compile(r"[0-9a-f]{8}")
_MOST_BYTES = 1 << 20
"""Record of 65,536 nodes with names of 16 bytes."""


@dataclass(frozen=True)
class LeftLease:
    """A lease of a dead run: its record, its ``mode``, and the names of its nodes in Slurm."""

    path: Path
    mode: str
    nodes: tuple[str, ...]

    @property
    def token(self) -> str:
        """The token of the lease."""
        return self.path.name

    def forget(self) -> None:
        """Remove the record, once the lease has ended."""
        self.path.unlink(missing_ok=True)


class LeaseRecord:
    """The record of one lease. Nothing is written until the first node is leased."""

    def __init__(self, folder: Path, token: str) -> None:
        self._path = folder / token
        self._file: int | None = None

    def write(self, mode: str, nodes: Sequence[str]) -> None:
        """Record the nodes, before they are leased; raise `OutputError` if that fails."""
        content = json.dumps({"mode": mode, "nodes": list(nodes)}).encode()
        try:
            if self._file is None:
                self._file = self._create()
            os.pwrite(self._file, content, 0)
            os.ftruncate(self._file, len(content))
        except OSError as error:
            raise OutputError(f"{self._path}: cannot record the lease: {error.strerror}") from error

    def _create(self) -> int:
        """Create the file, which has its name only once it is locked."""
        private_directory(self._path.parent.parent)
        private_directory(self._path.parent)
        draft = self._path.with_name(f".{self._path.name}")
        file = open_private(draft, os.O_RDWR)
        fcntl.flock(file, fcntl.LOCK_EX)
        draft.rename(self._path)
        return file

    def remove(self) -> None:
        """Remove the record, once every node was given back."""
        self._path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Leave the record to the next run."""
        if self._file is not None:
            os.close(self._file)
        self._file = None


@contextlib.contextmanager
def left_behind(folder: Path) -> Iterator[list[LeftLease]]:
    """Hold the records of dead runs, so that no other run ends the same leases at the same time."""
    with contextlib.ExitStack() as stack:
        paths = [path for path in sorted(folder.glob("*")) if _TOKEN.fullmatch(path.name)]
        yield [lease for path in paths if (lease := _read(path, stack))]


def _read(path: Path, stack: contextlib.ExitStack) -> LeftLease | None:
    """Lock a record until ``stack`` ends and return it; None if its run lives, or died before it leased anything."""
    try:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        stack.callback(os.close, file)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        document = json.loads(os.read(file, _MOST_BYTES))
        return LeftLease(path, str(document["mode"]), tuple(map(str, document["nodes"])))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None

"""Claims: only one program at a time decides about a node of a store. The kernel releases those of a dead program."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from gpuops.errors import LockedError, OutputError
from gpuops.files.replacing import open_private, private_directory
from gpuops.project import shortest


class Claims:
    """Context manager for the nodes that this program decides about; each has a locked file in ``folder``.

    Operators with other stores see the lock on the node itself, while it is being changed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}

    def take(self, nodes: Iterable[str], who: str) -> None:
        """Claim all ``nodes`` for ``who``; raise `LockedError` with the holder if one of them is claimed."""
        for node in sorted(nodes):
            self._held[node] = self._open(node)
            try:
                fcntl.flock(self._held[node], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(self._held[node], 1000, 0).decode(errors="replace") or "an unknown process"
                raise LockedError(f"{node}: in use by {holder}; wait for it to finish") from None
            except OSError as error:  # a file system without locks
                raise self._failure(node, error) from error
            self._sign(node, who)

    def drop(self, node: str) -> None:
        """Release the node."""
        os.close(self._held.pop(node))

    def __enter__(self) -> Claims:  # noqa: PYI034 - Self came with Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for node in list(self._held):
            self.drop(node)

    def _sign(self, node: str, who: str) -> None:
        try:
            os.ftruncate(self._held[node], 0)
            os.pwrite(self._held[node], who.encode(), 0)
        except OSError as error:  # a full disk
            raise self._failure(node, error) from error

    def _failure(self, node: str, error: OSError) -> OutputError:
        return OutputError(f"{shortest(self._folder / node)}: cannot claim the node: {error.strerror}")

    def _open(self, node: str) -> int:
        try:
            private_directory(self._folder.parent)
            private_directory(self._folder)
            return open_private(self._folder / node, os.O_RDWR)
        except OSError as error:
            raise self._failure(node, error) from error

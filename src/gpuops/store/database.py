"""A SQLite file that only its owner can read: created with private modes, upgraded, and with errors of gpuops."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from gpuops.errors import LockedError, OutputError
from gpuops.files.replacing import make_private, open_private, private_directory
from gpuops.project import shortest
from gpuops.store.schemas import SCHEMAS

T = TypeVar("T")
_BUSY_SECONDS = 10.0
_READ_ONLY = ("?mode=ro", "?immutable=1")
"""The ends of an address of a file that is only read; the second needs no file beside it."""
_VERSION = len(SCHEMAS)
_OF_A_DAMAGED_ROW = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError),
    zlib.error,
)
"""What the conversion of a row raises if another program, or the disk, changed it."""


class Database:
    """The database in the file at ``path``. A missing file is created; without ``create``, it is then empty.

    With ``copied``, everything happens to a copy in memory. So it does to a file of an older gpuops that cannot be
    written, because it has to be upgraded to be read.

    Several threads may use it, one at a time. Raise `OutputError` if it cannot be used, `LockedError` while another
    program writes.
    """

    def __init__(self, path: Path, *, create: bool = True, copied: bool = False) -> None:
        self.path = path
        self._shown = shortest(path)
        self._turn = threading.RLock()
        with self._translated_errors():
            address = self._address(create=create and not copied)
            self._database = _connect(address)
            is_old = address.endswith(_READ_ONLY) and self._version() < _VERSION
            if copied or is_old:
                self._copy()
            self._write_ahead()
            self._database.execute("PRAGMA foreign_keys = ON")
            self._upgrade()
            self._database.execute(f"PRAGMA query_only = {'ON' if is_old and not copied else 'OFF'}")

    def _address(self, *, create: bool) -> str:
        """Return the URI to open. A file that cannot be written, as on a read-only or full disk, is only read."""
        if not create and not self.path.exists():
            return "file::memory:"
        uri = self.path.absolute().as_uri()
        if not create and (not os.access(self.path, os.W_OK) or self._is_disk_full()):
            log = self.path.with_name(f"{self.path.name}-wal")
            is_used = log.exists() and log.stat().st_size
            return uri + _READ_ONLY[not is_used]
        self._create_file()
        return uri

    def _is_disk_full(self) -> bool:
        """Return True if the disk of the store has no free block, not even one for the index of the log."""
        with contextlib.suppress(OSError):
            disk = os.statvfs(self.path.parent)
            return disk.f_blocks > 0 and not (disk.f_bavail if os.geteuid() else disk.f_bfree)
        return False

    def _create_file(self) -> None:
        """Create the file if it is missing, before SQLite would, which applies the umask; refuse a symbolic link.

        A file that exists isn't opened: to close it would drop the locks that this process holds on it for SQLite,
        and the next program to finish would take the write-ahead log away.
        """
        try:
            private_directory(self.path.parent)
            with contextlib.suppress(FileExistsError):
                os.close(open_private(self.path, os.O_RDWR | os.O_EXCL))
            make_private(self.path)
        except OSError as error:
            raise OutputError(f"{self._shown}: cannot open the store: {error.strerror}") from error

    def _copy(self) -> None:
        file, self._database = self._database, _connect("file::memory:")
        with contextlib.closing(file):
            file.backup(self._database)

    def _write_ahead(self) -> None:
        """Choose the write-ahead log. On a new file, SQLite refuses this at once if another program is doing it."""
        until = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                self._database.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if not _is_locked(error) or time.monotonic() > until:
                    raise
                time.sleep(0.01)
            else:
                return

    def _upgrade(self) -> None:
        if self._version() == _VERSION:
            return  # without waiting for one that writes
        with self._transaction():
            version = self._version()
            if version > _VERSION:
                raise OutputError(f"{self._shown}: written by a newer gpuops (schema {version}); upgrade this one")
            for statement in filter(str.strip, "".join(SCHEMAS[version:]).split(";")):
                self._database.execute(statement)
            self._database.execute(f"PRAGMA user_version = {_VERSION}")

    def _version(self) -> int:
        return int(self._database.execute("PRAGMA user_version").fetchone()[0])

    def _read(self, query: str, values: Sequence[str | int | None], read: Callable[..., T]) -> list[T]:
        """Return what ``read`` makes of each row; raise `OutputError` if it cannot, because the row is damaged."""
        with self._translated_errors():
            rows = self._database.execute(query, values).fetchall()
            try:
                return [read(*row) for row in rows]
            except _OF_A_DAMAGED_ROW as error:
                why = f"a row cannot be read ({error}); move the file away, or bring back a copy of it"
                raise OutputError(f"{self._shown}: the store is damaged: {why}") from error

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """Run one transaction, during which no other program writes."""
        with self._database:  # commits all of it or, on any exception, nothing
            self._database.execute("BEGIN IMMEDIATE")
            yield

    @contextlib.contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Let no other thread use the database in this context, and raise SQLite's errors as errors of gpuops."""
        try:
            with self._turn:
                yield
        except sqlite3.OperationalError as error:
            if _is_locked(error):
                waited = f"still locked by another gpuops process after {_BUSY_SECONDS:g} s"
                raise LockedError(f"{self._shown}: {waited}; wait for it to finish") from error
            why = "the disk is full" if self._is_disk_full() else error  # SQLite may call it a "disk I/O error"
            raise OutputError(f"{self._shown}: cannot use the store: {why}") from error
        except sqlite3.DatabaseError as error:
            raise OutputError(f"{self._shown}: not a gpuops store, or damaged: {error}") from error


def _connect(address: str) -> sqlite3.Connection:
    return sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)


def _is_locked(error: sqlite3.OperationalError) -> bool:
    return "locked" in str(error)  # its code, sqlite_errorcode, is new in Python 3.11

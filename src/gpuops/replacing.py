"""Atomic replacement of files: a reader sees either the old content or the new content, never a part of it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_atomic(path: Path, content: bytes, mode: int | None = None) -> None:
    """Write ``content`` to a temporary file beside ``path``, then rename it; after an `OSError` the old file is intact.

    The new file has ``mode`` from its first byte, whatever the umask; if None, the umask decides. A symbolic link at
    ``path`` is replaced, not followed.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else mode)
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def file_lock(lock: Path) -> Iterator[None]:
    """Hold an exclusive lock on the file ``lock`` during a read-modify-write; other programs wait for it."""
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield

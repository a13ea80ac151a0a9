"""Replacing: a file's content changes at once, so that a reader sees the old file or the new one, never a part."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_atomic(path: Path, content: bytes, mode: int | None = None) -> None:
    """Write ``content`` to the disk beside ``path`` and let it take that name; an `OSError` leaves the old file whole.

    The new file has ``mode`` from its first byte, whatever the umask; None: what the umask leaves. A link at ``path``
    is replaced, not followed.
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
    """Programs that read a file, change and replace it wait for each other at ``lock``, a file for that alone."""
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield

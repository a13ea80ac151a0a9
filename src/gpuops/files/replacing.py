"""Files that only their owner can read, and atomic replacement: a reader sees the old content or the new."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shlex
import stat
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gpuops.errors import OutputError
from gpuops.files.permissions import others_may_write

PRIVATE = 0o600
_PART = re.compile(r"\.(.+)\.\d+\.part", re.DOTALL)
_ABANDONED_SECONDS = 1.0  # between the creation of a temporary file and its lock
_OWN_NAMES = (".gpuops", "runs", "claims", "leases")


def write_atomic(path: Path, content: bytes, mode: int | None = None) -> None:
    """Write ``content`` to a temporary file beside ``path``, then rename it; after an `OSError` the old file is intact.

    The new file has ``mode`` from its first byte, whatever the umask; if None, the umask decides. A symbolic link at
    ``path`` is replaced, not followed.
    """
    remove_abandoned(path.parent, {path.name})
    replace_file(path, content, mode)


def replace_file(path: Path, content: bytes, mode: int | None = None) -> None:
    """Do what `write_atomic` does, but for `remove_abandoned`, which looks at every file of the directory."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else mode)
        with os.fdopen(descriptor, "wb") as file:
            with suppress(OSError):  # a file system may have no locks
                fcntl.flock(file, fcntl.LOCK_EX)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def remove_abandoned(folder: Path, names: Collection[str]) -> None:
    """Remove the temporary files of programs that were killed while they wrote one of ``names`` in ``folder``.

    A program that is writing has a lock.
    """
    found = [path for path in folder.glob(".*.part") if (match := _PART.fullmatch(path.name)) and match[1] in names]
    for draft in found:
        with suppress(OSError):
            descriptor = os.open(draft, os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if os.fstat(descriptor).st_mtime < time.time() - _ABANDONED_SECONDS:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    draft.unlink()
            finally:
                os.close(descriptor)


@contextmanager
def file_lock(lock: Path) -> Iterator[None]:
    """Hold an exclusive lock on the file ``lock`` during a read-modify-write; other programs wait for it."""
    descriptor = open_private(lock, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def open_private(path: Path, flags: int) -> int:
    """Open a file with mode 0600, new or old, whatever the umask; never follow a symbolic link in its place."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE)
    if os.fstat(descriptor).st_uid == os.geteuid():
        os.fchmod(descriptor, PRIVATE)
    return descriptor


def make_private(path: Path) -> None:
    """Give a file of this user mode 0600, without opening it. Raise `OSError` for a link, a directory or a device."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    if status.st_uid == os.geteuid():
        path.chmod(PRIVATE)


def private_directory(path: Path, *, strict: bool = False) -> None:
    """Create a directory with mode 0700 if it is missing, and the missing ones above it.

    One that exists must be this user's. gpuops' own, such as ``.gpuops``, becomes 0700 again. Of another, raise
    `OutputError` if others may write to it, or if ``strict``, enter it.
    """
    try:
        _create(path)
        status = path.stat()
        if status.st_uid != os.geteuid():
            raise OutputError(f"{path}: this directory belongs to another user; use one of your own")
        may_enter = bool(status.st_mode & 0o077)
        if may_enter and path.name in _OWN_NAMES:
            path.chmod(0o700)
        elif may_enter and (strict or others_may_write(status)):
            what = "enter this directory" if strict else "write to this directory"
            raise OutputError(f"{path}: others may {what}; run: chmod 700 {shlex.quote(str(path))}")
    except OSError as error:
        raise OutputError(f"{path}: cannot create the directory: {error.strerror}") from error


def _create(path: Path) -> None:
    for missing in [folder for folder in (*reversed(path.parents), path) if not folder.exists()]:
        try:
            missing.mkdir(mode=0o700)
        except FileExistsError:  # by another program, in the meantime
            continue
        missing.chmod(0o700)  # under a umask that takes the owner's rights, too

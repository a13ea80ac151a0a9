"""Writes rendered files into a launch directory: all of them or none."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path, PurePosixPath

from gpuops.document import read_text
from gpuops.errors import OutputError
from gpuops.files.replacing import remove_abandoned, replace_file
from gpuops.render.rendering import Rendered


def write(files: Sequence[Rendered], folder: Path, *, force: bool = False) -> None:
    """Write every file below ``folder`` with its mode from the first byte; write none if one is refused.

    Raise `OutputError` if a path would leave the directory, leads through a link, or exists and ``force`` is not set.
    """
    if not force:
        refuse_existing(files, folder)
    paths = _inside(folder, files)
    for parent in {path.parent for path in paths}:
        remove_abandoned(parent, {path.name for path in paths if path.parent == parent})
    with ThreadPoolExecutor(_WRITERS) as writers:
        list(writers.map(_write, files, paths))


def refuse_existing(files: Sequence[Rendered], folder: Path) -> None:
    """Raise `OutputError` if one of the files exists."""
    for path in _inside(folder, files):
        if path.exists():
            raise OutputError(
                f"{path}: already exists; pass --overwrite to replace it, or choose another directory with -o"
            )


_WRITERS = 8
"""Number of threads: each file waits for the disk, and a journaling file system commits waiting files together."""


def _write(file: Rendered, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, file.text.encode(), file.mode)
    except OSError as error:
        raise OutputError(f"{path}: cannot write it: {(error.strerror or str(error)).lower()}") from error


def read_existing(files: Sequence[Rendered], folder: Path) -> list[Rendered]:
    """Return those of the files that are in ``folder``, as they are there, including manual edits."""
    return [
        replace(file, text=read_text(path, keep_mark=True), mode=path.stat().st_mode & 0o777)
        for file, path in zip(files, _inside(folder, files), strict=True)
        if path.is_file()
    ]


def leftovers(templates: Iterable[str], files: Sequence[Rendered], folder: Path) -> list[str]:
    """Return the files in ``folder`` that were made from ``templates`` for nodes of another layout.

    ``templates`` are output paths, such as ``run-{node}.sh``.
    """
    made = {file.path for file in files}
    patterns = [glob.escape(path).replace("{node}", "*") for path in templates if "{node}" in path]
    found = {path.relative_to(folder).as_posix() for pattern in patterns for path in folder.glob(pattern)}
    return sorted(found - made)


def strangers(templates: Iterable[str], files: Sequence[Rendered], folder: Path) -> list[str]:
    """Return the files in ``folder`` that are neither of this layout nor of another (see `leftovers`)."""
    known = {file.path for file in files} | set(leftovers(templates, files, folder))
    found = (
        {path.relative_to(folder).as_posix() for path in folder.iterdir() if path.is_file()}
        if folder.is_dir()
        else set()
    )
    return sorted(found - known)


def _inside(folder: Path, files: Sequence[Rendered]) -> list[Path]:
    """Return the path of each file; raise `OutputError` for one that would not be in ``folder`` itself or below it."""
    paths = [folder / file.path for file in files]
    root, parents = folder.resolve(), {path.parent for path in paths}
    outside = {parent for parent in parents if not parent.resolve().is_relative_to(root)}  # far fewer than files
    for file, path in zip(files, paths, strict=True):
        if path.is_symlink():
            raise OutputError(f"{path}: a symbolic link, which gpuops does not follow; delete it")
        if path.parent in outside or path.name == ".." or PurePosixPath(file.path).is_absolute():
            raise OutputError(f"{file.path}: a launch file must be inside {folder}")
    return paths

"""Writes rendered files into a launch directory: all of them or none."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path, PurePosixPath

from gpuops.document import read_text
from gpuops.errors import OutputError
from gpuops.render.rendering import Rendered
from gpuops.replacing import write_atomic


def write(files: Sequence[Rendered], folder: Path, *, force: bool = False) -> None:
    """Write every file below ``folder`` with its mode from the first byte; write none if one is refused.

    Raise `OutputError` if a path would leave the directory, leads through a link, or exists and ``force`` is not set.
    """
    paths = [_inside(folder, file.path) for file in files]
    existing_paths = [path for path in paths if path.exists()]
    if existing_paths and not force:
        raise OutputError(
            f"{existing_paths[0]}: already exists; pass --overwrite to replace it, or choose another directory with -o"
        )
    with ThreadPoolExecutor(_WRITERS) as writers:
        list(writers.map(_write, files, paths))


_WRITERS = 8
"""Number of threads: each file waits for the disk, and a journaling file system commits waiting files together."""


def _write(file: Rendered, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, file.text.encode(), file.mode)
    except OSError as error:
        raise OutputError(f"{path}: cannot write it: {(error.strerror or str(error)).lower()}") from error


def read_existing(files: Sequence[Rendered], folder: Path) -> list[Rendered]:
    """Return the files as they are in ``folder``, including manual edits; a missing file as it would be written."""
    existing = []
    for file in files:
        path = _inside(folder, file.path)
        existing.append(replace(file, text=read_text(path)) if path.is_file() else file)
    return existing


def _inside(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()) or path.is_symlink() or PurePosixPath(name).is_absolute():
        raise OutputError(f"{name}: a launch file must be inside {folder}")
    return path

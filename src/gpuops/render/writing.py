"""Writing: rendered files into a launch folder, all of them or none."""

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
    """Write every file below ``folder`` with its mode from the first byte; nothing is written if one may not be.

    `OutputError` where a path would leave the folder, leads through a link, or exists and ``force`` is not given.
    """
    paths = [_inside(folder, made.path) for made in files]
    there = [path for path in paths if path.exists()]
    if there and not force:
        raise OutputError(f"{there[0]}: exists already; --force overwrites, or choose another folder with -o")
    with ThreadPoolExecutor(_WRITERS) as writers:
        list(writers.map(_write, files, paths))


_WRITERS = 8
"""Every file waits for the disk: what waits together, a journaling file system commits together."""


def _write(made: Rendered, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, made.text.encode(), made.mode)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from error


def standing(files: Sequence[Rendered], folder: Path) -> list[Rendered]:
    """The same files as they lie in ``folder``, by whomever edited; what is not there, as it would be written."""
    found = []
    for made in files:
        path = _inside(folder, made.path)
        found.append(replace(made, text=read_text(path)) if path.is_file() else made)
    return found


def _inside(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()) or path.is_symlink() or PurePosixPath(name).is_absolute():
        raise OutputError(f"{name}: a launch file must lie inside {folder}")
    return path

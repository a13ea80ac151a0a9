"""Atomic writing of reports to files."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gpuops.document import is_directory
from gpuops.errors import InputError, OutputError, did_you_mean
from gpuops.files.replacing import PRIVATE, write_atomic


def write(text: str, path: Path, mode: int | None = None) -> None:
    """Replace the content of ``path`` with ``text`` atomically: readers see the old file or the new one, never a part.

    A new file is its owner's alone; an old one keeps its mode, unless ``mode`` is given. A file that is not regular
    (``/dev/stdout``, a pipe) is written directly. Raise `OutputError` if writing fails; the old file is then intact.
    """
    content = text.encode("utf-8", errors="backslashreplace")
    try:
        target = path.resolve()  # keep a symbolic link
        if target.exists() and not target.is_file():
            target.write_bytes(content)
        else:
            write_atomic(target, content, mode or (stat.S_IMODE(target.stat().st_mode) if target.exists() else PRIVATE))
    except OSError as error:
        raise OutputError(f"{path}: cannot write: {_reason(error, path)}") from error


def formats_of(form: str, paths: Sequence[Path], suffixes: Mapping[str, str]) -> dict[Path, str]:
    """Return the format of each file: ``form``, or the one that its suffix names; ``suffixes`` has that of each format.

    Raise `InputError` or `OutputError` for an unknown format or suffix, or a missing directory.
    """
    if form not in suffixes:
        raise InputError(f'unknown format "{form}"{did_you_mean(form, suffixes) or "; use " + ", ".join(suffixes)}')
    for path in paths:
        check_directory(path)
    return {path: form if form != "table" and len(paths) == 1 else format_of(path, suffixes) for path in paths}


def format_of(path: Path, suffixes: Mapping[str, str]) -> str:
    """Return the format for the suffix of ``path``, of those with ``suffixes``; raise `InputError` if there is none."""
    by_suffix = {suffix: form for form, suffix in suffixes.items()}
    if path.suffix.lower() not in by_suffix:
        unknown = f'unknown suffix "{path.suffix}"' if path.suffix else "no suffix"
        raise InputError(f"{path}: {unknown}; use {', '.join(by_suffix)} or --format")
    return by_suffix[path.suffix.lower()]


def check_directory(path: Path) -> None:
    """Raise `OutputError` if the directory of ``path`` does not exist."""
    if not is_directory(path.parent):
        raise OutputError(f"{path}: cannot write: no directory {path.parent}; create it first")


def refuse_existing(paths: Iterable[Path], option: str = "-o") -> None:
    """Raise `OutputError` if one of these files, which ``option`` names, exists; devices and pipes do not count."""
    for path in paths:
        if path.is_file():
            raise OutputError(
                f"{path}: already exists; pass --overwrite to replace it, or choose another file with {option}"
            )


def create_directory(path: Path) -> None:
    """Create the directory of ``path`` if it is missing, or raise `OutputError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{path}: cannot create the directory: {error.strerror}") from error


def _reason(error: OSError, path: Path) -> str:
    if isinstance(error, FileNotFoundError):
        return f"no directory {path.parent}; create it first"
    if isinstance(error, IsADirectoryError):
        return "it is a directory; name a file in it"
    return (error.strerror or str(error)).lower()

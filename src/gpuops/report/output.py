"""Atomic writing of reports and saved facts to files."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path

from gpuops.errors import OutputError
from gpuops.facts import Facts, to_document
from gpuops.replacing import write_atomic


def write(text: str, path: Path) -> None:
    """Replace the content of ``path`` with ``text`` atomically: readers see the old file or the new one, never a part.

    A file that is not regular (``/dev/stdout``, a pipe) is written directly. Raise `OutputError` if writing fails; the
    old file is then still in place.
    """
    content = text.encode("utf-8", errors="backslashreplace")
    try:
        target = path.resolve()  # keep a symbolic link
        if target.exists() and not target.is_file():
            target.write_bytes(content)
        else:
            write_atomic(target, content, stat.S_IMODE(target.stat().st_mode) if target.exists() else None)
    except OSError as error:
        raise OutputError(f"{path}: cannot write: {_reason(error, path)}") from error


def save_facts(facts_by_node: Mapping[str, Facts], folder: str | Path) -> None:
    """Save the answers of each node as ``folder/NODE.json`` for `gpuops.Cluster.saved`, or raise `OutputError`.

    The facts must have been collected with ``keep_answers=True``.
    """
    folder = Path(folder)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: cannot create the directory: {error.strerror}") from error
    for node, facts in facts_by_node.items():
        write(to_document(facts), folder / f"{node}.json")


def _reason(error: OSError, path: Path) -> str:
    if isinstance(error, FileNotFoundError):
        return f"no directory {path.parent}; create it first"
    if isinstance(error, IsADirectoryError):
        return "it is a directory; name a file in it"
    return (error.strerror or str(error)).lower()

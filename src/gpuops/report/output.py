"""Atomic writing of reports and saved facts to files."""

from __future__ import annotations

import datetime as dt
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from gpuops.document import is_directory
from gpuops.errors import InputError, OutputError, did_you_mean
from gpuops.facts import Facts, to_document
from gpuops.files.replacing import PRIVATE, private_directory, write_atomic
from gpuops.inventory import Host
from gpuops.inventory.machine_vars import machine_vars
from gpuops.reasons import Excluded
from gpuops.results.health import format_exclusion

NO_NODES: Mapping[str, Excluded] = MappingProxyType({})


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


def refuse_existing(paths: Iterable[Path]) -> None:
    """Raise `OutputError` if one of these files exists; devices and pipes do not count."""
    for path in paths:
        if path.is_file():
            raise OutputError(f"{path}: already exists; pass --overwrite to replace it, or choose another file with -o")


def create_directory(path: Path) -> None:
    """Create the directory of ``path`` if it is missing, or raise `OutputError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{path}: cannot create the directory: {error.strerror}") from error


def save_facts(
    facts_by_node: Mapping[str, Facts],
    folder: str | Path,
    excluded: Mapping[str, Excluded] = NO_NODES,
    hosts: Iterable[Host] = (),
) -> None:
    """Save the answers of each node as ``folder/NODE.json`` for `gpuops.Cluster.saved`, or raise `OutputError`.

    The directory must be closed to others, and is created so. The facts must have been collected with
    ``keep_answers=True``. Of a node without facts, save why it is ``excluded``, and what the inventory says about its
    machine, if it is among ``hosts``.
    """
    folder = Path(folder)
    private_directory(folder, strict=True)
    now = dt.datetime.now(dt.timezone.utc)
    reasons = {node: replace(each, why=format_exclusion(each)) for node, each in excluded.items()}
    declared = {host.name: machine_vars(host) for host in hosts}
    silent = {n: Facts(n, now, {}, excluded=each, declared=declared.get(n, {})) for n, each in reasons.items()}
    for node, facts in {**silent, **facts_by_node}.items():
        write(to_document(facts), folder / f"{node}.json", PRIVATE)


def _reason(error: OSError, path: Path) -> str:
    if isinstance(error, FileNotFoundError):
        return f"no directory {path.parent}; create it first"
    if isinstance(error, IsADirectoryError):
        return "it is a directory; name a file in it"
    return (error.strerror or str(error)).lower()

"""Where an inventory is: what ``-i`` names, and the files of a directory."""

from __future__ import annotations

import difflib
from pathlib import Path

from gpuops.document import exists, is_directory, regular
from gpuops.errors import DocumentError
from gpuops.inventory.names import LOCALHOST, has_port, is_address

YAML = (".yml", ".yaml", ".json")
_NOT_SOURCES = ("group_vars", "host_vars", "vars_plugins")
_NOT_SOURCE_SUFFIXES = (".bak", ".cfg", ".md", ".orig", ".pyc", ".pyo", ".retry", ".rpm", ".rst", ".swp", ".txt")


def names_hosts(argument: str, folder: Path = Path()) -> bool:
    """Return whether ``argument`` of ``-i`` names hosts and not a file.

    It does if it has a comma (``gpu01,`` is a list of one), a user (``ops@gpu01``) or a port (``gpu01:2222``), or is an
    address or ``localhost``; but never if there is a file of that name in ``folder``.
    """
    is_one = "@" in argument or argument in LOCALHOST or is_address(argument) or has_port(argument)
    return ("," in argument or (is_one and "/" not in argument)) and not exists(folder / argument)


def find(name: str, project: Path | None = None, *, folder: Path = Path(), by: str = "") -> Path:
    """Return the path of inventory ``name``: relative to ``folder``, or a bare name in the project's ``inventory/``.

    ``by`` is the variable that names it, for the error if there is no such file.
    """
    if "\0" in name:
        raise DocumentError("--inventory", "the name of a file cannot contain a NUL")
    places = [folder / name]
    if project is not None and len(Path(name).parts) == 1:
        places.append(project / "inventory" / name)
    path = next((place for place in places if exists(place)), None)
    if path:
        return path
    path_by_name = {p.name: p for place in reversed(places) for p in _siblings(place.parent) if p.is_file()}
    match = difflib.get_close_matches(Path(name).name, path_by_name, n=1)
    may_be_host = "/" not in name and Path(name).suffix not in (*YAML, ".ini")
    hint = f"; for a host of that name: -i {name}," if may_be_host else ""
    hint = f'; did you mean "{path_by_name[match[0]]}"?' if match else hint
    looked_for = " and ".join(str(place.resolve()) for place in places)
    raise DocumentError(name, f"no such file{by and f', named by {by}'}; looked for {looked_for}{hint}")


def _siblings(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if is_directory(folder) else []


def sources(path: Path) -> list[Path]:
    """Return the file itself, or every inventory file of a directory, sorted by name."""
    if not path.is_dir():
        return [path]
    files = []
    for inner in _siblings(path):
        if inner.name[0] == "." or inner.name in _NOT_SOURCES or inner.name.endswith(("~", *_NOT_SOURCE_SUFFIXES)):
            continue
        files += sources(inner) if inner.is_dir() else [regular(inner)]
    return files

"""Variable files in ``group_vars/`` and ``host_vars/`` beside an inventory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gpuops.document import YamlNode, parse, read_text, regular

_SUFFIXES = ("", ".yml", ".yaml", ".json")


class VarsFiles:
    """Variable files of one directory. A file encrypted by ansible-vault is skipped with a warning."""

    def __init__(self, folder: Path) -> None:
        self.warnings: list[str] = []
        self._path_by_name = {kind: _listing(folder / kind) for kind in ("group_vars", "host_vars")}

    def read(self, kind: str, name: str) -> dict[str, YamlNode]:
        """Return a group's or host's variables: NAME, else NAME.yml, NAME.yaml, NAME.json; all files of a directory."""
        paths = self._path_by_name[kind]
        source = next((paths[name + suffix] for suffix in _SUFFIXES if name + suffix in paths), None)
        merged: dict[str, YamlNode] = {}
        for path in _files(source) if source else ():
            merged |= self._read_file(path)
        return merged

    def _read_file(self, path: Path) -> dict[str, YamlNode]:
        text = read_text(regular(path))
        if text.startswith("$ANSIBLE_VAULT;"):
            self.warnings.append(f"{path}: encrypted by ansible-vault, so gpuops ignores its variables")
            return {}
        return parse(text, str(path)).map("a map of variables")


def _listing(folder: Path) -> dict[str, Path]:
    return {path.name: path for path in folder.iterdir()} if folder.is_dir() else {}


def _files(path: Path) -> Iterator[Path]:
    """Yield the file itself, or every variable file under the directory, by name."""
    if not path.is_dir():
        yield path
        return
    for inner in sorted(path.iterdir()):
        if inner.name[0] != "." and inner.name[-1] != "~" and (inner.is_dir() or inner.suffix in _SUFFIXES):
            yield from _files(inner)

"""group_vars/ and host_vars/ beside an inventory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gpuops.document import YamlNode, parse, read_text

_SUFFIXES = ("", ".yml", ".yaml", ".json")


class VarsFiles:
    """The variable files of one folder. What ansible-vault encrypted as a whole is left to Ansible, with a warning."""

    def __init__(self, folder: Path) -> None:
        self.warnings: list[str] = []
        self._found = {kind: _listing(folder / kind) for kind in ("group_vars", "host_vars")}

    def read(self, kind: str, name: str) -> dict[str, YamlNode]:
        """The variables of a group or host: NAME, else NAME.yml, NAME.yaml, NAME.json; a folder's files one by one."""
        found = next((self._found[kind][name + s] for s in _SUFFIXES if name + s in self._found[kind]), None)
        merged: dict[str, YamlNode] = {}
        for path in _files(found) if found else ():
            merged |= self._read_file(path)
        return merged

    def _read_file(self, path: Path) -> dict[str, YamlNode]:
        text = read_text(path)
        if text.startswith("$ANSIBLE_VAULT;"):
            self.warnings.append(f"{path}:1:1: encrypted by ansible-vault, so its variables are left to Ansible")
            return {}
        return parse(text, str(path)).map("a map of variables")


def _listing(folder: Path) -> dict[str, Path]:
    return {path.name: path for path in folder.iterdir()} if folder.is_dir() else {}


def _files(path: Path) -> Iterator[Path]:
    """The file itself, or every variable file under the folder, by name."""
    if not path.is_dir():
        yield path
        return
    for inner in sorted(path.iterdir()):
        if inner.name[0] != "." and inner.name[-1] != "~" and (inner.is_dir() or inner.suffix in _SUFFIXES):
            yield from _files(inner)

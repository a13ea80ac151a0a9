"""sysctl: the running kernel's parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpuops.lab.model import Node
from gpuops.lab.tools.answer import Answer


def sysctl(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``sysctl [-n] KEY`` and ``sysctl -w KEY=VALUE`` print and change."""
    key, is_set, value = next((w for w in words if not w.startswith("-")), "").partition("=")
    if key not in node.sysctls:
        path = f"/proc/sys/{key.replace('.', '/')}"
        return Answer(err=f"sysctl: cannot stat {path}: No such file or directory\n", code=1)
    if not is_set:
        current = node.sysctls[key]
        return Answer(out=f"{current}\n" if "-n" in words else f"{key} = {current}\n")
    if not root:
        return Answer(err=f'sysctl: permission denied on key "{key}"\n', code=1)
    after = {**node.changes.sysctls, key: value}
    return Answer(out=f"{key} = {value}\n", becomes=replace(node.changes, sysctls=after))

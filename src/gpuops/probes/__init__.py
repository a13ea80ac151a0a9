"""One module per tool, with the types of its answer, the parser of its output, and the `Probe` itself."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from gpuops.probing import Probe

_FOLDERS = ("nvidia", "network", "host")


def every_probe() -> dict[str, Probe[Any]]:
    """Return all probes by name, from the modules of this package."""
    modules = [importlib.import_module(m.name) for m in pkgutil.walk_packages(__path__, f"{__name__}.")]
    return {value.name: value for module in modules for value in vars(module).values() if isinstance(value, Probe)}


class _OldPaths(MetaPathFinder, Loader):
    """Importer of the old module paths until 0.2: ``gpuops.probes.topo`` is ``gpuops.probes.nvidia.topo``."""

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> ModuleSpec | None:
        """Return a spec for a module that has moved to a subpackage."""
        short = name.removeprefix(f"{__name__}.")
        first = short.partition(".")[0]
        if short == name or first in _FOLDERS:
            return None
        folder = next((f for f in _FOLDERS if PathFinder.find_spec(first, [str(Path(__path__[0], f))])), None)
        return ModuleSpec(name, self, origin=f"{__name__}.{folder}.{short}") if folder else None

    def exec_module(self, module: ModuleType) -> None:
        """Register the same module object under its old name."""
        sys.modules[module.__name__] = importlib.import_module(str(module.__spec__ and module.__spec__.origin))


sys.meta_path.insert(0, _OldPaths())

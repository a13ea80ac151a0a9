"""Probes: one module a tool, with the types of its answer, the parser of its text, and the `Probe` that asks it."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from gpuops.probing import Probe


def every_probe() -> dict[str, Probe[Any]]:
    """Every probe by name, found by listing this folder and the rooms in it."""
    modules = [importlib.import_module(m.name) for m in pkgutil.walk_packages(__path__, f"{__name__}.")]
    return {value.name: value for module in modules for value in vars(module).values() if isinstance(value, Probe)}

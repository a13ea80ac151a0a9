"""What an inventory says about a machine itself, and not about how to reach it: saved facts keep it.

The document ``{"rack": "r1", "fabric": {"mlx5_0": {"rail": 0}}}`` has the form of the inventory's variables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from typing import Any

from gpuops.document import dump, parse
from gpuops.errors import DocumentError
from gpuops.inventory.gpuops_vars import GPUOPS_VARS
from gpuops.inventory.host import Host

MACHINE_VARS = ("rack", "fabric", "power", "expect")
"""The fields of `Host` that judging reads, beside its profile."""
_UNSET: tuple[object, ...] = (None, "", (), {})


def machine_vars(host: Host) -> dict[str, Any]:
    """Return the values of `MACHINE_VARS` that ``host`` has."""
    return {name: value for name in MACHINE_VARS if (value := getattr(host, name))}


def completed(host: Host, values: Mapping[str, Any]) -> Host:
    """Return ``host`` with those of ``values`` (see `machine_vars`) that its inventory does not set."""
    missing = {name: value for name, value in values.items() if not getattr(host, name)}
    return replace(host, **missing) if missing else host


def to_document(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values as JSON data, for `from_document`."""
    return {name: _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        value = {f.name: each for f in fields(value) if (each := getattr(value, f.name)) not in _UNSET}
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def from_document(document: object) -> dict[str, Any]:
    """Return the values in ``document``; raise `ValueError` if an inventory cannot say that."""
    try:
        return _read(json.dumps(document))
    except DocumentError as error:
        raise ValueError(error.what) from error


@lru_cache(maxsize=1024)  # nodes of one rack are declared alike
def _read(text: str) -> dict[str, Any]:
    nodes = parse(dump(json.loads(text)), "declared").only(MACHINE_VARS, "of a machine")
    values = {name: GPUOPS_VARS[name](node, name) for name, node in nodes.items()}
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()}

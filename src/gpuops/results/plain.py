"""Conversion of dataclasses, tuples, times and other values to JSON data, with secrets masked."""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
from collections.abc import Mapping
from typing import Any

from gpuops.probing import Unknown
from gpuops.reasons import Excluded, Objection
from gpuops.secret import redact


def plain(value: object) -> Any:
    """Return ``value`` as JSON data: times as ISO 8601, `Unknown` with its reason, types that JSON lacks as text.

    A tuple used as a key becomes its words, joined by spaces. Non-finite numbers become text. Sets are sorted.
    """
    if isinstance(value, Unknown):
        value = {"unknown": value.why}
    elif isinstance(value, (Excluded, Objection)):
        value = value.to_document()
    elif dataclasses.is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif isinstance(value, (set, frozenset)):
        value = sorted(value, key=str)
    if isinstance(value, Mapping):
        return {_key(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if value is None or isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return redact(value.isoformat() if isinstance(value, dt.datetime) else str(value))


def _key(key: object) -> str:
    return redact(" ".join(key) if isinstance(key, tuple) else str(key))

"""What became of the keys that a host showed to ``gpuops trust``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Trusted:
    """``keys`` are fingerprints by type. They are ``known`` already, ``recorded`` now, or not recorded, and ``why``."""

    keys: Mapping[str, str]
    state: Literal["known", "recorded", "not_recorded"]
    file: Path
    why: str = ""

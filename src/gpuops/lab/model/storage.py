"""NVMe drives and software RAID of the hardware model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Drive:
    """One NVMe drive; spare, threshold and used are percent."""

    name: str
    model: str = "SAMSUNG MZQL23T8HCLS-00A07"
    state: str = "live"
    spare: int = 100
    threshold: int = 10
    used: int = 3
    media_errors: int = 0
    critical: int = 0


@dataclass(frozen=True)
class Mirror:
    """A raid1 over the first partition of its members; those in ``lost`` are gone."""

    name: str
    members: tuple[str, ...]
    lost: frozenset[str] = frozenset()

"""The node's local file systems and how full they are."""

from __future__ import annotations

from dataclasses import dataclass

from gpuops.probing import Probe, Unknown
from gpuops.shell import Command

PSEUDO = ("tmpfs", "devtmpfs", "udev", "overlay", "efivarfs", "none", "shm", "rootfs")


@dataclass(frozen=True, slots=True)
class Filesystem:
    """One row of df; sizes in KiB (1024 bytes). ``available_kib`` is what is left for users other than root."""

    device: str
    size_kib: int
    used_kib: int
    available_kib: int
    mount: str

    @property
    def used_percent(self) -> float:
        """What df calls Capacity: used of what users can use at all, in percent."""
        usable = self.used_kib + self.available_kib
        return 100 * self.used_kib / usable if usable else 100.0

    @property
    def is_pseudo(self) -> bool:
        """The rows that are no disk: memory, containers, read-only images that are full by nature."""
        return self.device in PSEUDO or self.device.startswith("/dev/loop")


def parse_df(text: str) -> tuple[Filesystem, ...] | Unknown:
    """Every row of ``df -P -k``."""
    return Unknown(f"not read yet: {text[:20]}")


disks: Probe[tuple[Filesystem, ...]] = Probe(
    "disks", Command(("df", "-l", "-P", "-k")), lambda answer: parse_df(answer.out)
)

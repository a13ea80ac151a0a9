"""PCIe links from each RDMA device up to its root port, from /sys: a slow switch or riser is as bad as a slow slot.

``/sys/class/infiniband/mlx5_0`` leads to ``…/pci0000:15/0000:15:01.0/0000:16:00.0/…``: root port, switch, device.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from gpuops.probes.host.pci_paths import addresses_in
from gpuops.probes.numbers import integer, number
from gpuops.probing import Probe, Unknown
from gpuops.shell import Files, read_files

N = TypeVar("N", int, float)
_ROOT = "/sys/class/infiniband"
_LEAVES = ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width")
_BRIDGES = 5
"""A device behind two switches and their cards has as many; one level more costs the node four reads per device."""
_WIDEST = 32  # 63 and 255 are all ones: a card that is off the bus, or a virtual link
_LANE_GBPS = {2.5: 2.0, 5.0: 4.0, 8.0: 7.877, 16.0: 15.754, 32.0: 31.508, 64.0: 60.5}
"""Gbit/s of one lane by GT/s, without line coding (8b/10b, 128b/130b, and FLITs of 242 in 256 bytes)."""


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """The port of a device or bridge at one end of a link; a field is None if the kernel does not report it."""

    address: str
    speed_gt_per_s: float | None = None
    width: int | None = None
    max_speed_gt_per_s: float | None = None
    max_width: int | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A link between two ``ends``, which agree on speed and width; None if neither end reports them."""

    lower: LinkEnd
    upper: LinkEnd

    @property
    def speed_gt_per_s(self) -> float | None:
        """The current speed."""
        return _least(self.lower.speed_gt_per_s, self.upper.speed_gt_per_s)

    @property
    def width(self) -> int | None:
        """The current number of lanes."""
        return _least(self.lower.width, self.upper.width)

    @property
    def max_speed_gt_per_s(self) -> float | None:
        """The highest speed that both ends support; None unless both report it."""
        return _both(self.lower.max_speed_gt_per_s, self.upper.max_speed_gt_per_s)

    @property
    def max_width(self) -> int | None:
        """The lanes that both ends have; None unless both report them."""
        return _both(self.lower.max_width, self.upper.max_width)

    @property
    def gbps(self) -> float | None:
        """What the link carries in one direction now."""
        return carried_gbps(self.speed_gt_per_s, self.width)


@dataclass(frozen=True, slots=True)
class NicPath:
    """The links above one device, its own first; ``is_whole`` if all up to the root port were read.

    Functions of one card have the same ``board`` (system image GUID), also in two slots (socket direct).
    """

    device: str
    address: str
    board: str
    links: tuple[Link, ...]
    bridges: tuple[str, ...] = ()
    is_whole: bool = True


def _least(a: N | None, b: N | None) -> N | None:
    return b if a is None else a if b is None else min(a, b)


def _both(a: N | None, b: N | None) -> N | None:
    return None if a is None or b is None else min(a, b)


def carried_gbps(speed_gt_per_s: float | None, width: float | None) -> float | None:
    """Return what ``width`` lanes of this speed carry in one direction; None if either is unknown."""
    lane = _LANE_GBPS.get(speed_gt_per_s or 0)
    return lane * width if lane and width else None


def parse_nic_pcie(text: str) -> tuple[NicPath, ...] | Unknown:
    """Return the path of each RDMA device that is not a virtual function, from the files of `nic_pcie`."""
    files = read_files(text)
    if "/sys/class" not in files:
        return Unknown("/sys/class cannot be read")
    targets = {path.removeprefix(f"{_ROOT}/"): target for path, target in files.items() if path.startswith(_ROOT)}
    devices = {name: target for name, target in targets.items() if "/" not in name}
    physical = (name for name in devices if f"{_ROOT}/{name}/device/physfn" not in files)
    return tuple(_path(name, devices[name], files) for name in sorted(physical, key=_natural))


def _natural(name: str) -> str:
    return re.sub(r"\d+", lambda digits: digits[0].zfill(9), name)


def _path(name: str, target: str, files: Mapping[str, str]) -> NicPath:
    up = tuple(addresses_in(target)[::-1])
    levels = (f"{_ROOT}/{name}/device{'/..' * level}" for level in range(len(up)))
    links = _links(up, tuple(files.get(f"{folder}/{leaf}") for folder in levels for leaf in _LEAVES))
    board = files.get(f"{_ROOT}/{name}/sys_image_guid", "").strip()
    return NicPath(name, up[0] if up else "", board, links, up[1:], len(up) <= _BRIDGES + 1)


@lru_cache(maxsize=1024)  # like machines have the same links
def _links(up: tuple[str, ...], texts: tuple[str | None, ...]) -> tuple[Link, ...]:
    """Pair the ports from the root port down: each link has two, and a switch is between its two links."""
    size = len(_LEAVES)
    ends = [_end(address, *texts[size * level : size * (level + 1)]) for level, address in enumerate(up)]
    first = len(ends) % 2  # without a root port of its own, the device's link is inside the processor, or virtual
    return tuple(Link(lower, upper) for lower, upper in zip(ends[first::2], ends[first + 1 :: 2], strict=True))


def _end(address: str, *texts: str | None) -> LinkEnd:
    speed, width, max_speed, max_width = texts
    return LinkEnd(address, number(speed), _width(width), number(max_speed), _width(max_width))


def _width(text: str | None) -> int | None:
    lanes = integer(text)
    return lanes if lanes is not None and 0 < lanes <= _WIDEST else None


nic_pcie: Probe[tuple[NicPath, ...]] = Probe(
    "nic_pcie",
    Files(
        (
            "/sys/class",  # proves that we could look, even if there is nothing else
            f"{_ROOT}/*",
            f"{_ROOT}/*/sys_image_guid",
            f"{_ROOT}/*/device/physfn",
            *(f"{_ROOT}/*/device{'/..' * level}/{leaf}" for level in range(_BRIDGES + 1) for leaf in _LEAVES),
        ),
        limit_bytes=256,
    ),
    lambda answer: parse_nic_pcie(answer.out),
)
"""PCIe links of the RDMA devices and of the switches above them."""

"""GID tables of RDMA ports: the protocol and interface of each index.

``mlx5_0  1  3  0000:0000:0000:0000:0000:ffff:0a00:0001  10.0.0.1  v2  eth0`` is index 3: RoCE v2 over eth0.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpuops.probing import Probe, Unknown
from gpuops.shell import Files, read_files

_PLACE = re.compile(r"/sys/class/infiniband/([^/]+)/ports/(\d{1,4})/gids/(\d{1,4})", re.ASCII)
_GID = re.compile(r"[0-9a-f]{4}(:[0-9a-f]{4}){7}")
_EMPTY = "0000:0000:0000:0000:0000:0000:0000:0000"
_VERSIONS = {"v1": "IB/RoCE v1", "v2": "RoCE v2"}


@dataclass(frozen=True, slots=True)
class Gid:
    """One entry. ``kind`` is the kernel's name: ``RoCE v2``, or ``IB/RoCE v1`` for both of these.

    ``index`` is the value for NCCL_IB_GID_INDEX. ``interface`` is empty on InfiniBand.
    """

    device: str
    port: int
    index: int
    gid: str
    kind: str
    interface: str = ""

    @property
    def ipv4(self) -> str | None:
        """IPv4 address in the GID; None if it is not derived from one."""
        mapped = ipaddress.IPv6Address(self.gid).ipv4_mapped
        return None if mapped is None else str(mapped)


def parse_gids(text: str) -> tuple[Gid, ...] | Unknown:
    """Return the entries in use, sorted by device, port and index; none if there is no RDMA device."""
    files = {path: content.strip() for path, content in read_files(text).items()}
    if "/sys/class" not in files:
        return Unknown("/sys/class cannot be read")
    entries = [_entry(match, path, files) for path in files if (match := _PLACE.fullmatch(path))]
    return tuple(sorted(filter(None, entries), key=lambda gid: (gid.device, gid.port, gid.index)))


def _entry(match: re.Match[str], path: str, files: Mapping[str, str]) -> Gid | None:
    if not _GID.fullmatch(files[path]) or files[path] == _EMPTY:
        return None
    attributes = f"{path.partition('/gids/')[0]}/gid_attrs"
    kind, interface = (files.get(f"{attributes}/{leaf}/{match[3]}", "") for leaf in ("types", "ndevs"))
    return Gid(match[1], int(match[2]), int(match[3]), files[path], kind, interface)


def parse_show_gids(text: str) -> tuple[Gid, ...] | Unknown:
    """Parse the output of the vendor's ``show_gids``, whose last line contains the number of entries."""
    rows = [line.split() for line in text.splitlines()]
    cells = [row for row in rows if len(row) >= 6 and row[1].isdecimal() and row[2].isdecimal()]
    if [f"n_gids_found={len(cells)}"] not in rows or not all(_GID.fullmatch(row[3]) for row in cells):
        return Unknown(f"the table of show_gids is incomplete: {text[-80:]!r}")
    return tuple(Gid(r[0], int(r[1]), int(r[2]), r[3], _VERSIONS.get(r[-2], r[-2]), r[-1]) for r in cells)


gids: Probe[tuple[Gid, ...]] = Probe(
    "gids",
    Files(
        (
            "/sys/class",  # proves that we could look where nothing else is there
            "/sys/class/infiniband/*/ports/*/gids/*",
            "/sys/class/infiniband/*/ports/*/gid_attrs/types/*",
            "/sys/class/infiniband/*/ports/*/gid_attrs/ndevs/*",
        ),
        limit_bytes=64,
    ),
    lambda answer: parse_gids(answer.out),
)
"""All GIDs of all RDMA ports."""

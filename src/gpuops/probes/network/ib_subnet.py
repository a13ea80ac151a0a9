"""What the subnet manager of an InfiniBand fabric gave each port: its own address, and the port's partition keys.

``sm_lid`` of ``0x1`` is 1, and 0 if no subnet manager has reached the port; a key of ``0xffff`` is full membership of
the default partition, and ``0x7fff`` limited membership of the same.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from gpuops.probes.network.ib import IbPort
from gpuops.probing import Probe, Unknown
from gpuops.shell import Files, read_files

_PLACE = re.compile(r"/sys/class/infiniband/([^/]+)/ports/(\d{1,4})/sm_lid", re.ASCII)
_NUMBER = re.compile(r"0x[0-9a-fA-F]{1,4}")
_KEYS = 4
"""Entries that are asked for. A manager fills the table from its start, and each entry is a command to the adapter."""
_FULL_MEMBER = 0x8000


@dataclass(frozen=True, slots=True)
class IbSubnet:
    """One port. ``sm_lid`` is the LID of its subnet manager, 0 for none, None if it cannot be read.

    ``pkeys`` are its partition keys as the kernel prints them, without empty entries; None if one cannot be read.
    """

    device: str
    port: int
    sm_lid: int | None
    pkeys: tuple[int, ...] | None

    @property
    def membership(self) -> dict[int, bool]:
        """Partitions by their 15 bits, each with whether the port is a full member; full outweighs limited."""
        keys = self.pkeys or ()
        return {key & ~_FULL_MEMBER: (key | _FULL_MEMBER) in keys for key in keys}


def rails_with_subnet(
    ports: Iterable[IbPort], subnets: Iterable[IbSubnet], declared: Collection[str]
) -> Iterator[tuple[IbPort, IbSubnet]]:
    """Yield the InfiniBand ports of the ``declared`` devices, of all if there are none, with what the manager gave."""
    subnet_by_port = {(subnet.device, subnet.port): subnet for subnet in subnets}
    for port in ports:
        if port.link_layer == "InfiniBand" and (port.device in declared or not declared):
            place = port.device, port.port
            yield port, subnet_by_port.get(place) or IbSubnet(*place, None, None)


def parse_ib_subnet(text: str) -> tuple[IbSubnet, ...] | Unknown:
    """Return the ports of all RDMA devices; none if the node has none. RoCE ports have no subnet manager."""
    files = {path: content.strip() for path, content in read_files(text).items()}
    if "/sys/class" not in files:
        return Unknown("/sys/class cannot be read")
    ports = (match for match in map(_PLACE.fullmatch, files) if match)
    return tuple(IbSubnet(m[1], int(m[2]), _number(files[m[0]]), _pkeys(m[0], files)) for m in ports)


def _pkeys(path: str, files: dict[str, str]) -> tuple[int, ...] | None:
    folder = path.removesuffix("sm_lid")
    texts = [files[f"{folder}pkeys/{at}"] for at in range(_KEYS) if f"{folder}pkeys/{at}" in files]
    keys = [_number(text) for text in texts]
    known = tuple(key for key in keys if key)
    return known if texts and None not in keys else None


def _number(text: str) -> int | None:
    return int(text, 16) if _NUMBER.fullmatch(text) else None


ib_subnet: Probe[tuple[IbSubnet, ...]] = Probe(
    "ib_subnet",
    Files(
        (
            "/sys/class",  # proves that we could look where nothing else is there
            "/sys/class/infiniband/*/ports/*/sm_lid",
            *(f"/sys/class/infiniband/*/ports/*/pkeys/{at}" for at in range(_KEYS)),
        ),
        limit_bytes=64,
    ),
    lambda answer: parse_ib_subnet(answer.out),
)
"""Subnet manager and partitions of all RDMA ports."""

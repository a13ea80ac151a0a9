"""The RDMA ports (InfiniBand or RoCE) as the kernel knows them, and ibstat's text."""

from __future__ import annotations

from dataclasses import dataclass

from gpuops.probing import Probe, Unknown
from gpuops.shell import Files


@dataclass(frozen=True, slots=True)
class IbPort:
    """One port. ``state`` is ``Active``, ``Down``, ``Init`` or ``Armed``; ``phys_state`` ``LinkUp``, ``Polling`` ….

    ``rate_gbps`` is in Gbit/s; None where the port does not say. An empty text: not told.
    """

    device: str
    port: int
    state: str
    phys_state: str
    rate_gbps: float | None
    link_layer: str
    firmware: str = ""
    hca_type: str = ""
    pci_address: str = ""
    guid: str = ""
    board_id: str = ""


@dataclass(frozen=True)
class IbStat:
    """The ports that ibstat shows, and the ``error`` it ended with, if any."""

    ports: tuple[IbPort, ...]
    error: str = ""


def parse_ib_ports(text: str) -> tuple[IbPort, ...] | Unknown:
    """The ports, from the files of `ib_ports`; none is an answer: the node has no RDMA device."""
    return Unknown(f"not read yet: {text[:20]}")


def parse_ibstat(text: str) -> IbStat | Unknown:
    """The ports in ``ibstat``."""
    return Unknown(f"not read yet: {text[:20]}")


_PORT_LEAVES = ("state", "phys_state", "rate", "link_layer")
_DEVICE_LEAVES = ("fw_ver", "hca_type", "board_id", "node_guid", "device")

ib_ports: Probe[tuple[IbPort, ...]] = Probe(
    "ib_ports",
    Files(
        (
            "/sys/class",  # proves that we could look where nothing else is there
            *(f"/sys/class/infiniband/*/ports/*/{leaf}" for leaf in _PORT_LEAVES),
            *(f"/sys/class/infiniband/*/{leaf}" for leaf in _DEVICE_LEAVES),
        )
    ),
    lambda answer: parse_ib_ports(answer.out),
)

"""RDMA ports (InfiniBand or RoCE), from /sys or from ``ibstat``.

``rate`` of ``400 Gb/sec (4X NDR)`` is a ``rate_gbps`` of 400; ``state`` of ``4: ACTIVE`` is ``Active``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from gpuops.probes.numbers import integer, number
from gpuops.probes.nvidia.nvidia_smi.gpu import canonical_address
from gpuops.probing import Probe, Unknown
from gpuops.shell import Files, read_files

_PORT_LEAVES = ("state", "phys_state", "rate", "link_layer")
_DEVICE_LEAVES = ("fw_ver", "hca_type", "board_id", "node_guid", "device", "device/physfn")
_PORT = re.compile(r"/sys/class/infiniband/([^/]+)/ports/(\d{1,4})/state", re.ASCII)
_WIDTH = re.compile(r"\((\d{1,2})X (\w+)\)", re.ASCII)
_LANE_GBPS = {"SDR": 2.5, "DDR": 5, "QDR": 10, "FDR10": 10, "FDR": 14, "EDR": 25, "HDR": 50, "NDR": 100, "XDR": 200}
"""Rate of one lane, as the kernel computes ``rate`` from it (drivers/infiniband/core/sysfs.c, rate_show)."""


@dataclass(frozen=True, slots=True)
class IbPort:
    """One port. ``state`` is ``Active``, ``Down``, ``Init`` or ``Armed``; ``phys_state`` ``LinkUp``, ``Polling`` ….

    ``rate_gbps`` is in Gbit/s, None if the port does not report it. An empty string means not reported. A virtual
    function (SR-IOV) has a physical one on the same node; a virtual machine cannot see that, and there it is a device.
    ``4X NDR`` are 4 ``lanes`` with 100 Gbit/s each; None if not reported.
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
    is_virtual_function: bool = False
    lanes: int | None = None
    lane_gbps: float | None = None

    @property
    def carries_gbps(self) -> float | None:
        """What its lanes carry together, which a port without a fault also reports as its rate; None if unknown."""
        return self.lanes * self.lane_gbps if self.lanes and self.lane_gbps else None


@dataclass(frozen=True)
class IbStat:
    """Ports that ibstat lists, and the ``error`` it ended with, if any."""

    ports: tuple[IbPort, ...]
    error: str = ""


def parse_ib_ports(text: str) -> tuple[IbPort, ...] | Unknown:
    """Return the ports by device and number, from the files of `ib_ports`; none if the node has no RDMA device."""
    files = {path: content.strip() for path, content in read_files(text).items()}
    if "/sys/class" not in files:
        return Unknown("/sys/class cannot be read")
    ports = [_port(match[1], match[2], files) for match in map(_PORT.fullmatch, files) if match]
    return tuple(sorted(ports, key=_natural))


def _natural(port: IbPort) -> tuple[str, int]:
    """Return a sort key that puts mlx5_2 before mlx5_10."""
    return re.sub(r"\d+", lambda digits: digits[0].zfill(9), port.device), port.port


def _port(device: str, port: str, files: Mapping[str, str]) -> IbPort:
    root = f"/sys/class/infiniband/{device}"
    state, phys_state, rate, link_layer = (files.get(f"{root}/ports/{port}/{leaf}", "") for leaf in _PORT_LEAVES)
    firmware, hca_type, board_id, guid, target, physical = (files.get(f"{root}/{leaf}", "") for leaf in _DEVICE_LEAVES)
    lanes, lane_gbps = _lanes(rate)
    return IbPort(
        device=device,
        port=int(port),
        state=state.rpartition(" ")[2].capitalize(),  # the kernel writes "4: ACTIVE"
        phys_state=phys_state.rpartition(": ")[2],
        rate_gbps=number(rate),
        link_layer=link_layer,
        firmware=firmware,
        hca_type=hca_type,
        pci_address=canonical_address(target.rpartition("/")[2]) or "",
        guid=guid,
        board_id=board_id,
        is_virtual_function=bool(physical),
        lanes=lanes,
        lane_gbps=lane_gbps,
    )


@lru_cache(maxsize=64)  # ports have few different rates
def _lanes(rate: str) -> tuple[int | None, float | None]:
    """Return the lanes in a rate, and the Gbit/s of each."""
    width = _WIDTH.search(rate)
    return (int(width[1]), _LANE_GBPS.get(width[2])) if width else (None, None)


def parse_ibstat(text: str) -> IbStat | Unknown:
    """Return the ports in ``ibstat``; if it aborted half-way, ``error`` is set and a port may lack fields."""
    _, *parts = re.split(r"^CA '(.*)'$", text, flags=re.MULTILINE)
    ports = tuple(port for ca, body in zip(parts[::2], parts[1::2], strict=True) for port in _ca_ports(ca, body))
    messages = [line for line in text.splitlines() if line.strip() and line[0] not in " \t" and line[:4] != "CA '"]
    if not ports:
        return Unknown(f"ibstat lists no port: {(messages or ['no output'])[-1][:80]}")
    truncation = "" if ports[-1].link_layer in {"InfiniBand", "Ethernet"} else "the output is truncated"
    return IbStat(ports, messages[-1] if messages else truncation)


def _ca_ports(ca: str, body: str) -> Iterator[IbPort]:
    head, *parts = re.split(r"^\s+Port (\d{1,4}):$", body, flags=re.MULTILINE)
    device = _fields(head)
    for port, text in zip(parts[::2], parts[1::2], strict=True):
        fields = _fields(text)
        yield IbPort(
            device=ca,
            port=integer(port) or 0,
            state=fields.get("State", ""),
            phys_state=fields.get("Physical state", ""),
            rate_gbps=number(fields.get("Rate")),
            link_layer=fields.get("Link layer", ""),
            firmware=device.get("Firmware version", ""),
            hca_type=device.get("CA type", ""),
            guid=device.get("Node GUID", ""),
        )


def _fields(text: str) -> dict[str, str]:
    return dict(re.findall(r"^\s+([A-Z][\w ]*): (.*)$", text, flags=re.MULTILINE))


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
"""All RDMA ports of the node."""

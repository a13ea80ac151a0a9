"""NCCL's own log under ``NCCL_DEBUG=INFO``: its version, the ways it took, the algorithm, and who came how far."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_HOST = re.compile(r"(?P<host>[^\s:]+):\d+:\d+ (?:\[\d+\] )?NCCL INFO")
_READY = re.compile(r"\bcomm .*\brank \d+ .*Init COMPLETE")
_VERSION = re.compile(r"NCCL version (\d+\.\d+\.\d+)", re.ASCII)
_WAY = re.compile(r"\] via (\S.*)")
_ANNOUNCED = re.compile(r"Using network (\S.{0,39}?)\s*$")
_ALGORITHM = re.compile(r"\bBytes -> Algo (\w{1,30}) proto (\w{1,30})")
_PLUGIN = re.compile(r"Loaded net plugin (.+?)(?: \(v\d+\))?$")
_DEVICE = re.compile(r"\[\d+\](\w+):\d+")
_WARNING = re.compile(r"\bWARN (.+)")
_NO_WAY = re.compile(r"(connect|connection|call to).*(refused|timed out|unreachable|no route)", re.IGNORECASE)
# older releases print numbers for both (src/include/nccl_common.h)
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")
_BETWEEN = "NET/"
_TCP = "NET/Socket"
_MOST_WARNINGS = 8


@dataclass(frozen=True)
class NcclLog:
    """What NCCL told; each is empty where it did not.

    ``transports`` are those of its connections, as it names them (``P2P/CUMEM``, ``NET/IB``, a plugin's ``NET/AWS
    Libfabric``); over ``without_gdr`` of them a channel goes to the network through host memory. ``announced`` are the
    networks that it meant to use, ``devices`` the RDMA devices that it opened, ``plugin`` is its network plugin.
    ``algorithm`` and ``protocol`` are those of the last operation. ``ready`` counts, for each host that said anything,
    its ranks that finished ncclCommInitRank.
    """

    version: str = ""
    algorithm: str = ""
    protocol: str = ""
    transports: tuple[str, ...] = ()
    without_gdr: tuple[str, ...] = ()
    announced: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    plugin: str = ""
    ready: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def networks(self) -> tuple[str, ...]:
        """The transports between nodes; what was connected counts before what was announced."""
        return tuple(filter(_leaves, self.transports or self.announced))

    @property
    def gpu_direct(self) -> bool | None:
        """Whether all connections but those over TCP have GPUDirect RDMA; None where there is none of them."""
        rdma = set(filter(_leaves, self.transports)) - {_TCP}
        return rdma.isdisjoint(self.without_gdr) if rdma else None

    @property
    def no_way(self) -> str:
        """The warning that a connection did not come about; empty where there is none."""
        return next(filter(_NO_WAY.search, self.warnings), "")

    def __str__(self) -> str:
        """As ``NCCL 2.28.9, RING/SIMPLE over NET/IB with GDRDMA, P2P/CUMEM; plugin IBext_v10``."""
        version = f"NCCL {self.version}" if self.version else ""
        direct = set(self.networks) - set(self.without_gdr)
        ways = ", ".join(f"{name} with GDRDMA" if name in direct else name for name in self.transports)
        how = "/".join(filter(None, (self.algorithm, self.protocol)))
        told = ", ".join(filter(None, (version, " over ".join(filter(None, (how, ways))))))
        return f"{told}; plugin {self.plugin}" if self.plugin else told


def parse_nccl_log(text: str) -> NcclLog:
    """What NCCL's lines in ``text`` tell together, each with or without the host and process before it."""
    lines = text.splitlines()
    ways = list(_each(_WAY, lines))
    algorithm, protocol = next((x.groups() for x in map(_ALGORITHM.search, reversed(lines)) if x), ("", ""))
    return NcclLog(
        version=next(_each(_VERSION, lines), ""),
        algorithm=_named(algorithm, _ALGORITHMS),
        protocol=_named(protocol, _PROTOCOLS),
        transports=_sorted(map(_transport, ways)),
        without_gdr=_sorted(_transport(way) for way in ways if _leaves(way) and "/GDRDMA" not in way),
        announced=_sorted(_BETWEEN + name for name in _each(_ANNOUNCED, lines)),
        devices=_sorted(name for line in lines if "NET/IB" in line for name in _DEVICE.findall(line)),
        plugin=next(_each(_PLUGIN, reversed(lines)), ""),
        ready=_ready(lines),
        warnings=tuple(dict.fromkeys(_each(_WARNING, lines)))[:_MOST_WARNINGS],
    )


def _each(pattern: re.Pattern[str], lines: Iterable[str]) -> Iterator[str]:
    """What ``pattern`` names, line by line."""
    return (found[1] for line in lines if (found := pattern.search(line)))


def _ready(lines: Sequence[str]) -> dict[str, int]:
    known = dict.fromkeys(_each(_HOST, lines), 0)
    return known | Counter(_each(_HOST, filter(_READY.search, lines)))


def _leaves(way: str) -> bool:
    """Whether a transport leaves the node."""
    return way.startswith(_BETWEEN)


def _transport(way: str) -> str:
    """``NET/IB`` of ``NET/IB/0(1)/GDRDMA/Shared``."""
    return "/".join(way.split("/")[:2])


def _named(said: str, names: Sequence[str]) -> str:
    return dict(zip(map(str, range(len(names))), names, strict=True)).get(said, said.upper())


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))

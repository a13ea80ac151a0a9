"""NCCL's own log: the algorithm it took, over which transports, and what it warned of."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_VIA = re.compile(r" via (.+)")
_ALGORITHM = re.compile(r"Bytes -> Algo (\w+) proto (\w+)")
_PLUGIN = re.compile(r"Loaded net plugin (.+?)(?: \(v\d+\))?$")
_DEVICES = re.compile(r"\[\d+\](\w+):\d+")
_WARNING = re.compile(r"WARN (.+)")
_NO_WAY = re.compile(r"(connect|connection|call to).*(refused|timed out|unreachable|no route)", re.IGNORECASE)
_NUMBERED = {
    "0": "TREE",
    "1": "RING",
    "2": "COLLNET_DIRECT",
    "3": "COLLNET_CHAIN",
    "4": "NVLS",
    "5": "NVLS_TREE",
    "6": "PAT",
}
"""Before 2.24 the log gives algorithms by number (nccl's src/include/nccl_tuner.h)."""
_PROTOCOLS = {"0": "LL", "1": "LL128", "2": "SIMPLE"}


@dataclass(frozen=True)
class Conduct:
    """How NCCL went about it. Each is empty where the log does not tell.

    ``transports`` are as NCCL names them (``P2P/IPC``, ``NET/IB``); ``without_gdr`` are those of the network over which
    a channel goes through host memory. ``devices`` are the RDMA devices that it opened, ``plugin`` its network plugin.
    """

    algorithm: str = ""
    protocol: str = ""
    transports: tuple[str, ...] = ()
    without_gdr: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    plugin: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def networks(self) -> tuple[str, ...]:
        """The transports between nodes."""
        return tuple(name for name in self.transports if name.startswith("NET/"))

    @property
    def no_way(self) -> str:
        """The warning that a connection did not come about; empty where there is none."""
        return next((warning for warning in self.warnings if _NO_WAY.search(warning)), "")

    def __str__(self) -> str:
        """As ``RING/SIMPLE over NET/IB with GDRDMA, P2P/IPC; plugin IBext_v10``."""
        how = "/".join(filter(None, (self.algorithm, self.protocol)))
        direct = set(self.networks) - set(self.without_gdr)
        ways = [f"{name} with GDRDMA" if name in direct else name for name in self.transports]
        told = " over ".join(filter(None, (how, ", ".join(ways))))
        return f"{told}; plugin {self.plugin}" if self.plugin else told


def read_log(lines: Iterable[str]) -> Conduct:
    """What the log lines of all ranks of one communicator tell together; the last algorithm counts."""
    lines = tuple(lines)
    ways = [found[1] for line in lines if (found := _VIA.search(line))]
    plugins = [found[1] for line in lines if (found := _PLUGIN.search(line))]
    took = [found for line in lines if (found := _ALGORITHM.search(line))]
    algorithm, protocol = took[-1].groups() if took else ("", "")
    return Conduct(
        _NUMBERED.get(algorithm, algorithm),
        _PROTOCOLS.get(protocol, protocol),
        tuple(sorted(set(map(_transport, ways)))),
        tuple(sorted({_transport(way) for way in ways if way.startswith("NET/") and "/GDRDMA" not in way})),
        tuple(sorted({found[1] for line in lines if "NET/IB" in line for found in _DEVICES.finditer(line)})),
        plugins[-1] if plugins else "",
        tuple(dict.fromkeys(found[1] for line in lines if (found := _WARNING.search(line)))),
    )


def _transport(way: str) -> str:
    """``NET/IB`` of ``NET/IB/0(1)/GDRDMA/Shared``."""
    return "/".join(way.split("/")[:2])

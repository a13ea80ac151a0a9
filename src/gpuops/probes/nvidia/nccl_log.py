"""Parser of NCCL's log with ``NCCL_DEBUG=INFO``: version, transports, algorithm, and the progress of each host.

``gpu01:71:99 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA`` is the transport NET/IB with
GPUDirect RDMA.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpuops.probes.nvidia.launched_output import only_nccl, plain_lines

_HOST = re.compile(r"(?P<host>[^\s:]+):\d+:\d+ (?:\[\d+\] )?NCCL INFO")
_READY = re.compile(r"\bcomm .*\brank \d+ .*Init COMPLETE")
_VERSION = re.compile(r"NCCL version (\d+\.\d+\.\d+)", re.ASCII)
_VIA = re.compile(r"(\[receive\]|\]) via (\S.*)")
_REFUSED = re.compile(r"(GPU Direct RDMA Disabled for .+)")
_ANNOUNCED = re.compile(r"Using network (\S.{0,39}?)\s*$")
_ALGORITHM = re.compile(r"\b(\d{1,15}) Bytes -> Algo (\w{1,30}) proto (\w{1,30})", re.ASCII)
_MULTICAST = re.compile(r"NVLS multicast support is (not )?available")
_PLUGIN = re.compile(r"Loaded net plugin (.+?)(?: \(v\d+\))?$")
_DEVICE = re.compile(r"\[\d+\](\w+):\d+")
_WARNING = re.compile(r"\bWARN (.+)")
_NO_CONNECTION = re.compile(r"(connect|connection|call to).*(refused|timed out|unreachable|no route)", re.IGNORECASE)
_NO_SHARP = re.compile(r"CollNet|SHARP")
# older releases print numbers for both (src/include/nccl_common.h)
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")
_RECEIVES = "[receive]"
_BETWEEN = "NET/"
_COLLNET = "COLLNET/"
_TCP = "NET/Socket"
_MOST_WARNINGS = 8


@dataclass(frozen=True)
class NcclLog:
    """Contents of NCCL's log; a field is empty if the log has no line for it.

    ``transports`` are those of its connections, in NCCL's spelling (``P2P/CUMEM``, ``NET/IB``, a plugin's ``NET/AWS
    Libfabric``); with those in ``without_gdr``, a channel crosses host memory. With those in ``copying``, it does so
    although NCCL prefers GPUDirect RDMA: if NCCL listed channels that receive, only these count, because it chooses to
    send through host memory from GPUs older than Ampere. ``gdr_refusals`` are its reasons against GPUDirect RDMA.
    ``announced`` are the networks that NCCL intended to use, ``devices`` the RDMA devices that it opened, ``plugin`` is
    its network plugin. ``algorithm`` and ``protocol`` are those of the last operation, ``choices``
    those of each size in bytes, such as ``NVLS/SIMPLE``. ``multicast`` is whether the GPUs have NVLink SHARP; None if
    NCCL did not look, because it is disabled or there is one GPU. ``ready`` is the number of ranks
    that finished ncclCommInitRank, by host.
    """

    version: str = ""
    algorithm: str = ""
    protocol: str = ""
    transports: tuple[str, ...] = ()
    without_gdr: tuple[str, ...] = ()
    copying: tuple[str, ...] = ()
    gdr_refusals: tuple[str, ...] = ()
    announced: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    plugin: str = ""
    choices: Mapping[int, str] = field(default_factory=dict, hash=False)
    multicast: bool | None = None
    ready: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def network_transports(self) -> tuple[str, ...]:
        """Transports between nodes: those of connections, or if there are none, those that NCCL announced."""
        return tuple(filter(_is_network, self.transports or self.announced))

    @property
    def gpu_direct(self) -> bool | None:
        """True if no connection other than TCP copies through host memory; None if there are no such connections."""
        rdma = set(filter(_is_network, self.transports)) - {_TCP}
        return not self.copying if rdma else None

    @property
    def connection_error(self) -> str:
        """Warning about a failed connection; empty if there is none."""
        return next(filter(_NO_CONNECTION.search, self.warnings), "")

    @property
    def has_collnet(self) -> bool:
        """True if ranks are connected through CollNet, which reduces in the switches of the network."""
        return any(transport.startswith(_COLLNET) for transport in self.transports)

    @property
    def sharp_error(self) -> str:
        """Warning that SHARP in the switches, which NCCL calls CollNet, cannot be used; empty if there is none."""
        return next(filter(_NO_SHARP.search, self.warnings), "")

    def __str__(self) -> str:
        """Return text such as ``NCCL 2.28.9, RING/SIMPLE over NET/IB with GDRDMA, P2P/CUMEM; plugin IBext_v10``."""
        version = f"NCCL {self.version}" if self.version else ""
        direct = set(self.network_transports) - set(self.without_gdr)
        transports = ", ".join(f"{name} with GDRDMA" if name in direct else name for name in self.transports)
        algorithm = "/".join(filter(None, (self.algorithm, self.protocol)))
        summary = ", ".join(filter(None, (version, " over ".join(filter(None, (algorithm, transports))))))
        return f"{summary}; plugin {self.plugin}" if self.plugin else summary


def parse_nccl_log(text: str) -> NcclLog:
    """Parse all of NCCL's lines in ``text``, each with or without host and process in front."""
    lines = [only_nccl(line) for line in plain_lines(text)]
    connections = [match.groups() for match in map(_VIA.search, lines) if match]
    paths = [path for _, path in connections]
    receiving = [path for end, path in connections if end == _RECEIVES and _is_network(path)]
    chosen = [match.groups() for match in map(_ALGORITHM.search, lines) if match]
    choices = {int(size): "/".join(_in_words(how)) for size, *how in chosen}
    algorithm, protocol = _in_words(chosen[-1][1:]) if chosen else ("", "")
    multicast = [not match[1] for match in map(_MULTICAST.search, lines) if match]
    return NcclLog(
        version=next(_each(_VERSION, lines), ""),
        algorithm=algorithm,
        protocol=protocol,
        transports=_sorted(map(_transport, paths)),
        without_gdr=_sorted(map(_transport, filter(_crosses_host_memory, paths))),
        copying=_sorted(set(map(_transport, filter(_crosses_host_memory, receiving or paths))) - {_TCP}),
        gdr_refusals=tuple(dict.fromkeys(_each(_REFUSED, lines)))[:_MOST_WARNINGS],
        announced=_sorted(_BETWEEN + name for name in _each(_ANNOUNCED, lines)),
        devices=_sorted(name for line in lines if "NET/IB" in line for name in _DEVICE.findall(line)),
        plugin=next(_each(_PLUGIN, reversed(lines)), ""),
        choices=choices,
        multicast=all(multicast) if multicast else None,
        ready=_ready_by_host(lines),
        warnings=tuple(dict.fromkeys(_each(_WARNING, lines)))[:_MOST_WARNINGS],
    )


def _each(pattern: re.Pattern[str], lines: Iterable[str]) -> Iterator[str]:
    """Yield the first group of ``pattern`` from each line that matches."""
    return (match[1] for line in lines if (match := pattern.search(line)))


def _ready_by_host(lines: Sequence[str]) -> dict[str, int]:
    zero_by_host = dict.fromkeys(_each(_HOST, lines), 0)
    return zero_by_host | Counter(_each(_HOST, filter(_READY.search, lines)))


def _is_network(transport: str) -> bool:
    """Return True if a transport leaves the node."""
    return transport.startswith(_BETWEEN)


def _crosses_host_memory(path: str) -> bool:
    return _is_network(path) and "/GDRDMA" not in path


def _transport(path: str) -> str:
    """Return ``NET/IB`` for ``NET/IB/0(1)/GDRDMA/Shared``."""
    return "/".join(path.split("/")[:2])


def _in_words(how: Sequence[str]) -> tuple[str, str]:
    """Return the names of an algorithm and a protocol."""
    return _name(how[0], _ALGORITHMS), _name(how[1], _PROTOCOLS)


def _name(name_or_number: str, names: Sequence[str]) -> str:
    return dict(zip(map(str, range(len(names))), names, strict=True)).get(name_or_number, name_or_number.upper())


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))

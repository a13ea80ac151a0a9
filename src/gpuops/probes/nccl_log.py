"""NCCL's own log under ``NCCL_DEBUG=INFO``: its version, the way between nodes, the algorithm, and who came how far."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

_LINE = re.compile(r"(?P<host>[^\s:]+):\d+:\d+ (?:\[\d+\] )?NCCL INFO (?P<text>.*)")
_WARNING = re.compile(r"NCCL WARN (.*)")
_VERSION = re.compile(r"NCCL version (\d+\.\d+\.\d+)", re.ASCII)
_CONNECTION = re.compile(r"\[send\] via NET/([^/\n]{1,40})/\d+(\S*)", re.ASCII)
_NETWORK = re.compile(r"Using network (\S.{0,39}?)\s*$")
_READY = re.compile(r"\bcomm .*\brank \d+ .*Init COMPLETE")
_ALGORITHM = re.compile(r"\bBytes -> Algo (\w{1,30}) proto \w+")
# the numbers that releases before 2.22 print for them (src/include/nccl_common.h)
_NUMBERED = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_TCP = "Socket"
_MOST_WARNINGS = 8


@dataclass(frozen=True)
class NcclLog:
    """What NCCL told; each is empty where it did not.

    ``networks`` are the transports between nodes (``IB``, ``Socket``, a plugin's ``IBext_v10`` or ``AWS Libfabric``);
    ``gpu_direct`` is whether all connections but those over TCP have GPUDirect RDMA, None where there is none of them.
    ``algorithm`` is that of the last operation. ``ready`` counts, for each host that said anything, its ranks that
    finished ncclCommInitRank.
    """

    version: str = ""
    networks: tuple[str, ...] = ()
    gpu_direct: bool | None = None
    algorithm: str = ""
    ready: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def parse_nccl_log(text: str) -> NcclLog:
    """What NCCL's lines in ``text`` tell. What was connected counts before what was announced."""
    lines = [found.group("host", "text") for found in map(_LINE.search, text.splitlines()) if found]
    links = [found for _, said in lines if (found := _CONNECTION.search(said))]
    announced = [found[1] for _, said in lines if (found := _NETWORK.search(said))]
    direct = ["GDRDMA" in link[2] for link in links if link[1] != _TCP]
    version, algorithms = _VERSION.search(text), _ALGORITHM.findall(text)
    ready = Counter(host for host, said in lines if _READY.search(said))
    return NcclLog(
        version=version[1] if version else "",
        networks=tuple(sorted({link[1] for link in links} or set(announced))),
        gpu_direct=all(direct) if direct else None,
        algorithm=_named(algorithms[-1]) if algorithms else "",
        ready={host: ready[host] for host, _ in lines},
        warnings=tuple(dict.fromkeys(_WARNING.findall(text)))[:_MOST_WARNINGS],
    )


def _named(algorithm: str) -> str:
    numbers = dict(zip(map(str, range(len(_NUMBERED))), _NUMBERED, strict=True))
    return numbers.get(algorithm, algorithm.upper())

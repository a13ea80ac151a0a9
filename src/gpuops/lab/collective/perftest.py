"""Simulated ib_write_bw: a server waits on one host, a client connects to it, and both print the table.

The client runs on another host, or on the same one: then nothing but the HCA and its PCIe link is in the way.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

from gpuops.lab.collective.hosts import Hosts
from gpuops.lab.model import Nic, Node
from gpuops.lab.tools.answer import Answer

PROGRAM = "ib_write_bw"
_REACHED = 0.985
_SECONDS = 0.5
_PORT = "18515"
_ITSELF = ("127.0.0.1", "localhost", "::1")
_TABLE = """\
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF          Device         : {device}
 Number of qps   : 1            Transport type : IB
 Link type       : {layer}
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]
 {size:<10} {iterations:<10}       {rate:.2f}             {rate:.2f}               {messages:.6f}
---------------------------------------------------------------------------------------
"""


class Listening:
    """The servers that wait for a client, by host and port."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], asyncio.Future[Nic]] = {}
        self._devices: dict[tuple[str, str], Nic] = {}

    async def run(self, hosts: Hosts, words: Sequence[str], host: str) -> Answer:
        """Run a server if no other host is named, else the client."""
        options = dict(itertools.pairwise(words))
        nic = _device(hosts.node(host), options.get("-d", options.get("--ib-dev", "")))
        port = options.get("-p", options.get("--port", _PORT))
        hosts.note(host, f"{PROGRAM} {' '.join(words)}")
        if nic is None or not nic.up:
            return Answer(
                err=f" IB device {options.get('-d', '')} not found\n Unable to find the Infiniband/RoCE device\n",
                code=1,
            )
        server = _server(words)
        if not server:
            return await self._serve((host, port), nic, words)
        return await self._connect(hosts, host, (host if server in _ITSELF else server, port), nic, words)

    async def _serve(self, place: tuple[str, str], nic: Nic, words: Sequence[str]) -> Answer:
        self._devices[place] = nic
        self._waiting[place] = asyncio.get_running_loop().create_future()
        try:
            return _table(nic, await self._waiting[place], words)
        finally:
            self._devices.pop(place, None)
            self._waiting.pop(place, None)

    async def _connect(self, hosts: Hosts, host: str, place: tuple[str, str], nic: Nic, words: Sequence[str]) -> Answer:
        waiting, other = self._waiting.get(place), self._devices.get(place)
        if waiting is None or other is None or waiting.done():
            return Answer(err=f" Couldn't connect to {place[0]}:{place[1]}\n Unable to open file descriptor\n", code=1)
        await asyncio.sleep(_SECONDS)
        waiting.set_result(nic)
        if place[0] == host and nic.name == other.name:
            return _table(nic, other, words, nic.loopback_gb_per_s)
        hosts.age_nic(place[0], other.name, _SECONDS)
        return _table(nic, other, words)


def _server(words: Sequence[str]) -> str:
    """Return the one word that is neither an option nor an option's value."""
    flags = ("--report_gbits", "-F", "-R", "-a", "-b", "--CPU-freq")
    before = ("", *words)
    plain = (
        word
        for last, word in zip(before, words, strict=False)
        if not word.startswith("-") and (not last.startswith("-") or last in flags)
    )
    return next(plain, "")


def _device(node: Node, name: str) -> Nic | None:
    return next((nic for nic in node.nics if nic.name == name or not name), None)


def _table(nic: Nic, other: Nic, words: Sequence[str], gb_per_s: float | None = None) -> Answer:
    """Return the table; without a rate, the slower of the two ports decides, as data flows in one direction."""
    options = dict(itertools.pairwise(words))
    size = int(options.get("-s", options.get("--size", "65536")))
    gbps = 8 * _REACHED * (gb_per_s or min(nic.gb_per_s, other.gb_per_s))
    bits = "--report_gbits" in words
    text = _TABLE.format(
        device=nic.name,
        layer="IB" if nic.link_layer == "InfiniBand" else "Ethernet",
        unit="Gb/sec" if bits else "MB/sec",
        size=size,
        iterations=options.get("-n", options.get("--iters", "5000")),
        rate=gbps if bits else gbps * 1e9 / 8 / 2**20,
        messages=gbps * 1e3 / 8 / size,
    )
    return Answer(out=text)

"""The write bandwidth of every rail between disjoint pairs of nodes, measured with ib_write_bw if it is installed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from gpuops.collective.pool import Pool
from gpuops.probes.network.ib_write_bw import parse_ib_write_bw
from gpuops.probing import Unknown
from gpuops.shell import Command, Completed

PROGRAM = "ib_write_bw"
_SECONDS = 2
"""Measuring time of ib_write_bw."""
_LIMIT_SECONDS = 20.0
_FIRST_PORT = 18515
_UNTIL_THE_SERVER_LISTENS = 'for try in 1 2 3 4 5; do ib_write_bw "$@" && exit; sleep 1; done; exit 1'
Rail = tuple[str, str, str]
"""Two nodes and the device that both have."""


def measure_write_bandwidth(
    pool: Pool, devices: Mapping[str, Sequence[str]], address: Callable[[str], str]
) -> dict[Rail, float | None]:
    """Return the Gbit/s of every device that two nodes share, each node with two others; None if it was not measured.

    ``devices`` by node; ``address`` returns a node's address for its peers. Nodes without perftest are omitted.
    """
    there = pool.ask([Command((PROGRAM, "--version"))], list(devices))
    nodes = [node for node, (answer,) in there.items() if not answer.missing]
    rates: dict[Rail, float | None] = {}
    for pairs in disjoint(nodes):
        rates |= dict(_at_once(pool, {pair: _shared(devices, pair) for pair in pairs}, address))
    return rates


def disjoint(nodes: Sequence[str]) -> list[list[tuple[str, str]]]:
    """Return rounds of disjoint pairs in which every node is paired with both of its neighbours in a ring."""
    ring = list(itertools.pairwise([*nodes, nodes[0]] if len(nodes) > 2 else nodes))
    closing = [ring.pop()] if len(ring) % 2 and len(ring) > 1 else []  # it conflicts with the first and the last pair
    return [pairs for pairs in (ring[::2], ring[1::2], closing) if pairs]


def _shared(devices: Mapping[str, Sequence[str]], pair: tuple[str, str]) -> list[str]:
    return [device for device in devices[pair[0]] if device in devices[pair[1]]]


def _at_once(
    pool: Pool, shared: Mapping[tuple[str, str], Sequence[str]], address: Callable[[str], str]
) -> Iterator[tuple[Rail, float | None]]:
    commands: dict[str, list[Command]] = {}
    for (server, client), devices in shared.items():
        commands[server] = [_command(device, port) for port, device in enumerate(devices, _FIRST_PORT)]
        commands[client] = [_command(device, port, address(server)) for port, device in enumerate(devices, _FIRST_PORT)]
    answers = pool.each(lambda transport, host: transport.batch(commands[host.name]), list(commands))
    for (server, client), devices in shared.items():
        for device, answer in zip(devices, answers.get(client, ()), strict=False):
            yield (server, client, device), gbps_of(answer)


def _command(device: str, port: int, server: str = "") -> Command:
    """Return the command of a server if none is named, else of a client, which retries until the server listens."""
    own = ("-d", device, *options(port))
    words = ("sh", "-c", _UNTIL_THE_SERVER_LISTENS, "sh", *own, server) if server else (PROGRAM, *own)
    return Command(words, timeout_seconds=_LIMIT_SECONDS)


def options(port: int) -> list[str]:
    """Return the options that both ends share: two queues of 8 MiB messages, and the TCP ``port`` to meet at."""
    return f"-i 1 -p {port} -s 8388608 -q 2 -D {_SECONDS} --report_gbits -F".split()


def gbps_of(answer: Completed) -> float | None:
    """Return the Gbit/s that ib_write_bw printed; None if it printed none."""
    rows = parse_ib_write_bw(answer.out)
    return None if isinstance(rows, Unknown) else rows[-1].average_gbps

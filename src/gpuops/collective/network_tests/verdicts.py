"""Verdicts of the network tests: the requirements between nodes before the load, judged from answers alone; pure."""

from __future__ import annotations

import ipaddress
import statistics
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from gpuops.facts import Facts
from gpuops.inventory import Host
from gpuops.probes.host.limits import limits
from gpuops.probes.network.gids import Gid, gids
from gpuops.probes.network.ib import IbPort, ib_ports
from gpuops.probing import Unknown
from gpuops.reasons import Excluded

T = TypeVar("T", bound=Hashable)
CLOCK_SECONDS = 1.0
"""Maximum distance of a clock from the median, our own choice: logs and timeouts can still be compared."""
MEMLOCK_BYTES = 16 << 30
"""Source: AWS's checks for EFA. Open MPI and NCCL require no limit at all."""
MIN_LINE_RATE_RATIO = 0.90
"""Minimum fraction of a port's line rate. Source: perftest floors of Azure (380 of 400), OCI (192 of 200, 384 of 400)
and imbue."""
PAIRS_UP_TO = 256
"""Up to this many nodes, all pairs are tested; beyond it, each node tests peers at distances of powers of two."""


NetworkTest = Literal["names", "clocks", "tcp", "mtu", "memlock", "rdma", "ib_write_bw"]


@dataclass(frozen=True)
class NetworkFailure:
    """A failed test of one node or one pair of nodes: the reason, and what to do.

    ``excludes`` is False if the pair is only slow: the all-reduce shows with which partners, and one slow pair blames
    no part. ``device`` is the one at fault, if it is one. ``blocked`` are the pairs (from, to) that failed, with the
    reason of each.
    """

    test: NetworkTest
    nodes: tuple[str, ...]
    why: str
    do: str
    excludes: bool = True
    device: str = ""
    blocked: tuple[tuple[str, str, str], ...] = ()


def partners(nodes: Sequence[str], up_to: int = PAIRS_UP_TO) -> dict[str, tuple[str, ...]]:
    """Return the partners of each node: all others, or beyond ``up_to`` nodes those 1, 2, 4 … places further."""
    count = len(nodes)
    steps = range(1, count) if count <= up_to else [1 << bit for bit in range((count - 1).bit_length())]
    return {node: tuple(nodes[(place + step) % count] for step in steps) for place, node in enumerate(nodes)}


def exclusions(failures: Iterable[NetworkFailure], nodes: Sequence[str]) -> dict[str, Excluded]:
    """Return the fewest nodes to exclude so that no failure remains, each with its reason.

    The node with more failures of a pair is excluded; if both have equally many, the later one in the order of
    ``nodes``.
    """
    failures = [failure for failure in failures if failure.excludes]
    decisive = {failure.nodes[0]: failure for failure in reversed([f for f in failures if len(f.nodes) == 1])}
    pairs = [failure for failure in failures if len(failure.nodes) > 1]
    while open_pairs := [pair for pair in pairs if not decisive.keys() & set(pair.nodes)]:
        count = Counter(node for pair in open_pairs for node in pair.nodes)
        worst = max(count, key=lambda node: (count[node], nodes.index(node)))
        decisive[worst] = next(pair for pair in open_pairs if worst in pair.nodes)
    return {
        node: Excluded(node, "defective", f"{failure.test}: {failure.why}", do=failure.do)
        for node, failure in decisive.items()
    }


def names(lookups: Mapping[str, Mapping[str, Any]], owners: Mapping[str, str]) -> Iterator[NetworkFailure]:
    """Every node resolves a name to the same address. ``lookups`` by node and name; ``owners`` maps names to nodes."""
    do = "add the same names to DNS, or to /etc/hosts of every node"
    addresses = {
        (node, owners[name]): _address(answer, itself=owners[name] == node)
        for node, names_ in lookups.items()
        for name, answer in names_.items()
    }
    blocked = {pair: why for pair, (_, why) in addresses.items() if why}
    yield from _blame("names", blocked, set(addresses), "resolve", do)
    for owner in dict.fromkeys(owner for _, owner in addresses):
        here = {node: place for (node, of), (place, _) in addresses.items() if of == owner and place and node != owner}
        usual = most_common(here.values())
        for node, place in here.items():
            if place != usual:
                yield NetworkFailure("names", (node,), f"{owner} resolves to {place} here and to {usual} elsewhere", do)


def _address(answer: Mapping[str, Any], *, itself: bool) -> tuple[str, str]:
    """Return an address that a peer can use, or the reason why there is none."""
    if "error" in answer:
        return "", str(answer["error"])
    addresses = [str(address) for address in answer["addresses"]]
    if itself or not all(ipaddress.ip_address(a.partition("%")[0]).is_loopback for a in addresses):
        return " ".join(addresses), ""
    return "", f"it resolves to {addresses[0]}, the machine itself"


def clocks(
    unix_seconds: Mapping[str, float], uncertainty_seconds: float, here: float | None = None
) -> Iterator[NetworkFailure]:
    """Compare the clocks; ``uncertainty_seconds`` is how far apart in time the answers may be.

    Of two nodes, the clock of this machine, ``here``, decides which one is off.
    """
    decisive = [here] if here is not None and len(unix_seconds) == 2 else []
    middle = statistics.median([*unix_seconds.values(), *decisive]) if unix_seconds else 0.0
    for node, seconds in unix_seconds.items():
        off = seconds - middle
        if abs(off) > CLOCK_SECONDS + uncertainty_seconds:
            why = f"its clock is {abs(off):.0f} s {'ahead of' if off > 0 else 'behind'} the others'"
            do = f"chronyc makestep   on {node}; then find out why the clock drifted"
            yield NetworkFailure("clocks", (node,), why, do)


def connections(blocked: Mapping[tuple[str, str], str], tried: Collection[tuple[str, str]]) -> Iterator[NetworkFailure]:
    """Every node reaches every other by TCP; pairs are (from, to)."""
    do = "open all TCP ports between the nodes, because NCCL listens on ephemeral ones; check nft list ruleset"
    yield from _blame("tcp", blocked, tried, "connect to", do)


def packets(answers: Mapping[tuple[str, str], Mapping[str, Any]]) -> Iterator[NetworkFailure]:
    """All nodes have the same MTU, and packets of that size arrive; pairs are (from, to)."""
    passing = {pair: answer for pair, answer in answers.items() if answer.get("small")}  # else no datagrams pass
    mtus = {node: int(answer["mtu"]) for (node, _), answer in passing.items()}
    usual = most_common(mtus.values())
    devices = {node: answer.get("device") or "DEV" for (node, _), answer in passing.items()}
    for node, mtu in mtus.items():
        if mtu != usual:
            do = f"ip link set {devices[node]} mtu {usual}   on {node}"
            yield NetworkFailure("mtu", (node,), f"its MTU is {mtu}, but {usual} on the others", do)
    blocked = {
        pair: f"packets of {answer['mtu']} bytes do not arrive"
        + (f"; the path allows {answer['path_mtu']}" if answer["path_mtu"] < answer["mtu"] else "")
        for pair, answer in passing.items()
        if not answer["whole"]
    }
    do = "raise the MTU of the switches between them, or lower that of the nodes"
    yield from _blame("mtu", blocked, set(passing), "send full-size packets to", do)


def _blame(
    test: NetworkTest, blocked: Mapping[tuple[str, str], str], tried: Collection[tuple[str, str]], verb: str, do: str
) -> Iterator[NetworkFailure]:
    """Yield a node that failed with more than half of its partners alone, other failures as pairs.

    Source of the half: ROCm/cvs, rdma_connectivity.py (prune_failure_threshold 0.5).
    """
    open_pairs, remaining = dict(blocked), set(tried)
    while open_pairs:
        node, side, failed, of = _worst(open_pairs, remaining)
        if failed < 2 or 2 * failed <= of:
            break
        why = next(why for pair, why in open_pairs.items() if pair[side] == node)
        what = f"{failed} of {of} nodes cannot {verb} it" if side else f"it cannot {verb} {failed} of {of} nodes"
        concerned = tuple((*pair, why) for pair, why in open_pairs.items() if pair[side] == node)
        yield NetworkFailure(test, (node,), f"{what}: {why}", do, blocked=concerned)
        open_pairs = {pair: why for pair, why in open_pairs.items() if node not in pair}
        remaining = {pair for pair in remaining if node not in pair}
    for a, b in {frozenset(pair): pair for pair in reversed(open_pairs)}.values():
        why = open_pairs[a, b]
        yield NetworkFailure(test, (a, b), f"{a} cannot {verb} {b}: {why}", do, blocked=((a, b, why),))


def _worst(blocked: Collection[tuple[str, str]], tried: Collection[tuple[str, str]]) -> tuple[str, int, int, int]:
    """Return the node with most failures: its name, its role (0 source, 1 target), how many, and of how many pairs."""
    of = Counter((pair[side], side) for pair in tried for side in (0, 1))
    failed = Counter((pair[side], side) for pair in blocked for side in (0, 1))
    (node, side), count = max(failed.items(), key=lambda item: (item[1] / of[item[0]], item[1], item[0][1]))
    return node, side, count, of[node, side]


def most_common(values: Iterable[T]) -> T | None:
    """Return the most common value; of several such, the first."""
    return next((value for value, _ in Counter(values).most_common(1)), None)


def memory(facts: Mapping[str, Facts]) -> Iterator[NetworkFailure]:
    """Check, on nodes with RDMA, that a session like the one that starts a job can lock enough memory."""
    do = "set memlock unlimited in /etc/security/limits.d and LimitMEMLOCK=infinity for sshd and slurmd; log in again"
    for node, own in facts.items():
        limits_here = own[limits]
        lock = None if isinstance(limits_here, Unknown) else limits_here.get("Max locked memory")
        if lock is not None and lock.soft is not None and lock.soft < MEMLOCK_BYTES:
            yield NetworkFailure("memlock", (node,), f"a session can lock only {lock.soft >> 10} KiB of memory", do)


def rdma(hosts: Mapping[str, Host], facts: Mapping[str, Facts]) -> Iterator[NetworkFailure]:
    """Check that all nodes have the same rails up: the declared ones, else those that most nodes have up."""
    ports_by_node = {node: _ports(own) for node, own in facts.items()}
    up = Counter(device for ports in ports_by_node.values() for device, port in ports.items() if port.state == "Active")
    common = {device for device, count in up.items() if 2 * count > len(ports_by_node)}
    layers = {d: most_common(ports[d].link_layer for ports in ports_by_node.values() if d in ports) for d in up}
    for node, ports in ports_by_node.items():
        table = facts[node][gids]
        for device in sorted(set(hosts[node].fabric) or common):
            why = _port_trouble(ports.get(device), layers.get(device) or "", table)
            if why:
                do = "compare ibstat and show_gids with those of a healthy node"
                yield NetworkFailure("rdma", (node,), f"{device} {why}", do, device=device)


def _ports(facts: Facts) -> dict[str, IbPort]:
    """Return the first port of each device."""
    ports = facts[ib_ports]
    return {} if isinstance(ports, Unknown) else {port.device: port for port in reversed(ports)}


def _port_trouble(port: IbPort | None, layer: str, table: tuple[Gid, ...] | Unknown) -> str:
    if port is None:
        return "is missing"
    if port.state != "Active":
        return f"is {port.state or 'in an unknown state'}"
    if port.link_layer != layer:
        return f"uses {port.link_layer} here and {layer} elsewhere"
    own = () if isinstance(table, Unknown) else [g for g in table if (g.device, g.port) == (port.device, port.port)]
    if layer == "Ethernet" and own and not any(gid.kind == "RoCE v2" for gid in own):
        return "has no RoCE v2 GID"
    return ""


class _LowRate(NamedTuple):
    """The fault of a device between two nodes. ``fails``: it writes nothing at all."""

    why: str
    fails: bool


def rails(
    gbps: Mapping[tuple[str, str, str], float | None], line_gbps: Mapping[tuple[str, str], float]
) -> Iterator[NetworkFailure]:
    """Each HCA writes at line rate. ``gbps`` by (node, node, device), None if it failed; lines by (node, device)."""
    low: dict[tuple[str, str, str], _LowRate] = {}
    for (a, b, device), rate in gbps.items():
        line = min(line_gbps[a, device], line_gbps[b, device])
        if rate is None:
            low[a, b, device] = _LowRate("fails", fails=True)
        elif rate < MIN_LINE_RATE_RATIO * line:
            low[a, b, device] = _LowRate(f"writes {rate:.0f} of {line:.0f} Gbit/s", fails=False)
    tested = Counter((node, device) for a, b, device in gbps for node in (a, b))
    bad = Counter((node, device) for a, b, device in low for node in (a, b))
    alone = {part for part in bad if bad[part] == tested[part] > 1}
    do = "clean or replace the optic and cable; check the port's symbol errors and its PCIe link"
    for node, device in alone:
        with_ = [b if a == node else a for a, b, d in low if d == device and node in (a, b)]
        first = next(rate for (a, b, d), rate in low.items() if d == device and node in (a, b))
        why = f"{device} {first.why} with {' and '.join(with_)}"
        yield NetworkFailure("ib_write_bw", (node,), why, do, excludes=first.fails)
    for (a, b, device), slow in low.items():
        if not {(a, device), (b, device)} & alone:
            yield NetworkFailure("ib_write_bw", (a, b), f"{device} {slow.why}", do, excludes=slow.fails)

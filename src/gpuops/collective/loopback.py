"""Loopback: ib_write_bw of each HCA with itself, which tells the HCA and its PCIe link from its cable and the switches.

The data crosses the HCA and its PCIe link in both directions, and no cable: an HCA that is slow with others and here is
slow because of itself, its slot or its memory; one that is slow only with others has a bad cable, port or partner.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from gpuops.collective.measurement import excluded_document
from gpuops.collective.network_tests.perftest import PROGRAM, gbps_of, options
from gpuops.collective.pool import Pool
from gpuops.collective.session import Snapshot
from gpuops.errors import CancelledError
from gpuops.facts import Facts
from gpuops.inventory import Host
from gpuops.probes.host.pcie import PcieLink, pcie
from gpuops.probes.network.ib import ib_ports
from gpuops.probing import Unknown
from gpuops.reasons import Conclusion, Excluded, FailOn, Result
from gpuops.secret import redact
from gpuops.shell import Command, Completed

MIN_OF_MEDIAN = 0.9
"""Less than this fraction of the median of HCAs with the same line rate is low. Source: the floors of Azure's and OCI's
checks with ib_write_bw are 0.90 to 0.98 of the line rate, and loopback has no network that could add to that."""
MIN_OF_LIMIT = 0.8
"""A median below this fraction of what line rate and PCIe allow is low for all. Source: the lowest published floor of a
loopback, 160 of 200 Gbit/s (Azure, NDv4); others are 390 of 400 (Azure/azurehpc-health-checks, check_ib_bw_non_gdr)."""
_TRIES = 3
"""A low HCA is measured again, and its best result counts: other programs can disturb one run."""
_LIMIT_SECONDS = 30.0
_PORT = 18515
_SCRIPT = """\
device=$1
shift
near=$(cat "/sys/class/infiniband/$device/device/local_cpulist" 2>/dev/null)
if [ -n "$near" ] && command -v taskset >/dev/null; then pin="taskset -c $near"; else pin=; fi
$pin ib_write_bw -d "$device" "$@" >/dev/null 2>&1 &
trap 'kill $! 2>/dev/null' EXIT
for try in 1 2 3 4 5 6 7 8 9 10; do
    sleep 0.5
    $pin ib_write_bw -d "$device" "$@" 127.0.0.1 && exit
    kill -0 $! 2>/dev/null || break
done
exit 1"""
"""Both ends near the HCA: memory of the other CPU socket would be the limit. The client may come before the server."""
_ENCODING = {2.5: 0.8, 5.0: 0.8}
_128B_130B = 128 / 130
_PACKETS = 256 / (256 + 28)
"""Payloads of 256 bytes (MaxPayloadSize of current servers) with 28 bytes of header, sequence number, CRC and acks.

Source: PCI-SIG, PCI Express Base Specification, framing and transaction layer packets.
"""
Status = Literal["ok", "low", "unknown"]


def pcie_gb_per_s(speed_gt_per_s: float | None, width: int | None) -> float | None:
    """Return the GB/s of payload that a PCIe link carries in one direction; None if the link is not known."""
    if not speed_gt_per_s or not width:
        return None
    return speed_gt_per_s * width / 8 * _ENCODING.get(speed_gt_per_s, _128B_130B) * _PACKETS


@dataclass(frozen=True)
class HcaLoopback:
    """One HCA: its rate with itself, its port's line rate, and its PCIe link. ``why`` says why a rate is missing."""

    node: str
    device: str
    line_gb_per_s: float
    pcie: PcieLink | None = None
    gb_per_s: float | None = None
    why: str = ""

    @property
    def pcie_gb_per_s(self) -> float | None:
        """What its PCIe link carries as it is trained now."""
        return pcie_gb_per_s(self.pcie.speed_gt_per_s, self.pcie.width) if self.pcie else None

    @property
    def limit_gb_per_s(self) -> float:
        """What a healthy HCA of this kind can reach: the line rate, or less in a narrow slot."""
        slot = pcie_gb_per_s(self.pcie.max_speed_gt_per_s, self.pcie.max_width) if self.pcie else None
        return min(self.line_gb_per_s, slot or self.line_gb_per_s)

    @property
    def is_pcie_degraded(self) -> bool:
        """True if its PCIe link trained to fewer lanes or less speed than HCA and slot can."""
        now = self.pcie_gb_per_s
        best = pcie_gb_per_s(self.pcie.max_speed_gt_per_s, self.pcie.max_width) if self.pcie else None
        return now is not None and best is not None and now < best


@dataclass(frozen=True)
class LoopbackClass:
    """HCAs of one line rate with their median; ``is_low`` if the median is low, so that it blames no single HCA."""

    line_gb_per_s: float
    hcas: tuple[HcaLoopback, ...]

    @functools.cached_property
    def rates(self) -> list[float]:
        """The rates that were measured."""
        return [hca.gb_per_s for hca in self.hcas if hca.gb_per_s is not None]

    @functools.cached_property
    def median(self) -> float | None:
        """The median in GB/s; None if nothing was measured."""
        return statistics.median(self.rates) if self.rates else None

    @functools.cached_property
    def limit_gb_per_s(self) -> float:
        """What most HCAs of the class can reach."""
        return statistics.median(hca.limit_gb_per_s for hca in self.hcas)

    @functools.cached_property
    def is_low(self) -> bool:
        """True if several HCAs were measured, and most are far below what line rate and PCIe allow."""
        return len(self.rates) > 1 and (self.median or 0.0) < MIN_OF_LIMIT * self.limit_gb_per_s

    def status(self, hca: HcaLoopback) -> Status:
        """Return how an HCA of the class is, next to the others."""
        if hca.gb_per_s is None:
            return "unknown"
        floor = 0.0 if self.is_low else MIN_OF_LIMIT * hca.limit_gb_per_s
        return "low" if hca.gb_per_s < max(floor, MIN_OF_MEDIAN * (self.median or 0.0)) else "ok"

    def with_status(self, status: Status) -> list[HcaLoopback]:
        """Return the HCAs of one status."""
        return [hca for hca in self.hcas if self.status(hca) == status]


@dataclass(frozen=True)
class Loopback(Result):
    """The loopback of every HCA of idle nodes; ``excluded`` are the nodes that were not measured."""

    SCHEMA: ClassVar[str] = "gpuops.loopback/1"

    hcas: tuple[HcaLoopback, ...]
    excluded: Mapping[str, Excluded] = field(default_factory=dict)
    interrupted: bool = False
    seconds: float = 0.0

    @functools.cached_property
    def classes(self) -> list[LoopbackClass]:
        """The HCAs by line rate, the fastest first."""
        rates = sorted({hca.line_gb_per_s for hca in self.hcas}, reverse=True)
        return [LoopbackClass(rate, tuple(h for h in self.hcas if h.line_gb_per_s == rate)) for rate in rates]

    def conclusion(self, fail_on: FailOn = "fail") -> Conclusion:  # noqa: ARG002 - every result has it
        """Return ``failed`` if an HCA or a class is low, ``incomplete`` if one could not be measured."""
        if self.interrupted:
            return "interrupted"
        if any(each.is_low or each.with_status("low") for each in self.classes):
            return "failed"
        return "incomplete" if self.excluded or any(hca.gb_per_s is None for hca in self.hcas) else "ok"

    def to_document(self) -> dict[str, Any]:
        """Return plain data for JSON, with secrets masked."""
        return {
            "schema": self.SCHEMA,
            "classes": [
                {
                    "line_gb_per_s": each.line_gb_per_s,
                    "hcas": len(each.hcas),
                    "median_gb_per_s": each.median,
                    "limit_gb_per_s": each.limit_gb_per_s,
                    "is_low": each.is_low,
                }
                for each in self.classes
            ],
            "hcas": [_document(hca, each.status(hca)) for each in self.classes for hca in each.hcas],
            "excluded": excluded_document(self.excluded),
            "interrupted": self.interrupted,
        }


def _document(hca: HcaLoopback, status: Status) -> dict[str, Any]:
    link = hca.pcie
    return {
        "node": hca.node,
        "device": hca.device,
        "status": status,
        "gb_per_s": hca.gb_per_s,
        "line_gb_per_s": hca.line_gb_per_s,
        "limit_gb_per_s": hca.limit_gb_per_s,
        "pcie": None
        if link is None
        else {
            "width": link.width,
            "max_width": link.max_width,
            "speed_gt_per_s": link.speed_gt_per_s,
            "max_speed_gt_per_s": link.max_speed_gt_per_s,
            "gb_per_s": hca.pcie_gb_per_s,
        },
        "why": redact(hca.why),
    }


def measure_loopback(
    pool: Pool, monitor: Callable[[Collection[str]], Snapshot], activity: Callable[[str], None] = lambda _words: None
) -> Loopback:
    """Measure each HCA of the nodes in ``pool``: one HCA of a node at a time, and all nodes at once.

    ``monitor`` proves before each round that its nodes are still idle. On Ctrl-C the result is what was measured so
    far.
    """
    began = time.monotonic()
    done: dict[tuple[str, str], HcaLoopback] = {}
    interrupted = False
    try:
        waiting = _prepare(pool)
        for number in range(max(map(len, waiting.values()), default=0)):
            activity(f"loopback of HCA {number + 1} of each node")
            done |= _measured(pool, monitor, {node: own[number] for node, own in waiting.items() if number < len(own)})
        for _ in range(_TRIES - 1):
            for hcas in _low(done.values()):
                activity("loopback of the low HCAs again")
                done |= _best(done, _measured(pool, monitor, hcas))
    except (KeyboardInterrupt, CancelledError):
        interrupted = True
    return Loopback(tuple(done.values()), dict(pool.excluded), interrupted, time.monotonic() - began)


def _prepare(pool: Pool) -> dict[str, list[HcaLoopback]]:
    """Return the HCAs of each node that can be measured; exclude the other nodes."""
    facts_by_node = pool.facts((ib_ports, pcie))
    versions = pool.ask([Command((PROGRAM, "--version"))])
    missing = [name for name, (answer,) in versions.items() if answer.missing]
    do = "install the package perftest, or leave these nodes out with --limit"
    pool.exclude(Excluded(name, "unknown", f"{PROGRAM} is not installed", do=do) for name in missing)
    hcas = {name: list(_hcas(host, facts_by_node[name])) for name, host in pool.hosts.items()}
    pool.exclude(Excluded(name, "unknown", "no RDMA port is active") for name, own in hcas.items() if not own)
    return {name: own for name, own in hcas.items() if own}


def _hcas(host: Host, facts: Facts) -> Iterator[HcaLoopback]:
    """Yield the HCAs of a node with an active port, only the declared ones if the inventory has any."""
    ports, links = facts[ib_ports], facts[pcie]
    known = {} if isinstance(links, Unknown) else links
    seen: set[str] = set()
    for port in () if isinstance(ports, Unknown) else ports:
        is_wanted = not host.fabric or port.device in host.fabric
        if is_wanted and port.state == "Active" and port.rate_gbps and port.device not in seen:
            seen.add(port.device)
            yield HcaLoopback(host.name, port.device, port.rate_gbps / 8, known.get(port.device))


def _measured(
    pool: Pool, monitor: Callable[[Collection[str]], Snapshot], hcas: Mapping[str, HcaLoopback]
) -> dict[tuple[str, str], HcaLoopback]:
    """Measure one HCA of each node at once; exclude the nodes that are no longer idle."""
    here = {node: hca for node, hca in hcas.items() if node in pool.hosts}
    pool.exclude(monitor(list(here)).excluded.values())
    commands = {node: probe_loopback(hca.device) for node, hca in here.items() if node in pool.hosts}
    answers = pool.each(lambda transport, host: transport.run(commands[host.name]), list(commands))
    return {(node, here[node].device): _read(here[node], answer) for node, answer in answers.items()}


def probe_loopback(device: str) -> Command:
    """Return the command that measures ``device`` with itself."""
    return Command(("sh", "-c", _SCRIPT, "sh", device, *options(_PORT)), timeout_seconds=_LIMIT_SECONDS)


def _read(hca: HcaLoopback, answer: Completed) -> HcaLoopback:
    rate = gbps_of(answer)
    if rate is not None:
        return replace(hca, gb_per_s=rate / 8)
    late = f"{PROGRAM} did not end in {_LIMIT_SECONDS:.0f} s"
    return replace(hca, why=late if answer.timed_out else answer.last_line() or f"{PROGRAM} printed no result")


def _low(hcas: Iterable[HcaLoopback]) -> list[dict[str, HcaLoopback]]:
    """Return the HCAs to measure again, in rounds with one of each node."""
    rounds: list[dict[str, HcaLoopback]] = []
    for hca in (h for each in Loopback(tuple(hcas)).classes for h in each.hcas if each.status(h) != "ok"):
        free = next((each for each in rounds if hca.node not in each), None)
        if free is None:
            rounds.append(free := {})
        free[hca.node] = hca
    return rounds


def _best(
    done: Mapping[tuple[str, str], HcaLoopback], again: Mapping[tuple[str, str], HcaLoopback]
) -> dict[tuple[str, str], HcaLoopback]:
    return {key: max(done[key], hca, key=lambda each: each.gb_per_s or 0.0) for key, hca in again.items()}

"""What the NICs counted during the rounds: evidence beside a blamed part, and for a link that went down, the proof.

A counter says what happened to traffic, hardly ever which part did it: a packet that a sick leaf loses is counted by
healthy ports. So a part is blamed by a counter only if that counter is about the part alone.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Literal

from gpuops.isolation.evidence import BlamedPart, Evidence
from gpuops.isolation.rounds import GroupResult

Meaning = Literal["down", "link", "lost", "host", "held back"]
_NAMES: Mapping[Meaning, str] = {
    "down": "link_downed link_down_events_phy",
    "link": "symbol_error link_error_recovery local_link_integrity_errors excessive_buffer_overrun_errors "
    "port_rcv_errors rx_crc_errors_phy rx_symbol_err_phy rx_pcs_symbol_err_phy rx_errors tx_errors",
    "lost": "out_of_sequence packet_seq_err implied_nak_seq_err local_ack_timeout_err req_transport_retries_exceeded "
    "roce_adp_retrans roce_adp_retrans_to roce_slow_restart rx_icrc_encapsulated retrans_timeout_events "
    "unresponsive_remote_events",
    "host": "rnr_nak_retry_err out_of_buffer rx_drops rx_discards_phy rx_prio_discards rx_prio_buf_discard "
    "rx_prio_cong_discard outbound_pci_buffer_overflow outbound_pci_stalled_rd_events outbound_pci_stalled_wr_events "
    "rx_pci_signal_integrity tx_pci_signal_integrity tx_prio_pause tx_global_pause tx_pause_storm_warning_events "
    "tx_pause_storm_error_events",
    "held back": "port_xmit_wait port_xmit_discards tx_discards_phy rx_prio_pause rx_prio_pause_duration "
    "rx_global_pause np_cnp_sent np_ecn_marked_roce_packets rp_cnp_handled rp_cnp_ignored",
}
"""Source: the kernel, Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst and
Documentation/ABI/stable/sysfs-class-infiniband; NVIDIA, Understanding mlx5 Linux Counters and Status Parameters."""
_MEANINGS = {name: meaning for meaning, names in _NAMES.items() for name in names.split()}
_WORDS: Mapping[Meaning, str] = {
    "down": "its link went down",
    "link": "its link has errors",
    "lost": "packets were lost and sent again",
    "host": "a node or its PCIe did not take what arrived",
    "held back": "the network held its traffic back",
}
_APART = 3.0
"""Counters of traffic rise on healthy ports too: this many times the others' median is worth saying. Our own choice;
no part is blamed by it."""
_MAX_COUNTERS = 4


def meaning_of(counter: str) -> Meaning | None:
    """Return what a counter is about, whatever its priority; None if it is not known."""
    return _MEANINGS.get(re.sub(r"_prio\d_", "_prio_", counter))


def totals_of(evidence: Evidence) -> dict[str, dict[str, int]]:
    """Return by how much each counter increased during all rounds, by part and counter."""
    totals: dict[str, Counter[str]] = {}
    for measured in evidence.rounds:
        for part, counts in measured.counters.items():
            totals.setdefault(part, Counter()).update(counts)
    return {part: dict(sorted(counts.items())) for part, counts in sorted(totals.items())}


class CounterEvidence:
    """The counters of a measurement, each next to those of the other NICs in as many rounds."""

    def __init__(self, evidence: Evidence) -> None:
        self._fabric = evidence.fabric
        self._rounds = evidence.rounds
        self._totals = totals_of(evidence)
        self._rounds_of = Counter(
            name for m in evidence.rounds for name in {node for figure in m.figures for node in figure.group.nodes}
        )
        self._nics = [f"{node.name}:{nic.name}" for node in evidence.fabric.nodes.values() for nic in node.nics]

    def sentences(self, part: str) -> list[str]:
        """Return what the NICs of ``part`` counted more than others do, the most telling first."""
        parts = self._parts_in(part)
        counts = Counter[str]()
        for each in parts:
            counts.update(self._totals.get(each, {}))
        return list(self._worded(counts, parts, sum(map(self._rounds_with, parts))))

    def on_path(self, figures: Iterable[tuple[int, GroupResult]]) -> list[str]:
        """Return the same of the NICs of groups in their rounds alone; each is the round's index and a result."""
        ports = [
            (index, self._fabric.part(node, figure.group.rail))
            for index, figure in figures
            for node in figure.group.nodes
            if figure.group.rail is not None
        ]
        counts = Counter[str]()
        for index, part in ports:
            counts.update(self._rounds[index].counters.get(part, {}))
        return list(self._worded(counts, {part for _, part in ports}, len(ports)))

    def links_down(self) -> dict[str, int]:
        """Return the NICs of the fabric whose link went down, and how often."""
        downs = {nic: _count(self._totals.get(nic, {}), "down") for nic in self._nics}
        return {nic: count for nic, count in downs.items() if count}

    def _parts_in(self, part: str) -> set[str]:
        """Return the NICs that belong to a part or are cabled to it."""
        owner, _, name = part.partition(":")
        if owner == "leaf":
            return {self._fabric.part(*port) for port in self._fabric.ports_of.get(name, ())}
        if owner == "unit":
            unit, _, rail = name.partition("/rail")
            return {self._fabric.part(node, int(rail)) for node in self._fabric.units.get(unit, ())}
        return {nic for nic in self._nics if nic == part or nic.startswith(f"{part}:")}

    def _rounds_with(self, nic: str) -> int:
        return self._rounds_of[nic.partition(":")[0]]

    def _worded(self, counts: Mapping[str, int], parts: Collection[str], rounds: int) -> Iterator[str]:
        for meaning in _WORDS:
            names = [name for name in sorted(counts) if meaning_of(name) == meaning]
            usual = {name: rounds * self._usual(name, parts) for name in names}
            shown = [name for name in names if counts[name] > _APART * usual[name]]
            if shown:
                words = (f"{name} +{counts[name]:,} (others {usual[name]:,.0f})" for name in shown[:_MAX_COUNTERS])
                yield f"{_WORDS[meaning]}: {', '.join(words)}"

    def _usual(self, counter: str, parts: Collection[str]) -> float:
        """Return by how much a counter of another NIC increases in a round, as the median over those NICs."""
        others = [nic for nic in self._nics if nic not in parts and self._rounds_with(nic)]
        rates = [self._totals.get(nic, {}).get(counter, 0) / self._rounds_with(nic) for nic in others]
        return statistics.median(rates) if rates else 0.0


def _count(counts: Mapping[str, int], meaning: Meaning) -> int:
    """Return the largest counter of one meaning: the same event is counted by the port and by its interface."""
    return max((count for name, count in counts.items() if meaning_of(name) == meaning), default=0)


def blame_links(evidence: Evidence, blamed: Collection[str]) -> list[BlamedPart]:
    """Return the ports whose link went down during the rounds; their node or leaf if most of its links did.

    ``blamed`` are the parts that are blamed already: what they explain is only evidence beside them.
    """
    seen = CounterEvidence(evidence)
    down = seen.links_down()
    if not down:
        return []
    fabric = evidence.fabric
    groups = {f"leaf:{leaf}": [fabric.part(*port) for port in ports] for leaf, ports in fabric.ports_of.items()}
    groups |= {node.name: [f"{node.name}:{nic.name}" for nic in node.nics] for node in fabric.nodes.values()}
    explained = {nic for name in blamed for nic in (name, *groups.get(name, ()))}
    parts: list[str] = []
    for name, nics in groups.items():
        hit = [nic for nic in nics if nic in down and nic not in explained]
        if len(hit) > 1 and 2 * len(hit) > len(nics):
            parts.append(name)
            explained.update(hit)
    parts += [nic for nic in down if nic not in explained]
    return [BlamedPart(part, "link-down", evidence=tuple(seen.sentences(part))) for part in parts]

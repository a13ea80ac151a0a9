"""Error counters that increased under load: which of them is a fault, and which only deserves a look."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

Counts = Mapping[str, Mapping[str, int]]
"""Counters by part and name."""

_TOLERATED_PER_SECOND = {
    "crc_errors": 100.0,
    "symbol_error": 120 / 3600,
    "link_error_recovery": 5 / 60,
    "port_rcv_errors": 10.0,
    "port_xmit_discards": 100.0,
    "local_ack_timeout_err": 1.0,
    "roce_slow_restart": 10.0,
}
"""An increase up to this rate is noticed and not a fault; that of a counter which is not listed is a fault.

Source: NVIDIA DCGM, DcgmHealthWatch.cpp (CRC errors of NVLink); NVIDIA NVSentinel, docs/configuration/
nic-health-monitor.md (NICs).
"""
_NOTICED = frozenset(
    (
        *("link_recovery_successful_events", "total_link_recovery_events", "tx_discards", "symbol_errors"),
        *("out_of_sequence", "packet_seq_err", "rx_errors", "tx_errors"),
    )
)
"""Counters that healthy parts count too: of links that retrained and work, and of what the network lost."""


@dataclass(frozen=True)
class Growth:
    """One counter of one part, before and after."""

    part: str
    name: str
    then: int
    now: int

    def __str__(self) -> str:
        return f"{self.part}: {self.name} {self.then} → {self.now}"

    def is_fault(self, seconds: float) -> bool:
        """Return True if the increase within ``seconds`` is a fault of the part."""
        tolerated = _TOLERATED_PER_SECOND.get(self.name, 0.0) * max(seconds, 1.0)
        return self.name not in _NOTICED and self.now - self.then > tolerated


def growths(before: Sequence[Counts], after: Sequence[Counts]) -> Iterator[Growth]:
    """Yield the counters that increased; one that decreased was reset, together with its part."""
    for then, now in zip(before, after, strict=True):
        for part, counts in now.items():
            for name, count in counts.items():
                if name in then.get(part, {}) and count > then[part][name] and not _is_sum(name, counts):
                    yield Growth(part, name, then[part][name], count)


def _is_sum(name: str, counts: Mapping[str, int]) -> bool:
    """Return True for the sum of two counters that are there as well."""
    return name == "total_link_recovery_events" and "link_recovery_failed_events" in counts

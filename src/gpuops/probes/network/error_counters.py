"""Error counters of RDMA ports and network interfaces since they came up.

A file ``/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed`` with ``2`` is ``{"mlx5_0": {"link_downed": 2}}``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuops.probes.numbers import integer
from gpuops.probing import Probe, Unknown
from gpuops.shell import Files, read_files

_PORT = (
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_xmit_discards",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
)
_HARDWARE = ("rnr_nak_retry_err", "local_ack_timeout_err", "packet_seq_err", "out_of_sequence", "roce_slow_restart")
_MAXIMA = {
    **dict.fromkeys(("local_link_integrity_errors", "excessive_buffer_overrun_errors"), 2**4 - 1),
    **dict.fromkeys(("link_error_recovery", "link_downed"), 2**8 - 1),
    **dict.fromkeys(("symbol_error", "port_rcv_errors", "port_xmit_discards"), 2**16 - 1),
    "port_xmit_wait": 2**32 - 1,
}
"""Where counters of a port stop. Source: InfiniBand Architecture Specification, PortCounters attribute."""
_INTERFACE = ("rx_errors", "tx_errors")
_PATH = re.compile(r"/sys/class/(?:infiniband|net)/([^/]+)/(?:ports/\d+/(?:hw_)?counters|statistics)/(\w+)", re.ASCII)


def parse_counters(text: str) -> dict[str, dict[str, int]] | Unknown:
    """Return the errors by device (``mlx5_0``, ``eth0``) and counter, summed over the ports of a device.

    Counters that a device does not have are omitted.
    """
    counts_by_device: dict[str, dict[str, int]] = {}
    files = read_files(text)
    for path, content in files.items():
        match, count = _PATH.fullmatch(path), integer(content)
        if match and count is not None:
            counts = counts_by_device.setdefault(match[1], {})
            counts[match[2]] = counts.get(match[2], 0) + count
    return counts_by_device if "/sys/class" in files else Unknown("/sys/class cannot be read")


@dataclass(frozen=True, slots=True)
class SaturatedCounter:
    """A counter of a device that is at its ``maximum``, so that it cannot show another error."""

    device: str
    name: str
    maximum: int


def parse_saturated(text: str) -> tuple[SaturatedCounter, ...] | Unknown:
    """Return the counters of ports that reached their maximum; those of 64 bits never do."""
    files = read_files(text)
    found = []
    for path, content in files.items():
        match = _PATH.fullmatch(path)
        if match and "/counters/" in path and integer(content) == _MAXIMA.get(match[2], -1):
            found.append(SaturatedCounter(match[1], match[2], _MAXIMA[match[2]]))
    return tuple(found) if "/sys/class" in files else Unknown("/sys/class cannot be read")


error_counters: Probe[dict[str, dict[str, int]]] = Probe(
    "error_counters",
    Files(
        (
            "/sys/class",  # proves that we could look, even if there is nothing else
            *(f"/sys/class/infiniband/*/ports/*/counters/{name}" for name in _PORT),
            *(f"/sys/class/infiniband/*/ports/*/hw_counters/{name}" for name in _HARDWARE),
            *(f"/sys/class/net/*/statistics/{name}" for name in _INTERFACE),
        )
    ),
    lambda answer: parse_counters(answer.out),
)
"""Counters that must not increase during a measurement.

Source of the choice: NVIDIA NVSentinel, docs/configuration/nic-health-monitor.md.
"""

saturated_counters: Probe[tuple[SaturatedCounter, ...]] = Probe(
    "saturated_counters", error_counters.question, lambda answer: parse_saturated(answer.out)
)
"""Those of them that no longer count."""

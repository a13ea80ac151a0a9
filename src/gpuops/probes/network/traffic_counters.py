"""Counters of what happened to the traffic of RDMA ports: retransmissions, congestion marks, pauses, discards.

They say why traffic was slow, not which part is at fault, so they are kept apart from `error_counters`: congestion
raises them on healthy ports too. A line ``     rx_prio3_pause: 48`` below ``device mlx5_3`` is
``{"mlx5_3": {"rx_prio3_pause": 48}}``.
"""

from __future__ import annotations

import re

from gpuops.probes.network.error_counters import parse_counters
from gpuops.probing import Probe, Unknown
from gpuops.shell import Command, Completed, Files

_PORT = ("port_xmit_wait",)
_HARDWARE = (
    "implied_nak_seq_err",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "req_transport_retries_exceeded",
    "rx_icrc_encapsulated",
    "out_of_buffer",
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "rp_cnp_handled",
    "rp_cnp_ignored",
    # EFA
    "rx_drops",
    "retrans_timeout_events",
    "unresponsive_remote_events",
)
_PRIORITY = r"[rt]x_prio[0-7]_pause|rx_prio[0-7]_(pause_duration|discards|buf_discard|cong_discard)"
_PHYSICAL = r"[rt]x_discards_phy|rx_(crc_errors|symbol_err|pcs_symbol_err)_phy|link_down_events_phy"
_PAUSES = r"[rt]x_global_pause|tx_pause_storm_(warning|error)_events"
_PCI = r"outbound_pci_(buffer_overflow|stalled_(rd|wr)_events)|[rt]x_pci_signal_integrity"
_NAMES = f"{_PRIORITY}|{_PHYSICAL}|{_PAUSES}|{_PCI}"
_MISSING = 127
# an mlx5 interface prints a thousand lines, so the node selects the few that count
_SCRIPT = f"""\
command -v ethtool >/dev/null || exit {_MISSING}
for device in $(ls /sys/class/infiniband 2>/dev/null); do
    for interface in $(ls /sys/class/infiniband/$device/device/net 2>/dev/null); do
        echo "device $device"
        ethtool -S "$interface" 2>/dev/null | grep -E '^ *({_NAMES}): '
    done
done
exit 0"""
_DEVICE = re.compile(r"device ([\w.@-]+)", re.ASCII)
_COUNT = re.compile(r"\s*(\w+): (\d{1,20})", re.ASCII)


def parse_ethtool(answer: Completed) -> dict[str, dict[str, int]] | Unknown:
    """Return the counters by RDMA device and name, summed over the interfaces of a device; other lines are skipped."""
    if answer.exit == _MISSING:
        return Unknown("ethtool is not installed")
    counts_by_device: dict[str, dict[str, int]] = {}
    counts: dict[str, int] = {}
    for line in answer.out.splitlines():
        device, count = _DEVICE.fullmatch(line), _COUNT.fullmatch(line)
        if device:
            counts = counts_by_device.setdefault(device[1], {})
        elif count and counts_by_device:
            counts[count[1]] = counts.get(count[1], 0) + int(count[2])
    return counts_by_device


traffic_counters: Probe[dict[str, dict[str, int]]] = Probe(
    "traffic_counters",
    Files(
        (
            "/sys/class",  # proves that we could look, even if there is nothing else
            *(f"/sys/class/infiniband/*/ports/*/counters/{name}" for name in _PORT),
            *(f"/sys/class/infiniband/*/ports/*/hw_counters/{name}" for name in _HARDWARE),
        )
    ),
    lambda answer: parse_counters(answer.out),
)
"""Retransmissions and congestion marks of RDMA ports.

Source: the kernel, drivers/infiniband/hw/mlx5/counters.c and hw/efa/efa_verbs.c, and NVIDIA, Understanding mlx5 Linux
Counters and Status Parameters.
"""

ethtool_counters: Probe[dict[str, dict[str, int]]] = Probe(
    "ethtool_counters", Command(("sh", "-c", _SCRIPT)), parse_ethtool, accepts=frozenset({0, _MISSING})
)
"""Pauses (PFC), discards, link and PCIe errors of the Ethernet side of RDMA devices, per priority where there is one.

Source: the kernel, Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst. Any user may read them.
"""

"""ethtool -S: the counters of an mlx5 interface, those per priority only on Ethernet."""

from __future__ import annotations

from collections.abc import Sequence

from gpuops.lab.identity import counted
from gpuops.lab.model import Nic, Node
from gpuops.lab.tools.answer import Answer

_COMMON = ("rx_packets", "rx_discards_phy", "tx_discards_phy", "link_down_events_phy")
_ETHERNET = ("rx_prio3_pause", "rx_prio3_pause_duration", "tx_prio3_pause", "rx_prio3_discards")
_PCI = ("rx_pci_signal_integrity", "outbound_pci_stalled_rd_events", "outbound_pci_stalled_wr_events")


def ethtool(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``ethtool -S INTERFACE`` prints."""
    del root
    if len(words) != 2 or words[0] not in ("-S", "--statistics"):
        return Answer(err="ethtool: bad command line argument(s)\nFor more information run ethtool -h\n", code=1)
    nic = next((each for each in node.nics if each.netdev == words[1]), None)
    if nic is None:
        return Answer(
            err="no stats available\n" if words[1] in ("lo", "eno1") else _NO_DEVICE,
            code=94 if words[1] in ("lo", "eno1") else 96,
        )
    names = (*_COMMON, *(_ETHERNET if nic.link_layer == "Ethernet" else ()), *_PCI)
    return Answer(out="NIC statistics:\n" + "".join(f"     {name}: {_value(nic, name)}\n" for name in names))


_NO_DEVICE = "Cannot get stats strings information: No such device\n"


def _value(nic: Nic, name: str) -> str:
    return counted(nic.name, name) if name in nic.counts else "0"

"""RDMA devices of the hardware model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpuops.lab.identity import SEED, derived
from gpuops.lab.model.address import address

PCIE_GB_PER_S = {3: 0.985, 4: 1.969, 5: 3.938}
"""What a lane carries in one direction, by generation."""


@dataclass(frozen=True)
class Nic:
    """One RDMA device with its port, from the machine's description, and its state."""

    name: str
    at: str
    hca: str
    board: str
    firmware: str
    pci_name: str
    device: str
    generation: int
    width: int
    link_layer: str
    gbps: int
    netdev: str
    rail: int | None = None
    up: bool = True
    physical: str = ""  # the port's physical state, if it is not the usual one of its kind
    sm_lid: int = 1  # of its subnet manager; 0: none has reached the port
    pkeys: tuple[int, ...] = (0xFFFF,)  # its partition keys
    width_word: str = ""  # "1X NDR", if the link did not train to the usual lanes
    slow_percent: float = 0.0  # below the rate that the port reports
    slow_duplex_percent: float = 0.0  # the same, but only while it sends and receives at once
    held_back_percent: float = 0.0  # below its rate because the network does not take more
    flaps: bool = False  # its link goes down whenever it is used
    lanes: int = 0  # to which its PCIe link trained, if these are fewer
    weak: bool = False  # its optic receives too little light on one lane
    traffic_class: int = 162  # of RoCE, like what follows: the settings of this lab's switches
    lossless: frozenset[int] = frozenset({5})
    trust: str = "dscp"
    ecn: frozenset[int] = frozenset({5})

    @property
    def managed(self) -> bool:
        """True if a subnet manager has reached the port, or if it needs none."""
        return self.link_layer != "InfiniBand" or self.sm_lid > 0

    @property
    def address(self) -> str:
        """The PCI address, as `Gpu.address`."""
        return address(self.at)

    @property
    def gb_per_s(self) -> float:
        """The bandwidth in one direction alone, which may be less than it reports."""
        return min(self.gbps / 8 * (1 - self.slow_percent / 100), self.pcie_gb_per_s)

    @property
    def loopback_gb_per_s(self) -> float:
        """What it reaches with itself, without its cable."""
        return min(self.gbps / 8, self.pcie_gb_per_s)

    @property
    def pcie_gb_per_s(self) -> float:
        """What its PCIe link carries in one direction, of which packets are a tenth."""
        return 0.9 * PCIE_GB_PER_S[self.generation] * (self.lanes or self.width)

    @property
    def duplex_gb_per_s(self) -> float:
        """The bandwidth in each direction when both are in use."""
        return self.gb_per_s * (1 - self.slow_duplex_percent / 100) * (1 - self.held_back_percent / 100)

    @property
    def counts(self) -> Mapping[str, int]:
        """What its faults count in a second of use."""
        waits = "port_xmit_wait" if self.link_layer == "InfiniBand" else "rx_prio3_pause"
        seen = {
            "symbol_error": 137 * bool(self.slow_percent or self.slow_duplex_percent),
            waits: 700_000 * bool(self.held_back_percent),
            "outbound_pci_stalled_wr_events": 5 * bool(self.lanes),
            "link_downed": int(self.flaps),
        }
        return {name: count for name, count in seen.items() if count}

    @property
    def guid(self) -> str:
        """Sixteen hex digits; the middle is the host's own."""
        return f"a088{SEED}{derived('nic', self.name)[:4]}"

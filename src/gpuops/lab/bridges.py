"""Root ports and PCIe switches above the devices of a lab host, which are part of their paths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpuops.lab.model import Node, address
from gpuops.lab.tools.lspci import GIGATRANSFERS


@dataclass(frozen=True)
class Bridge:
    """One port of a root complex or switch, at a path; its link has the generation and lanes of the device below."""

    at: str
    generation: int
    width: int
    current_width: int

    @property
    def address(self) -> str:
        """The PCI address."""
        return address(self.at)


def bridges(node: Node) -> list[Bridge]:
    """Return every bridge above an adapter. Only the link of the adapter itself may have trained to fewer lanes."""
    found: dict[str, Bridge] = {}
    for nic in node.nics:
        parts = nic.at.split("/")
        for depth in range(2, len(parts)):
            at = "/".join(parts[:depth])
            lanes = nic.lanes or nic.width if depth == len(parts) - 1 else nic.width
            found[at] = Bridge(at, nic.generation, nic.width, lanes)
    return list(found.values())


def bridge_files(node: Node) -> Iterator[tuple[str, str]]:
    """Yield the files that /sys has of each bridge's link."""
    for bridge in bridges(node):
        folder, speed = f"/sys/devices/{bridge.at}", GIGATRANSFERS[bridge.generation]
        for name in ("current_link_speed", "max_link_speed"):
            yield f"{folder}/{name}", f"{speed if '.' in speed else f'{speed}.0'} GT/s PCIe"
        yield f"{folder}/current_link_width", str(bridge.current_width)
        yield f"{folder}/max_link_width", str(bridge.width)
        yield f"{folder}/class", "0x060400"

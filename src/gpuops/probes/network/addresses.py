"""IPv4 addresses of the node's interfaces, from ``ip -j address``.

``{"ifname": "ib0", "addr_info": [{"family": "inet", "local": "10.1.0.7", "prefixlen": 16}], …}``
is 10.1.0.7 in the network 10.1.0.0/16, on the interface ib0.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpuops.probing import Probe, Unknown
from gpuops.shell import Command


@dataclass(frozen=True, slots=True)
class Address:
    """One address; ``network`` is in CIDR notation, and ``hardware`` the link's own address, of InfiniBand 20 bytes."""

    interface: str
    address: str
    network: str
    link_type: str = ""
    hardware: str = ""


def parse_addresses(text: str) -> tuple[Address, ...] | Unknown:
    """Return the IPv4 addresses of interfaces that are up, except loopback's, in the kernel's order."""
    try:
        links = json.loads(text)
    except ValueError:
        return Unknown(f"ip prints no JSON: {text[:60]!r}")
    if not isinstance(links, list) or not all(isinstance(link, dict) for link in links):
        return Unknown(f"ip prints no list of interfaces: {text[:60]!r}")
    return tuple(address for link in links for address in _of_link(link))


def _of_link(link: dict[str, Any]) -> Iterator[Address]:
    flags = link.get("flags", ())
    if "LOOPBACK" in flags or "UP" not in flags:
        return
    for info in link.get("addr_info", ()):
        if info.get("family") == "inet" and info.get("scope") == "global":
            network = ipaddress.ip_network(f"{info['local']}/{info['prefixlen']}", strict=False)
            kind, hardware = (str(link.get(key, "")) for key in ("link_type", "address"))
            yield Address(str(link["ifname"]), str(info["local"]), str(network), kind, hardware)


addresses: Probe[tuple[Address, ...]] = Probe(
    "addresses",
    Command(("ip", "-j", "address")),
    lambda answer: parse_addresses(answer.out),
)
"""The IPv4 addresses of all interfaces that are up."""

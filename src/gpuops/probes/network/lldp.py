"""Switch behind each network interface, from the LLDP announcements that ``lldpctl -f keyvalue`` prints.

``lldp.eth0.chassis.name=leaf1`` means that eth0 is connected to leaf1.
"""

from __future__ import annotations

import re

from gpuops.probing import Probe, Unknown
from gpuops.shell import Command

_LINE = re.compile(r"lldp\.(?P<interface>\S+?)\.(?P<key>via|chassis\.name)=(?P<value>.*)")


def parse_lldp(text: str) -> dict[str, str] | Unknown:
    """Return switch names by interface; omit interfaces with several neighbours."""
    matches = [match for match in map(_LINE.fullmatch, text.splitlines()) if match]
    if not matches or not text.endswith("\n"):
        return Unknown("lldpctl lists no neighbour")
    via = [match["interface"] for match in matches if match["key"] == "via"]
    names = {match["interface"]: match["value"].strip() for match in matches if match["key"] == "chassis.name"}
    return {interface: name for interface, name in names.items() if name and via.count(interface) == 1}


lldp: Probe[dict[str, str]] = Probe(
    "lldp",
    Command(("lldpctl", "-f", "keyvalue"), become="if-refused"),
    lambda answer: parse_lldp(answer.out),
)
"""Switches that the node is connected to; needs lldpd on the node."""

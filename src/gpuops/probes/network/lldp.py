"""lldpctl: which switch each network interface is cabled to, as the switches themselves announce it."""

from __future__ import annotations

import re

from gpuops.probing import Probe, Unknown
from gpuops.shell import Command

_LINE = re.compile(r"lldp\.(?P<interface>\S+?)\.(?P<key>via|chassis\.name)=(?P<value>.*)")


def parse_lldp(text: str) -> dict[str, str] | Unknown:
    """Return switch names by interface, from ``lldpctl -f keyvalue``; omit interfaces with several neighbours."""
    matches = [match for match in map(_LINE.fullmatch, text.splitlines()) if match]
    if not matches or not text.endswith("\n"):
        return Unknown("lldpctl tells of no neighbour")
    via = [match["interface"] for match in matches if match["key"] == "via"]
    names = {match["interface"]: match["value"].strip() for match in matches if match["key"] == "chassis.name"}
    return {interface: name for interface, name in names.items() if name and via.count(interface) == 1}


lldp: Probe[dict[str, str]] = Probe(
    "lldp",
    Command(("lldpctl", "-f", "keyvalue"), become="if-refused"),
    lambda answer: parse_lldp(answer.out),
)
"""The switches beside the node, where lldpd runs on it."""

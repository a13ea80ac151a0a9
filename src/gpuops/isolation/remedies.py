"""Remedies: what to do about a part that is blamed, in one sentence."""

from __future__ import annotations

import re

from gpuops.isolation.evidence import BlamedPart
from gpuops.proposal import propose

_OF_A_NODE = (
    (
        r"gpu\d+",
        "reset GPU {number} of {node} once it is drained; where it stays slow, have its NVLinks and board looked at",
    ),
    (r".+", "clean or replace the optic and cable of {part} at {node} and at its switch port"),
)
_OF_THE_FABRIC = {
    "leaf": "look at switch {name}: its ports' errors, its uplinks, its firmware; no node behind it is accused",
    "unit": "look at the uplinks that join rail {rail} of unit {name} to the spine, and at their error counters",
    "spine": "look at the spine switches and their links; every unit is well by itself",
}


def fix_for(blamed: BlamedPart) -> str:
    """Return what to do about the part, and how to verify that it helped."""
    owner, _, part = blamed.part.partition(":")
    if owner in _OF_THE_FABRIC:
        name, _, rail = part.partition("/rail")
        return _OF_THE_FABRIC[owner].format(name=name, rail=rail)
    verification = _verification(blamed, owner)
    return _fix_for_node(blamed, owner, part) + (verification or ("" if part else _alone(blamed, owner)))


def _fix_for_node(blamed: BlamedPart, node: str, part: str) -> str:
    if blamed.kind == "unreachable":
        return f"look at {node}'s link and firewall: NCCL needs every port between the nodes"
    if blamed.kind == "socket":
        return f"make RDMA usable on {node}: its devices, /dev/infiniband and memlock, and NCCL_IB_HCA"
    if blamed.kind == "hang" and not part:
        return f"end what still runs on {node}, and look at its kernel log"
    if not part:
        return f"drain {node} and judge it alone"
    sentence = next(text for pattern, text in _OF_A_NODE if re.fullmatch(pattern, part))
    return sentence.format(node=node, part=part, number=part[3:])


def _alone(blamed: BlamedPart, node: str) -> str:
    """Return how to judge a node that is blamed as a whole."""
    return "" if blamed.kind in ("unreachable", "socket") else f", then {propose('validate', '--limit', node)}"


def _verification(blamed: BlamedPart, node: str) -> str:
    if not blamed.partners:
        return ""
    scope = "rail" if re.search(r":(?!gpu\d)", blamed.part) else "pair"
    return f", then {propose('allreduce', '--limit', f'{node},{blamed.partners[0]}', '--scope', scope)}"

"""The fix for a blamed part, in one sentence."""

from __future__ import annotations

import re

from gpuops.isolation.evidence import BlamedPart

_OF_A_NODE = (
    (
        r"gpu\d+",
        "reset GPU {number} of {node} once the node is drained; if it stays slow, have its NVLinks and board inspected",
    ),
    (r".+", "clean or replace the optic and cable of {part} at {node} and at its switch port"),
)
_OF_THE_FABRIC = {
    "leaf": "check switch {name}: its ports' errors, its uplinks, its firmware; no node behind it is blamed",
    "unit": "check the uplinks that join rail {rail} of unit {name} to the spine, and their error counters",
    "spine": "check the spine switches and their links; every unit is healthy by itself",
}
_HANG = "end the processes that still run on {node}, read its kernel log, and run: gpuops validate --limit {node}"


def fix_for(blamed: BlamedPart) -> str:
    """Return the fix for the part, and the command that verifies it."""
    owner, _, part = blamed.part.partition(":")
    if owner in _OF_THE_FABRIC:
        name, _, rail = part.partition("/rail")
        return _OF_THE_FABRIC[owner].format(name=name, rail=rail)
    return _fix_for_node(blamed, owner, part) + _verification(blamed, owner)


def _fix_for_node(blamed: BlamedPart, node: str, part: str) -> str:
    if blamed.kind == "unreachable":
        return f"check {node}'s link and firewall: NCCL needs every port between the nodes"
    if blamed.kind == "socket":
        return f"make RDMA usable on {node}: check its devices, /dev/infiniband, memlock and NCCL_IB_HCA"
    if blamed.kind == "hang" and not part:
        return _HANG.format(node=node)
    if not part:
        return f"drain {node} and check it alone: gpuops validate --limit {node}"
    sentence = next(text for pattern, text in _OF_A_NODE if re.fullmatch(pattern, part))
    return sentence.format(node=node, part=part, number=part[3:])


def _verification(blamed: BlamedPart, node: str) -> str:
    if not blamed.partners:
        return ""
    scope = "rail" if re.search(r":(?!gpu\d)", blamed.part) else "pair"
    return f", then gpuops allreduce --limit {node},{blamed.partners[0]} --scope {scope}"

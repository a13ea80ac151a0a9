"""The fix for a blamed part, in one sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpuops.isolation.evidence import BlamedPart, CommonCause, Kind
from gpuops.proposal import propose

_OF_A_NODE = (
    (
        r"gpu\d+",
        "reset GPU {number} of {node} once the node is drained; if it stays slow, have its NVLinks and board inspected",
    ),
    (r".+", "clean or replace the optic and cable of {part} at {node} and at its switch port"),
)
_MISCOUNTS = "drain {node} and run dcgmi diag -r 3 on GPU {number}: a GPU that computes wrong sums is replaced"
_FAST_BY_ITSELF = ', if "allreduce loopback" finds it fast by itself'
_GPUDIRECT = "load nvidia-peermem (or use a driver with dma-buf), and disable ACS on the PCIe switches, or the IOMMU"
_IN_COMMON: Mapping[Kind, str] = {
    "slow": "compare the NCCL version, its NCCL_* settings and the switches' configuration with a cluster that is fast",
    "hang": "run one group by hand with NCCL_DEBUG=INFO: these nodes share the cause",
    "unreachable": "check the firewall, and the interface that NCCL uses (NCCL_SOCKET_IFNAME), on these nodes",
    "wrong": "use another build of NCCL or of the test: with this one, these nodes compute wrong sums",
    "socket": "make RDMA usable for NCCL: network plugin, NCCL_IB_HCA, NCCL_IB_DISABLE, memlock, /dev/infiniband",
    "no-gpudirect": _GPUDIRECT,
    "error": "run one group by hand with NCCL_DEBUG=INFO: these nodes share the cause",
}
_OF_A_RAIL = {
    "between nodes": "compare what rail {rail} of the nodes has in common: NIC and firmware, slot, traffic of storage",
    "between units": "check the spine switches of rail {rail}, and how leaves and spine are joined on it",
}
_OF_THE_FABRIC = {
    "leaf": "check switch {name}: its ports' errors, its uplinks, its firmware; no node behind it is blamed",
    "unit": "check the uplinks that join rail {rail} of unit {name} to the spine, and their error counters",
    "spine": "check the spine switches and their links; every unit is healthy by itself",
}


def fix_in_common(cause: CommonCause) -> str:
    """Return what to do about a cause that the nodes share."""
    if cause.rail is not None:
        return _OF_A_RAIL[cause.where].format(rail=cause.rail)
    return _IN_COMMON.get(cause.kind, _IN_COMMON["error"])


def fix_for(blamed: BlamedPart) -> str:
    """Return the fix for the part, and the command that verifies it."""
    owner, _, part = blamed.part.partition(":")
    if owner in _OF_THE_FABRIC:
        return action_for(blamed)
    return action_for(blamed) + (_verification(blamed, owner) or ("" if part else _alone(blamed, owner)))


def action_for(blamed: BlamedPart) -> str:
    """Return the fix for the part alone, for a fabric that no command of gpuops reaches."""
    owner, _, part = blamed.part.partition(":")
    if owner in _OF_THE_FABRIC:
        name, _, rail = part.partition("/rail")
        return _OF_THE_FABRIC[owner].format(name=name, rail=rail)
    return _fix_for_node(blamed, owner, part)


def _fix_for_node(blamed: BlamedPart, node: str, part: str) -> str:
    if blamed.kind == "unreachable":
        return f"check {node}'s link and firewall: NCCL needs every port between the nodes"
    if blamed.kind == "socket":
        return f"make RDMA usable on {node}: check its devices, /dev/infiniband, memlock and NCCL_IB_HCA"
    if blamed.kind == "no-gpudirect":
        return f"on {node}: {_GPUDIRECT}"
    if blamed.kind == "hang" and not part:
        return f"end what still runs on {node}, and look at its kernel log"
    if not part:
        return f"drain {node} and check it alone"
    is_gpu = re.fullmatch(r"gpu\d+", part) is not None
    miscounts = is_gpu and blamed.kind == "wrong"
    sentence = _MISCOUNTS if miscounts else next(text for pattern, text in _OF_A_NODE if re.fullmatch(pattern, part))
    condition = _FAST_BY_ITSELF if blamed.kind == "slow" and not is_gpu else ""
    return sentence.format(node=node, part=part, number=part[3:]) + condition


def _alone(blamed: BlamedPart, node: str) -> str:
    """Return how to judge a node that is blamed as a whole."""
    return "" if blamed.kind in ("unreachable", "socket") else f", then {propose('validate', '--limit', node)}"


def _verification(blamed: BlamedPart, node: str) -> str:
    if not blamed.partners:
        return ""
    scope = "rail" if re.search(r":(?!gpu\d)", blamed.part) else "pair"
    return f", then {propose('allreduce', '--limit', f'{node},{blamed.partners[0]}', '--scope', scope)}"

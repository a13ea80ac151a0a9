"""Reasons of drained nodes: ``gpuops:repair Xid 79`` for a life-cycle state, ``gpuops:1f2e3d4c`` for a lease.

The marker is a protocol between runs of gpuops. Only this module writes and reads it; decisions use its fields.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

DrainOwner = Literal[
    "",  # no reason is set
    "lifecycle",  # gpuops, for as long as the node takes no jobs
    "lease",  # gpuops, while it measures
    "slurm",  # slurmctld itself: the node is down, or has less than slurm.conf states
    "other",  # a person, or another program
]
_MARK = "gpuops:"
_TOKEN = re.compile(r"[0-9a-f]{8}")
_STATE = re.compile(r"([a-z_]+)(?: .*)?")
_NO_REASON = ("", "none")
_OF_SLURM = ("Not responding", "Node unexpectedly rebooted", "gres/", "Low ")
"""Beginnings of the reasons that slurmctld sets: for a node that is down, and for one with less than slurm.conf states,
as every node without a driver is. Source: Slurm, src/slurmctld/node_mgr.c."""


@dataclass(frozen=True, slots=True)
class DrainReason:
    """Why a node is drained, and by whom. ``tag`` is a life-cycle state, or the token of a lease."""

    text: str = ""
    owner: DrainOwner = ""
    tag: str = ""


def parse_drain_reason(text: str) -> DrainReason:
    """Parse a reason as ``sinfo`` prints it; one with the marker but no valid tag belongs to others."""
    if text in _NO_REASON:
        return DrainReason()
    if text.startswith(_OF_SLURM):
        return DrainReason(text, "slurm")
    marked = text.removeprefix(_MARK) if text.startswith(_MARK) else ""
    if _TOKEN.fullmatch(marked):
        return DrainReason(text, "lease", marked)
    state = _STATE.fullmatch(marked)
    return DrainReason(text, "lifecycle", state[1]) if state else DrainReason(text, "other")


def lifecycle_reason(state: str, why: str = "") -> str:
    """Return ``gpuops:repair Xid 79``, on one line."""
    return " ".join(f"{_MARK}{state} {why}".split())


def lease_reason(token: str) -> str:
    """Return ``gpuops:1f2e3d4c``. A ``token`` has eight hexadecimal digits, unlike any state."""
    return f"{_MARK}{token}"

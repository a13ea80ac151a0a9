"""NVIDIA's IMEX service, which lets jobs share memory across the nodes of an NVLink domain.

``{"nodes": {"0": {"status": "READY", "host": "10.0.0.1", "hostName": "gpu01"}}, "status": "UP"}`` is a whole domain.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from gpuops.probing import Probe, Unknown
from gpuops.shell import Command, Completed, Files, read_files

STATES = frozenset(
    "INITIALIZING STARTING_AUTH_SERVER WAITING_FOR_PEERS WAITING_FOR_RECOVERY INIT_GPU READY SHUTTING_DOWN "
    "UNAVAILABLE".split()
)
"""Words of the daemon for its state. Source: NVIDIA DCGM, dcgm_fields.h (DCGM_FI_IMEX_DAEMON_STATUS)."""
_CHANNELS = "/dev/nvidia-caps-imex-channels"
_SECONDS = 10.0


@dataclass(frozen=True)
class ImexDomain:
    """``status`` of the domain (UP, DOWN or DEGRADED), and the state of each node by its name, else its address."""

    status: str
    state_by_node: Mapping[str, str]


def parse_imex_state(answer: Completed) -> str | Unknown:
    """Return the state of this node's daemon, one of `STATES`, from ``nvidia-imex-ctl -q``."""
    word = answer.out.strip().rpartition("\n")[2].strip()
    if word in STATES:
        return word
    if answer.missing:
        return Unknown("nvidia-imex-ctl is not installed")
    return Unknown(f"nvidia-imex-ctl -q exited with {answer.exit}: {answer.last_line() or 'no output'}")


def parse_imex_domain(answer: Completed) -> ImexDomain | Unknown:
    """Return the domain from the JSON of ``nvidia-imex-ctl -N -j``; words that it does not know stay as they are."""
    document = json.loads(answer.out)
    nodes, status = document["nodes"], document["status"]
    if not (isinstance(status, str) and status and nodes):
        return Unknown("nvidia-imex-ctl -N prints no domain")
    return ImexDomain(status, {_name(node): str(node["status"]) for node in nodes.values()})


def _name(node: Mapping[str, str]) -> str:
    name = node.get("hostName", "")
    return str(name if name and name != "N/A" else node["host"])


def parse_imex_channels(text: str) -> bool | Unknown:
    """Return True if there are IMEX channels, which jobs need to open the memory of other nodes."""
    files = read_files(text)
    return _CHANNELS in files if "/sys/class" in files else Unknown("/sys/class cannot be read")


imex_state: Probe[str] = Probe(
    "imex_state", Command(("nvidia-imex-ctl", "-q"), _SECONDS), parse_imex_state, accepts=None
)
"""State of the daemon on this node."""

imex_domain: Probe[ImexDomain] = Probe(
    "imex_domain", Command(("nvidia-imex-ctl", "-N", "-j"), _SECONDS), parse_imex_domain
)
"""State of the nodes in its domain, which the daemon asks over the network."""

imex_channels: Probe[bool] = Probe(
    "imex_channels", Files(("/sys/class", _CHANNELS)), lambda answer: parse_imex_channels(answer.out)
)
"""Existence of the channels' directory; the channels themselves are not opened."""

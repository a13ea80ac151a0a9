"""Confidential computing of the GPUs, from ``nvidia-smi conf-compute``.

``CC State : ON`` with ``CC GPUs Ready State : Not Ready`` are GPUs that accept no work until they are attested.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from gpuops.probing import Probe, Unknown
from gpuops.shell import Command, Completed

_ROW = re.compile(r"^\s*([A-Z][\w -]*?)\s*:\s*(.*?)\s*$", re.MULTILINE)
_READY = {"ready": True, "not ready": False, "not-ready": False}
_NOT_SUPPORTED = frozenset({2, 3})
"""nvidia-smi --help: 2 is an argument that this release does not know, 3 an operation that no device here supports."""
CcMode = Literal["off", "on", "devtools", "protected-pcie"]


@dataclass(frozen=True)
class ConfCompute:
    """``mode`` of the GPUs, and whether they accept work, which matters only if it is not ``off``.

    ``supported`` is False if the driver has no such mode.
    """

    mode: CcMode = "off"
    ready: bool | None = None
    supported: bool = True


def parse_conf_compute(answer: Completed) -> ConfCompute | Unknown:
    """Read what ``-q`` prints, or the rows of ``-f`` and ``-grs``, which older releases have."""
    if answer.exit in _NOT_SUPPORTED:
        return ConfCompute(supported=False)
    rows = {name.lower(): value.lower() for name, value in _ROW.findall(answer.out)}
    state = rows.get("cc state", rows.get("cc status"))
    ready = _READY.get(rows.get("cc gpus ready state", rows.get("confidential compute gpus ready state", "")))
    if state not in {"on", "off"}:
        return Unknown(f"nvidia-smi conf-compute prints no state: {answer.last_line() or 'no output'}")
    if state == "on":
        return ConfCompute("devtools" if rows.get("devtools mode") == "on" else "on", ready)
    is_protected = rows.get("multi-gpu mode") == "protected pcie"
    return ConfCompute("protected-pcie" if is_protected else "off", ready)


conf_compute: Probe[ConfCompute] = Probe(
    "conf_compute",
    Command(("nvidia-smi", "conf-compute", "-q"), lane="nvidia"),
    parse_conf_compute,
    accepts=frozenset({0, *_NOT_SUPPORTED}),
)
"""Mode and readiness of all GPUs."""

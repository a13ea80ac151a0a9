"""Table of SXid codes: what an error of an NVSwitch asks for.

The codes and their classes are those of NVIDIA's Fabric Manager User Guide, appendices D.4 (non-fatal), D.5 (fatal to
the jobs of one port or partition) and D.6 (always fatal), as leptonai/gpud repeats them (components/accelerator/nvidia/
sxid). A code that is in none of them is judged by the word in its line.
"""

from __future__ import annotations

from typing import Literal

from gpuops.probes.host.kernel_log import SXidSeverity

Action = Literal["none", "monitor", "reset", "reboot"]
"""``none``: ignore it. ``monitor``: look at it if it repeats. ``reset``: reset all GPUs and NVSwitches together.
``reboot``: reboot the node."""

LINK_FAULT = 20034
"""A link left its working state: a fault, or what a GPU's reset and an unloaded driver leave behind."""
THERMAL_START, THERMAL_END = 10004, 10005

_NONE = (
    *(11012, 11021, 11022, 11023, 12021, 12023, 15008, 15011, 19049, 19055, 19057, 19059, 19062, 19065, 19068, 19071),
    *(20001, 20009, 20012, 22013, 24001, 24002, 24003, THERMAL_END),
)
_MONITOR = (10001, 10002, THERMAL_START, 11004, 12028)
_RESET = (
    *(10003, 11001, 11009, 11013, 11018, 11019, 11020, 12001, 12002, 12022, 12024, 12025, 12026, 12027, 12030, 12031),
    *(12032, 14017, 15001, 15006, 15009, 15010, 15012, 15013, 19047, 19048, 19054, 19056, 19058, 19060, 19061, 19063),
    *(19064, 19066, 19067, 19069, 19070, 19084, LINK_FAULT, 22012, 24004, 24005, 24006, 24007),
)
_REBOOT = (12020, 22003, 22011, *range(23001, 23018))
_ACTIONS: dict[int, Action] = {
    **dict.fromkeys(_NONE, "none"),
    **dict.fromkeys(_MONITOR, "monitor"),
    **dict.fromkeys(_RESET, "reset"),
    **dict.fromkeys(_REBOOT, "reboot"),
}
_BY_WORD: dict[SXidSeverity, Action] = {"fatal": "reset", "non-fatal": "monitor", "": "monitor"}


def action_of(code: int, severity: SXidSeverity) -> Action:
    """Return what an SXid asks for; ``severity`` is the word in its line."""
    return _ACTIONS.get(code, _BY_WORD[severity])

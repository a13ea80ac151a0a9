"""Table of Xid codes with their meanings and actions.

Meanings and actions follow NVIDIA's Xid catalogue, cross-checked with the tables that AWS, Azure, OCI and gpud publish.
These disagree in places, so each row names the source of its action.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from gpuops.probes.nvidia.nvlink_xids import (
    CODES,
    NvlinkError,
    RegisterVerdict,
    Verdict,
    decode_nvlink,
    decode_registers,
    is_hardware,
)

Action = Literal["none", "monitor", "follow", "reset", "reboot", "isolate"]


@dataclass(frozen=True, slots=True)
class XidMeaning:
    """One Xid code: what happened, the required ``action``, and one sentence of ``advice``.

    ``none``: ignore it. ``monitor``: an application error or a transient one; investigate if it repeats. ``follow``:
    act on the preceding Xid of the same GPU. ``reset``: reset the GPU. ``reboot``: reboot the node. ``isolate``: take
    the node out of use, because someone has to service it. ``source`` is the source of the action.
    """

    code: int
    meaning: str
    action: Action
    advice: str
    source: str


_CATALOGUE = "NVIDIA Xid catalogue"
_AWS = "AWS severity table"
_OURS = "gpuops, by analogy; no published action"

_RESTART = "restart the application; if it repeats on this GPU with other applications, run a diagnostic"
_RESET = "drain the node and reset the GPU"
_NVLINK5 = "decode the sub-code before acting; a fatal one that repeats on the same link points at that link"
_INFORMATION = "nothing to do: a notification of power smoothing"

_ROWS: tuple[tuple[tuple[int, ...], str, Action, str, str], ...] = (
    ((13,), "graphics engine exception", "monitor", _RESTART, _CATALOGUE),
    ((31,), "GPU memory page fault (MMU fault)", "monitor", _RESTART, _CATALOGUE),
    ((32, 39, 40, 41, 69), "push buffer or copy engine exception", "monitor", _RESTART, _CATALOGUE),
    ((43,), "a channel was reset after a fault of its application", "none", "look at the application", _CATALOGUE),
    ((44,), "fault in a user's graphics context", "none", "look at the application", _CATALOGUE),
    ((45,), "channels were cleaned up after an earlier error", "follow", "act on the Xid before it", _CATALOGUE),
    ((46,), "the GPU stopped processing", "reset", _RESET, _CATALOGUE),
    ((48,), "double-bit ECC error", "reset", f"{_RESET}; if it repeats, take the card out of use", _CATALOGUE),
    ((54,), "auxiliary power is not connected", "isolate", "check the card's power cables and sockets", _AWS),
    ((61,), "breakpoint of the GPU's power controller", "monitor", "report it to NVIDIA if it repeats", _CATALOGUE),
    ((62,), "the GPU's power controller halted", "reset", f"{_RESET}; if it repeats, open a case", _CATALOGUE),
    ((63,), "a bad memory row or page was recorded", "monitor", "reset the GPU when it is idle", _CATALOGUE),
    ((64,), "a bad memory row or page could not be replaced", "isolate", "reset once, then return it", _CATALOGUE),
    ((66, 67), "illegal access by a driver", "none", "nothing to do", _CATALOGUE),
    ((74,), "NVLink error", "reset", f"{_RESET}; if it repeats, suspect the link and its other end", _CATALOGUE),
    ((78,), "a vGPU could not start", "monitor", "bring host and guest drivers to matching versions", _CATALOGUE),
    ((79,), "the GPU has fallen off the bus", "isolate", "power-cycle the node; if it repeats, return it", _OURS),
    ((80,), "corrupted data was sent to the GPU", "monitor", _RESTART, _CATALOGUE),
    ((92,), "many single-bit ECC errors", "monitor", "watch the rate; a rising rate predicts failure", _CATALOGUE),
    ((93,), "the card's infoROM is wearing out", "monitor", "report it to the vendor", _CATALOGUE),
    ((94,), "contained ECC error", "monitor", "restart the application; reset the GPU when it is idle", _CATALOGUE),
    ((95,), "uncontained ECC error", "reset", _RESET, _CATALOGUE),
    ((109,), "context switch timed out", "reset", _RESET, _CATALOGUE),
    ((110,), "security fault", "reset", _RESET, _CATALOGUE),
    ((119, 120), "the GPU's system processor (GSP) does not answer", "reset", f"{_RESET}; else reboot", _CATALOGUE),
    ((121,), "chip-to-chip link error", "monitor", "report it to the vendor if it repeats", _CATALOGUE),
    ((136,), "link training failed", "reset", _RESET, _CATALOGUE),
    ((137,), "NVLink privilege error", "none", "look at the application", _CATALOGUE),
    ((140,), "unrecovered ECC error", "reset", _RESET, _CATALOGUE),
    ((143,), "the GPU could not be initialized", "reset", _RESET, _CATALOGUE),
    ((144, 145, 146, 147, 148, 149, 150), "NVLink error", "monitor", _NVLINK5, _CATALOGUE),
    ((151,), "key rotation failed", "reboot", "reboot the node or restart its virtual machine", _CATALOGUE),
    ((154,), "the GPU's recovery action has changed", "reset", "do what the message says", _CATALOGUE),
    ((155,), "NVLink error found by software", "reset", _RESET, _CATALOGUE),
    ((156,), "a resource was retired", "reset", _RESET, _CATALOGUE),
    ((157,), "a resource could not be retired", "monitor", "report it to the vendor if it repeats", _CATALOGUE),
    ((158,), "fatal timeout of the GPU", "reset", _RESET, _CATALOGUE),
    ((159,), "coherent interconnect error without data", "monitor", _RESTART, _CATALOGUE),
    ((160,), "a channel was retired", "monitor", "nothing to do unless it repeats", _CATALOGUE),
    ((161,), "a channel could not be retired", "monitor", "report it to the vendor if it repeats", _CATALOGUE),
    ((162, 163, 164, 165), "power smoothing event", "none", _INFORMATION, _CATALOGUE),
    ((167,), "fatal PCIe timeout", "reboot", "reboot the node; if it repeats, reseat the card", _OURS),
    ((168,), "less GPU memory: errors in a protected region", "reboot", "reboot the node", _AWS),
    ((169,), "the GPU's security processor halted", "reset", _RESET, _OURS),
    ((171,), "uncorrectable error in the GPU's memory", "reset", f"{_RESET}; if it repeats, return it", _CATALOGUE),
    ((172,), "uncorrectable error inside the GPU", "reset", f"{_RESET}; if it repeats, return it", _CATALOGUE),
)

XIDS: dict[int, XidMeaning] = {
    code: XidMeaning(code, meaning, action, advice, source)
    for codes, meaning, action, advice, source in _ROWS
    for code in codes
}
"""All known Xids by code."""

ACTIONS: tuple[Action, ...] = ("none", "follow", "monitor", "reset", "reboot", "isolate")
"""From mild to severe."""
APPLICATION = frozenset({13, 31, 32, 39, 40, 41, 43, 44, 45, 66, 67, 69, 80, 137})
"""Xids that an application's own fault leaves behind: no other Xid follows from them."""

_RECOVERY = re.compile(r" to 0x[\da-f]+ \(([A-Z][^()]*)\)")
_IMEX = "recover the IMEX domain of the rack; the fault is not this node's"
_BUS_RESET = "power-cycle the node; if the GPU still asks for it, have it inspected"
_RECOVERIES: tuple[tuple[str, Action, str], ...] = (
    ("None", "none", "the GPU needs no recovery any more"),
    ("GPU Reset", "reset", _RESET),
    ("PF FLR", "reset", _RESET),
    ("Drain and Reset", "reset", "start no new jobs, let the running ones finish, then reset the GPU"),
    ("Drain P2P", "monitor", "end all jobs that use peer-to-peer access; then it asks for one of the other actions"),
    ("Node Reboot", "reboot", "drain and reboot the node"),
    ("System Reboot", "reboot", "drain and reboot the node"),
    ("Recover IMEX", "monitor", _IMEX),
    ("IMEX", "monitor", _IMEX),
    ("Bus Reset", "isolate", _BUS_RESET),
    ("PCIe Bus Reset", "isolate", _BUS_RESET),
)
"""Source: the text of Xid 154 itself, which begins with one of these."""

_ACTION_OF_VERDICT: dict[Verdict, Action] = {"ignore": "none", "reset": "reset"}
_SUSPECTS = {
    "peer": "the device at the other end is the suspect",
    "link": "the link is the suspect",
    "software": "software or a user is the suspect",
    "host": "the host is the suspect",
}
RESEAT = "if it repeats, reseat the link's two ends and run a field diagnosis"
_REGISTERS: dict[RegisterVerdict, tuple[Action, str]] = {
    "ignore": ("none", "nothing to do"),
    "secondary": ("monitor", "a consequence of another error; report it to NVIDIA if there is none"),
    "report": ("monitor", "report it to NVIDIA if it repeats"),
    "parity": ("monitor", "nothing to do now; more than twice on the same link, it is the hardware"),
    "repeats": ("monitor", "nothing to do now; if it repeats on the same link, run a field diagnosis"),
    "marginal": ("monitor", "a marginal signal: look at the GPU's other errors first, then at the link's connection"),
    "reseat": ("reset", f"{_RESET}; {RESEAT}"),
    "reset": ("reset", f"{_RESET}, because the NVLink fabric needs it"),
}
_HARDWARE = f"{_RESET} and run a field diagnosis; if it comes back on the same link, replace the link's ends"


def meaning_of(code: int, text: str = "", times: int = 1) -> XidMeaning:
    """Return the meaning of Xid ``code``. Unknown codes are monitored.

    The ``text`` of Xid 154, the hex words of 144 to 150 and the registers of 74 decide, and for the last also how many
    ``times`` the link logged the same.
    """
    if code not in XIDS:
        return XidMeaning(code, "not in NVIDIA's table", "monitor", "look it up in NVIDIA's Xid catalogue", _OURS)
    if code == 154:
        return _recovery(text)
    if code in CODES:
        error = decode_nvlink(code, text)
        return _nvlink_error(code, error) if error else XIDS[code]
    registers = decode_registers(text) if code == 74 else None
    return _nvlink_registers(registers, times) if registers else XIDS[code]


def _recovery(text: str) -> XidMeaning:
    match = _RECOVERY.search(text)
    rows = ((action, advice) for word, action, advice in _RECOVERIES if match and match[1].startswith(word))
    action, advice = next(rows, (XIDS[154].action, XIDS[154].advice))
    return replace(XIDS[154], action=action, advice=advice)


def _nvlink_error(code: int, error: NvlinkError) -> XidMeaning:
    suspect = f": {_SUSPECTS[error.suspect]}" if error.suspect else ""
    meaning = f"{XIDS[code].meaning}, {error.place}{suspect}"
    return replace(
        XIDS[code], meaning=meaning, action=_ACTION_OF_VERDICT.get(error.verdict, "monitor"), advice=error.advice
    )


def _nvlink_registers(registers: tuple[int, RegisterVerdict], times: int) -> XidMeaning:
    link, verdict = registers
    action, advice = _REGISTERS[verdict]
    if is_hardware(verdict, times):
        action, advice = "reset", _HARDWARE
    return replace(XIDS[74], meaning=f"NVLink error, link {link}", action=action, advice=advice)

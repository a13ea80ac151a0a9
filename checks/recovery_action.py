"""No GPU asks for a reset, a reboot or another way of recovery."""

import re
from collections.abc import Iterator
from typing import Literal

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.probes.nvidia.gpus import Gpu, gpus

_Severity = Literal["warn", "reset", "reboot", "isolate"]
_ACTIONS: dict[str, tuple[_Severity, str]] = {
    "reset": ("reset", "drain the node and reset GPU {index} (nvidia-smi --gpu-reset -i {index})"),
    "reboot": ("reboot", "drain and reboot the node"),
    "drain p2p": ("warn", "end all jobs that use peer-to-peer access; then it asks for one of the other actions"),
    "bus reset": ("isolate", "power-cycle the node; if GPU {index} still asks for it, have it inspected"),
    "imex": ("warn", "recover the IMEX domain of the rack; the fault is not this node's"),
}
_WORDS: dict[str, str] = {
    "reset": "reset",
    "gpu reset": "reset",
    "gpu reset required": "reset",
    "drain and reset": "reset",
    "drain and reset required": "reset",
    "pf flr": "reset",  # a function-level reset, as one record of Xid 154 names 0x1
    "reboot": "reboot",
    "node reboot": "reboot",
    "node reboot required": "reboot",
    "os reboot": "reboot",
    "system reboot": "reboot",
    "drain p2p": "drain p2p",
    "bus reset": "bus reset",
    "pcie bus reset": "bus reset",
    "recover imex domain": "imex",
}
_BY_NUMBER = ("none", "reset", "reboot", "drain p2p", "reset", "imex", "bus reset", "reboot")
"""By NVML's number of the action, which a driver may print before or instead of its word."""
_NUMBERED = re.compile(r"(?:0x)?(?P<number>[0-7])(?: *\((?P<word>[^()]*)\))?")
_DEMAND = "GPU requires reset"
_UNKNOWN_ACTION: tuple[_Severity, str] = ("reset", "read NVIDIA's GPU Memory Error Management on this word")


@check(
    needs=gpus,
    severity="reset",
    tags=("quick", "gpu", "nvidia-smi"),
    explains=("xid:154",),
    applies_to="GPUs with a driver of release 570 or later",
    catches="a GPU that the driver gave up on, also if the log with the reason is gone",
    fix="do what the GPU asks for",
)
def recovery_action(gpus: tuple[Gpu, ...], _profile: Profile) -> Iterator[Finding | Unknown | NotApplicable]:
    """The driver reports which action each GPU needs; drivers before release 570 do not.

    Source: NVIDIA GPU Memory Error Management, Error Recovery and Response Flags (None, Reset, Reboot, Drain P2P, Drain
    and Reset); NVML's ``nvmlDeviceGpuRecoveryAction_t`` also has actions on the PCIe bus and the IMEX domain. An
    unknown action fails, because the GPU asks for something. So does a GPU that prints "GPU requires reset" in place of
    values: NVML's text for the return code NVML_ERROR_RESET_REQUIRED.
    """
    reporting = any(gpu.recovery_action or gpu.requires_reset for gpu in gpus)
    if not reporting:
        yield NotApplicable("the driver does not report it")
    for gpu in gpus:
        if reporting and gpu.recovery_action is None and not gpu.requires_reset:
            yield Unknown(f"{gpu.label} does not report what it asks for")
        words = gpu.recovery_action or ""
        action = _action(words)
        if action == "none" and gpu.requires_reset:
            action, words = "reset", _DEMAND
        if action != "none":
            severity, fix = _ACTIONS.get(action, _UNKNOWN_ACTION)
            yield Finding(
                f"asks for: {words}",
                expected="None",
                found=words,
                fix=fix.format(index=gpu.index),
                part=gpu.part,
                severity=severity,
                code=words,
            )


def _action(words: str) -> str:
    """Return the key of `_ACTIONS`, ``none``, or an empty string for words that are not known."""
    numbered = _NUMBERED.fullmatch(words)
    if numbered:
        return _WORDS.get((numbered["word"] or "").lower()) or _BY_NUMBER[int(numbered["number"])]
    return "none" if words in {"", "None"} else _WORDS.get(words.lower(), "")

"""nvidia-smi reports no faulty power cable, interrupt or infoROM, and a value for each field."""

from collections.abc import Iterator
from typing import Literal

from gpuops import Finding, Profile, Unknown, check
from gpuops.probes.nvidia.nvidia_smi import Smi, smi

_FIXES = {
    "power-cable": "attach all power cables of the GPU; if they are attached, replace the cable or the power supply",
    "interrupt": "reboot; if the error comes back, update the BIOS and remove pci=nomsi from the kernel command line",
    "inforom": "reset the GPU when idle; if the error comes back, return the card",
}

_MOST_NAMED = 4


@check(
    needs=smi,
    severity="fail",
    tags=("quick", "start", "gpu", "nvidia-smi"),
    explains=("xid:54",),
    blinds=("nvidia-smi",),
    catches="a card without auxiliary power, without interrupts, or with a damaged infoROM",
    fix="depending on the error: attach the power cables, reboot, or reset the GPU",
)
def smi_errors(answer: Smi, _profile: Profile) -> Iterator[Finding | Unknown]:
    """If a GPU answers with errors in place of values, the result is unknown. A damaged infoROM only warns.

    The check recovery-action judges a GPU that answers with "GPU requires reset".

    Source: the manual page of nvidia-smi, return values 8 (power cables), 10 (interrupts) and 14 (infoROM).
    """
    for gpu in answer.gpus:
        if gpu.faulty_fields and not gpu.requires_reset:
            yield Unknown(f"{gpu.label} answers with errors: {', '.join(gpu.faulty_fields[:_MOST_NAMED])}")
    error = answer.error
    if error is None:
        return
    if error.kind not in _FIXES:
        yield Unknown(error.text)
        return
    severity: Literal["warn"] | None = "warn" if error.kind == "inforom" else None
    named: list[str] = [gpu.part for gpu in answer.gpus if gpu.address in error.addresses]
    for part in named or ["node"]:
        yield Finding(error.text, fix=_FIXES[error.kind], part=part, severity=severity)

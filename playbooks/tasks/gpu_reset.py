"""A reset of GPUs, or a reboot where a reset does not reach the fault."""

from dataclasses import dataclass

from gpuops import Change, Failed, Plan, Unknown, task, use
from gpuops.probes.host.lspci import PciFunction, gpu_functions
from gpuops.probes.nvidia.nvidia_smi import Gpu, Smi, smi

_LOST = ("gpu-lost", "unknown-handle", "driver-not-loaded", "version-mismatch")
"""What nvidia-smi says where a reset cannot be asked for: only a new boot reaches such a GPU or driver."""
_TOGETHER = ("Ampere", "Hopper")
"""Generations whose NVSwitches are reset with all their GPUs."""
_BRIDGE = "0680"


@dataclass(frozen=True)
class Params:
    """``reason`` is told to whoever looks. ``gpus`` are indices, none: all of them.

    ``if_pending`` resets only GPUs on which a row remapping or a page retirement waits for it.
    """

    reason: str
    gpus: tuple[int, ...] = ()
    if_pending: bool = False


@task
def gpu_reset(params: Params) -> Plan:
    """What holds the driver open is stopped for it, and a node on which anybody computes is left alone.

    On a baseboard with NVSwitches of Ampere's and Hopper's generation all GPUs are reset together. A GPU that fell off
    the bus, or a driver that does not answer, takes a reboot. Source: NVIDIA, nvidia-smi manual page, --gpu-reset.
    """
    cards, functions = yield (smi, gpu_functions)
    if isinstance(cards, Unknown):
        yield Failed(f"nvidia-smi does not tell of the GPUs: {cards.why}")
    error = cards.error.kind if cards.error else ""
    off = [] if isinstance(functions, Unknown) else [f.address for f in functions if f.off_the_bus]
    if error in _LOST or off:
        why = f"{params.reason} ({', '.join(off) or error}, which no reset reaches)"
        yield Change(f"reboot: {why}", reboot=why, kind="act")
        return
    chosen = [gpu for gpu in cards.gpus if _is_meant(gpu, params)]
    if chosen:
        yield from _reset(params, chosen, together=_is_baseboard(cards, functions))


def _is_meant(gpu: Gpu, params: Params) -> bool:
    """The parameters name it, or none, and it waits for a reset where only such are meant."""
    pending = bool(gpu.remapped_rows.pending if gpu.remapped_rows else gpu.retired_pages_pending)
    return (not params.gpus or gpu.index in params.gpus) and (pending or not params.if_pending)


def _is_baseboard(cards: Smi, functions: tuple[PciFunction, ...] | Unknown) -> bool:
    """The GPUs sit on NVSwitches that are reset with them; where lspci does not tell, they are taken to."""
    switched = isinstance(functions, Unknown) or any(f.class_id == _BRIDGE for f in functions)
    return switched and any((gpu.architecture or "").startswith(_TOGETHER) for gpu in cards.gpus)


def _reset(params: Params, chosen: list[Gpu], *, together: bool) -> Plan:
    """All GPUs, or those that are chosen; a pending remapping that is still there afterwards did not hold."""
    addresses = [] if together or not (params.gpus or params.if_pending) else [gpu.address for gpu in chosen]
    what = f"reset GPU {', '.join(addresses)}" if addresses else "reset all GPUs together"
    yield from use(
        "gpu_exclusive",
        title=f"{what}: {params.reason}",
        words=["nvidia-smi", "--gpu-reset", *(("-i", ",".join(addresses)) if addresses else ())],
        kind="state" if params.if_pending else "act",
    )

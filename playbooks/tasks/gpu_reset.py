"""A reset of GPUs, or a reboot if a reset cannot clear the fault."""

from dataclasses import dataclass

from gpuops import Change, Failed, Plan, Unknown, task, use
from gpuops.probes.host.lspci import PciFunction, gpu_functions
from gpuops.probes.nvidia.nvidia_smi import Gpu, Smi, smi

_LOST = ("gpu-lost", "unknown-handle", "driver-not-loaded", "version-mismatch")
"""Messages of nvidia-smi if a reset is impossible: only a reboot helps such a GPU or driver."""
_TOGETHER = ("Ampere", "Hopper")
"""Generations whose NVSwitches are reset together with all their GPUs."""
_BRIDGE = "0680"


@dataclass(frozen=True)
class Params:
    """``reason`` is recorded and shown. ``gpus`` are indices; empty means all GPUs.

    ``if_pending`` resets only GPUs with a row remapping or a page retirement that is pending until a reset.
    """

    reason: str
    gpus: tuple[int, ...] = ()
    if_pending: bool = False


@task
def gpu_reset(params: Params) -> Plan:
    """The GPUs are reset. Services that hold the driver open are stopped meanwhile; a node with jobs is left alone.

    On a baseboard with NVSwitches of the Ampere or Hopper generation all GPUs are reset together. A GPU that fell off
    the bus, or a driver that does not answer, needs a reboot. Source: NVIDIA, nvidia-smi manual page, --gpu-reset.
    """
    cards, functions = yield (smi, gpu_functions)
    if isinstance(cards, Unknown):
        yield Failed(f"cannot read the GPUs from nvidia-smi: {cards.why}")
    error = cards.error.kind if cards.error else ""
    off = [] if isinstance(functions, Unknown) else [f.address for f in functions if f.off_the_bus]
    if error in _LOST or off:
        why = f"{params.reason} ({', '.join(off) or error}, which a reset cannot clear)"
        yield Change(f"reboot: {why}", reboot=why, kind="act")
        return
    chosen = [gpu for gpu in cards.gpus if _is_meant(gpu, params)]
    if chosen:
        yield from _reset(params, chosen, together=_is_baseboard(cards, functions))


def _is_meant(gpu: Gpu, params: Params) -> bool:
    """Return True if the parameters select the GPU and, with ``if_pending``, it waits for a reset."""
    pending = bool(gpu.remapped_rows.pending if gpu.remapped_rows else gpu.retired_pages_pending)
    return (not params.gpus or gpu.index in params.gpus) and (pending or not params.if_pending)


def _is_baseboard(cards: Smi, functions: tuple[PciFunction, ...] | Unknown) -> bool:
    """Return True if the GPUs are reset with their NVSwitches; assumed if lspci gives no answer."""
    switched = isinstance(functions, Unknown) or any(f.class_id == _BRIDGE for f in functions)
    return switched and any((gpu.architecture or "").startswith(_TOGETHER) for gpu in cards.gpus)


def _reset(params: Params, chosen: list[Gpu], *, together: bool) -> Plan:
    """Reset all GPUs, or the selected ones; a remapping that is still pending afterwards did not take effect."""
    addresses = [] if together or not (params.gpus or params.if_pending) else [gpu.address for gpu in chosen]
    what = f"reset GPU {', '.join(addresses)}" if addresses else "reset all GPUs together"
    yield from use(
        "gpu_exclusive",
        title=f"{what}: {params.reason}",
        words=["nvidia-smi", "--gpu-reset", *(("-i", ",".join(addresses)) if addresses else ())],
        kind="state" if params.if_pending else "act",
    )

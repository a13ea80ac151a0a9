"""A reset of GPUs, or a reboot where a reset does not reach the fault."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gpuops import Change, Command, Failed, NeedsOperator, Plan, Unknown, task
from gpuops.probes.lspci import PciFunction, gpu_functions
from gpuops.probes.nvidia_smi import Gpu, Smi, smi
from gpuops.probes.occupancy import occupancy

_CLIENTS = (
    "slurmd",
    "nvidia-cdi-refresh.path",
    "nvidia-cdi-refresh",
    "nvidia-dcgm-exporter",
    "dcgm-exporter",
    "nvidia-dcgm",
    "nvidia-persistenced",
    "nvidia-fabricmanager",
    "nvidia-imex",
    "nvidia-gridd",
    "nvidia-topologyd",
)
"""What holds the driver open on a node without jobs, in the order in which it is stopped; started again in reverse."""
_LOST = ("gpu-lost", "unknown-handle", "driver-not-loaded", "version-mismatch")
"""What nvidia-smi says where a reset cannot be asked for: only a new boot reaches such a GPU or driver."""
_TOGETHER = ("Ampere", "Hopper")
"""Generations whose NVSwitches are reset with all their GPUs."""
_BRIDGE = "0680"
# The clients come back whatever the reset did. Units that were not active stay stopped.
_RESET = """\
card=$1; shift; stopped=
for unit; do
    systemctl is-active --quiet "$unit" || continue
    systemctl stop "$unit" && stopped="$unit $stopped"
done
if [ -n "$card" ]; then nvidia-smi --gpu-reset -i "$card"; else nvidia-smi --gpu-reset; fi
ended=$?
for unit in $stopped; do systemctl start "$unit" || ended=1; done
exit $ended
"""


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
    """What holds the driver open is stopped, in order, and started again whatever came of the reset.

    On a baseboard with NVSwitches of Ampere's and Hopper's generation all GPUs are reset together. A GPU that fell off
    the bus, or a driver that does not answer, takes a reboot. A node on which anybody still computes is left alone.
    Source: NVIDIA, nvidia-smi manual page, --gpu-reset; oracle-quickstart/oci-hpc, gpu_reset.sh (the clients' order).
    """
    cards, functions, held = yield (smi, gpu_functions, occupancy)
    if isinstance(cards, Unknown):
        yield Failed(f"nvidia-smi does not tell of the GPUs: {cards.why}")
    error = cards.error.kind if cards.error else ""
    off = [] if isinstance(functions, Unknown) else [f.address for f in functions if f.off_the_bus]
    if error in _LOST or off:
        why = f"{params.reason} ({', '.join(off) or error}, which no reset reaches)"
        yield Change(f"reboot: {why}", reboot=why, kind="act")
        return
    chosen = [gpu for gpu in cards.gpus if _is_meant(gpu, params)]
    if not chosen:
        return
    if isinstance(held, Unknown) or held.hidden:
        yield Failed(f"who has the GPUs open cannot be told: {held.why if isinstance(held, Unknown) else held.hidden}")
    computing = ", ".join(f"pid {h.pid} {h.name}" for h in held.holders if not h.is_daemon)
    if computing:
        yield NeedsOperator(f"GPUs are in use ({computing}): end that first")
    yield from _resets(params, chosen, together=_is_baseboard(cards, functions))


def _is_meant(gpu: Gpu, params: Params) -> bool:
    """The parameters name it, or none, and it waits for a reset where only such are meant."""
    pending = bool(gpu.remapped_rows.pending if gpu.remapped_rows else gpu.retired_pages_pending)
    return (not params.gpus or gpu.index in params.gpus) and (pending or not params.if_pending)


def _is_baseboard(cards: Smi, functions: tuple[PciFunction, ...] | Unknown) -> bool:
    """The GPUs sit on NVSwitches that are reset with them; where lspci does not tell, they are taken to."""
    switched = isinstance(functions, Unknown) or any(f.class_id == _BRIDGE for f in functions)
    return switched and any((gpu.architecture or "").startswith(_TOGETHER) for gpu in cards.gpus)


def _resets(params: Params, chosen: list[Gpu], *, together: bool) -> Iterator[Change]:
    """One change a GPU, or one for all; a pending remapping that is still there afterwards did not hold."""
    targets = [""] if together or not (params.gpus or params.if_pending) else [gpu.address for gpu in chosen]
    for address in targets:
        words = ("sh", "-c", _RESET, "sh", address, *_CLIENTS)
        command = Command(words, timeout_seconds=600, become="always")
        what = f"reset GPU {address}" if address else "reset all GPUs together"
        kind: Literal["state", "act"] = "state" if params.if_pending else "act"
        yield Change(f"{what}: {params.reason}", command, detach=True, kind=kind)

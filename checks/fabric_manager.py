"""The fabric manager runs, is of the driver's version, and has brought every GPU into the NVLink fabric."""

from collections.abc import Iterator

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.probes.driver import Driver, driver
from gpuops.probes.fabric_manager import FabricManager
from gpuops.probes.fabric_manager import fabric_manager as installed
from gpuops.probes.gpus import Gpu, gpus
from gpuops.probes.services import Service, services

_UNIT = "nvidia-fabricmanager"
_RESTART = f"systemctl enable --now {_UNIT}; if it fails, journalctl -u {_UNIT} says why"


@check(
    needs=(gpus, services, installed, driver),
    expects=("nvswitch",),
    tolerates=(gpus, services, installed, driver),
    severity="fail",
    tags=("quick", "nvlink", "driver", "nvidia-smi"),
    catches='"system not yet initialized" from CUDA, or collectives that fail or fall back to slow paths',
    fix=_RESTART,
)
def fabric_manager(
    found: tuple[Gpu, ...] | Unknown,
    units: dict[str, Service] | Unknown,
    manager: FabricManager | Unknown,
    loaded: Driver | Unknown,
    profile: Profile,
) -> Iterator[Finding | Unknown | NotApplicable]:
    """Only machines with NVSwitches (``nvswitch`` in the profile) need one.

    Source: NVIDIA Fabric Manager User Guide: its version must be the driver's, and a GPU of Hopper or later is ready
    when its fabric state is Completed and its status Success. Without a unit of its own it may run in a container or
    on the hypervisor; then the GPUs' own word decides.
    """
    if not profile["nvswitch"]:
        yield NotApplicable("there is no NVSwitch in this machine")
        return
    unit = units if isinstance(units, Unknown) else units.get(_UNIT, Unknown(f"systemd says nothing of {_UNIT}"))
    told = () if isinstance(found, Unknown) else tuple(gpu for gpu in found if gpu.fabric_state)
    if isinstance(unit, Service) and not unit.running and (unit.installed or not told):
        state = unit.active if unit.installed else "not installed"
        yield Finding(f"{_UNIT} is {state}", "active", state, subject="fabricmanager")
        return
    if isinstance(unit, Unknown) or unit.running:
        yield from _judge_version(manager, loaded)
    yield from (part for part in (unit, found) if isinstance(part, Unknown))
    for gpu in told:
        if gpu.fabric_state != "Completed" or gpu.fabric_status not in {None, "Success"}:
            state = f"{gpu.fabric_state}, {gpu.fabric_status}"
            yield Finding(f"fabric: {state}", "Completed, Success", state, subject=gpu.subject, label=gpu.label)


def _judge_version(manager: FabricManager | Unknown, loaded: Driver | Unknown) -> Iterator[Finding | Unknown]:
    """The subject is the driver: where that was half updated, the fabric manager's version is an effect."""
    yield from (part for part in (manager, loaded) if isinstance(part, Unknown))
    if isinstance(manager, FabricManager) and isinstance(loaded, Driver) and manager.version != loaded.loaded_version:
        message = f"the fabric manager is {manager.version}, the driver {loaded.loaded_version}"
        fix = f"install nvidia-fabricmanager {loaded.loaded_version} and restart {_UNIT}"
        yield Finding(message, loaded.loaded_version, manager.version, "", fix, "driver")

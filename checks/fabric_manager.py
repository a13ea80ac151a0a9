"""The fabric manager is running, has the driver's version, and has added every GPU to the NVLink fabric."""

from collections.abc import Iterator

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.probes.host.services import Service, services
from gpuops.probes.nvidia.driver import Driver, InstalledDriver, driver, installed_driver
from gpuops.probes.nvidia.fabric_manager import FabricManager
from gpuops.probes.nvidia.fabric_manager import fabric_manager as probe
from gpuops.probes.nvidia.gpus import Gpu, gpus

_UNIT = "nvidia-fabricmanager"


@check(
    needs=(gpus, services, probe, driver, installed_driver),
    tolerates=(gpus, services, probe, driver, installed_driver),
    uses=("nvswitch",),
    severity="fail",
    tags=("quick", "start", "nvlink", "driver", "nvidia-smi"),
    settles_seconds=300,
    applies_to="machines with NVSwitches, and GPUs in an NVLink fabric",
    catches='"system not yet initialized" from CUDA, or collectives that fail or fall back to slow paths',
    fix=f"systemctl enable --now {_UNIT}; if it fails, see journalctl -u {_UNIT}",
    fix_in_common="look at what they share: an update without the fabric manager, or the rack's NVLink switches",
)
def fabric_manager(
    gpus: tuple[Gpu, ...] | Unknown,
    units: dict[str, Service] | Unknown,
    manager: FabricManager | Unknown,
    loaded: Driver | Unknown,
    on_disk: InstalledDriver | Unknown,
    profile: Profile,
) -> Iterator[Finding | Unknown | NotApplicable]:
    """Only machines with NVSwitches (``nvswitch`` in the profile) need one; every GPU that is in a fabric is judged.

    Source: NVIDIA Fabric Manager User Guide: its version must be the driver's, and a GPU of Hopper or later is ready
    when its fabric state is Completed and its status Success. The health is judged where it is reported: a healthy HGX
    H100 does not. If there is no systemd unit, it may run in a container or on the hypervisor; then the state that the
    GPUs report decides, as on an NVL72 rack, which is managed from outside of its nodes.
    """
    in_fabric = () if isinstance(gpus, Unknown) else tuple(gpu for gpu in gpus if gpu.fabric_state)
    if not profile.get("nvswitch"):
        if not in_fabric:
            yield NotApplicable("the machine is not known to have NVSwitches")
        yield from _judge_fabric(in_fabric)
        return
    unit = units if isinstance(units, Unknown) else units.get(_UNIT, Unknown(f"systemd does not report {_UNIT}"))
    if isinstance(unit, Service) and not unit.running and (unit.installed or not in_fabric):
        state = unit.active if unit.installed else "not installed"
        fix = "" if unit.installed else f"install {_UNIT} of the driver's version, then systemctl enable --now {_UNIT}"
        message = f"{_UNIT} is not running: {state}"
        yield Finding(message, expected="active", found=state, fix=fix, part="fabricmanager")
        return
    if isinstance(unit, Unknown) or unit.running:
        yield from _judge_version(manager, loaded, on_disk)
    yield from (part for part in (unit, gpus) if isinstance(part, Unknown))
    yield from _judge_fabric(in_fabric)


def _judge_fabric(gpus_in_fabric: tuple[Gpu, ...]) -> Iterator[Finding]:
    for gpu in gpus_in_fabric:
        if gpu.fabric_health not in {None, "Healthy"}:
            fix = f"drain the node and reset GPU {gpu.index}; if it stays, have the NVSwitch and its links inspected"
            message = f"fabric health: {gpu.fabric_health}"
            yield Finding(message, expected="Healthy", found=gpu.fabric_health, fix=fix, part=gpu.part)
        if gpu.fabric_state != "Completed" or gpu.fabric_status not in {None, "Success"}:
            state = f"{gpu.fabric_state}, {gpu.fabric_status}"
            yield Finding(f"fabric: {state}", expected="Completed, Success", found=state, part=gpu.part)


def _judge_version(
    manager: FabricManager | Unknown, loaded: Driver | Unknown, on_disk: InstalledDriver | Unknown
) -> Iterator[Finding | Unknown]:
    """Yield a finding unless the version matches the installed module: then `driver-loaded` reports the reboot."""
    yield from (part for part in (manager, loaded) if isinstance(part, Unknown))
    if isinstance(manager, Unknown) or isinstance(loaded, Unknown):
        return
    here, theirs = loaded.loaded_version, manager.version
    if theirs != here and not (isinstance(on_disk, InstalledDriver) and theirs == on_disk.version):
        message = f"fabric manager {theirs} does not match driver {here}"
        fix = f"install nvidia-fabricmanager {here} and restart {_UNIT}"
        yield Finding(message, expected=here, found=theirs, fix=fix, part="fabricmanager")

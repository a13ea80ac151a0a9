"""The driver stays loaded on every GPU also while no process uses it (persistence mode)."""

from collections.abc import Iterator

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.probes.host.services import Service, services
from gpuops.probes.nvidia.gpus import Gpu, gpus

_UNIT = "nvidia-persistenced"
_START = f"systemctl enable --now {_UNIT}; remove --no-persistence-mode from its unit, if that is there"


@check(
    needs=(gpus, services),
    tolerates=(services,),
    expects=("gpu.persistence",),
    severity="warn",
    tags=("quick", "gpu", "nvidia-smi"),
    applies_to="machines whose profile expects it: those with data centre GPUs; not workstations",
    catches="GPUs that are initialized for every job: slow starts, and clocks, limits and counters that are lost",
    fix=_START,
)
def persistence_mode(
    gpus: tuple[Gpu, ...], units: dict[str, Service] | Unknown, profile: Profile
) -> Iterator[Finding | Unknown | NotApplicable]:
    """All GPUs without it are one finding on the node.

    Sources: NVIDIA driver README, nvidia-persistenced (the driver state of an idle GPU is lost without it);
    Azure/azurehpc-health-checks, azure_gpu_persistence.nhc; leptonai/gpud issue 802 (persistence-mode component);
    NVIDIA/NVSentinel issue 1382.
    """
    if not profile["gpu.persistence"]:
        yield NotApplicable("the profile does not expect persistence mode")
        return
    yield from (Unknown(f"{gpu.label} does not report its mode") for gpu in gpus if gpu.persistence_mode is None)
    off = [gpu for gpu in gpus if gpu.persistence_mode is False]
    if len(off) > 1 and len(off) == len(gpus):
        message = f"persistence mode is off on all {len(off)} GPUs{_daemon(units)}"
        yield Finding(message, expected="on", found="off")
        return
    for gpu in off:
        fix = f"nvidia-smi -i {gpu.index} -pm 1, and find out what switched it off"
        yield Finding("persistence mode is off", expected="on", found="off", fix=fix, part=gpu.part)


def _daemon(units: dict[str, Service] | Unknown) -> str:
    """Return what systemd says of the daemon, if it does not run."""
    unit = None if isinstance(units, Unknown) else units.get(_UNIT)
    if unit is None or unit.running:
        return ""
    return f"; {_UNIT} is {unit.active if unit.installed else 'not installed'}"

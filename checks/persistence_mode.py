"""The driver stays loaded on every GPU also while no process uses it (persistence mode)."""

from collections.abc import Iterator

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.probes.host.services import Service, services
from gpuops.probes.nvidia.gpus import Gpu, gpus

_UNIT = "nvidia-persistenced"
_START = f"systemctl enable --now {_UNIT}; remove --no-persistence-mode from its unit, if that is there"
_READ = f"read journalctl -u {_UNIT}, and start it again: systemctl restart {_UNIT}"
_MODE_STAYS = ": persistence mode is on until the driver is loaded again, and then stays off"


@check(
    needs=(gpus, services),
    tolerates=(services,),
    uses=("gpu.persistence",),
    severity="warn",
    tags=("quick", "gpu", "nvidia-smi"),
    applies_to="machines whose profile expects it (data centre GPUs); a failed daemon, on all machines",
    catches="GPUs that are initialized for every job: slow starts, and clocks, limits and counters that are lost",
    fix=_START,
)
def persistence_mode(
    gpus: tuple[Gpu, ...], units: dict[str, Service] | Unknown, profile: Profile
) -> Iterator[Finding | Unknown | NotApplicable]:
    """If it is off on all GPUs, that is one finding. A failed daemon is a finding even while the mode is on.

    Sources: NVIDIA driver README, nvidia-persistenced (the driver state of an idle GPU is lost without it);
    Azure/azurehpc-health-checks, azure_gpu_persistence.nhc; leptonai/gpud issue 802 (persistence-mode component);
    NVIDIA/NVSentinel issue 1382.
    """
    daemon = None if isinstance(units, Unknown) else units.get(_UNIT)
    off = [gpu for gpu in gpus if gpu.persistence_mode is False]
    is_off_on_all = len(off) == len(gpus)
    is_expected = profile.get("gpu.persistence", False)
    if daemon is not None and daemon.active == "failed" and not (is_expected and is_off_on_all):
        words = _MODE_STAYS if all(gpu.persistence_mode for gpu in gpus) else ""
        yield Finding(f"{_UNIT} failed{words}", expected="active", found="failed", fix=_READ)
    if not is_expected:
        yield NotApplicable("the profile does not expect persistence mode")
        return
    yield from (Unknown(f"{gpu.label} does not report its mode") for gpu in gpus if gpu.persistence_mode is None)
    why = _state_of(daemon) if is_off_on_all else ""
    if len(off) > 1 and is_off_on_all:
        yield Finding(f"persistence mode is off on all {len(off)} GPUs{why}", expected="on", found="off")
        return
    for gpu in off:
        fix = f"nvidia-smi -i {gpu.index} -pm 1, and find out what switched it off"
        yield Finding(f"persistence mode is off{why}", expected="on", found="off", fix=fix, part=gpu.part)


def _state_of(daemon: Service | None) -> str:
    """Return what systemd says of the daemon, if it does not run."""
    if daemon is None or daemon.running:
        return ""
    return f"; {_UNIT} is {daemon.active if daemon.installed else 'not installed'}"

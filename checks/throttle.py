"""No GPU lowers its clocks because of heat, a power brake or a hardware fault."""

from collections.abc import Iterator
from typing import Literal

from gpuops import Finding, Profile, Unknown, check
from gpuops.probes.nvidia.gpus import Gpu, gpus

_BRAKE = "hw_power_brake_slowdown"
_FIXES = {
    "hw_thermal_slowdown": "check fans, airflow and inlet temperature; if its neighbours are cool, return the card",
    _BRAKE: "check power supplies and the rack's power budget; the signal is external to the GPU",
    "hw_slowdown": "check the power supplies and the cooling; if both are normal, return the card",
    "sw_thermal_slowdown": "check fans, airflow and inlet temperature",
}
"""By reason, the most specific first: ``hw_slowdown`` is set in addition to the two before it."""
_NOT_YET = "; its counter is still 0, so look again in a minute"


@check(
    needs=gpus,
    severity="fail",
    tags=("quick", "gpu", "power", "temperature", "nvidia-smi"),
    explains=("temperature",),
    catches="a GPU at half speed because of heat or power, which slows down the whole job",
    fix="check the cooling and the power supplies; if both are normal, return the card",
    fix_in_common="look at the cooling and the power feed of these nodes",
)
def throttle(gpus: tuple[Gpu, ...], _profile: Profile) -> Iterator[Finding | Unknown]:
    """Normal reasons for low clocks are idle, application or display clock settings, sync boost and the power cap.

    Source: NVIDIA NVML API reference, clocks event reasons. The software thermal slowdown is only a warning, because
    the driver uses it to stay below the limit (leptonai/gpud, hw-slowdown component, fails for hardware reasons only).
    A power brake on all GPUs is one finding on the node, because the signal comes from outside of them. A reason that
    the GPU's counter does not show yet may last a moment only, so it is a warning too.
    """
    braked = [gpu for gpu in gpus if _BRAKE in (gpu.throttle_reasons or ())]
    if len(braked) == len(gpus) > 1:
        message = f"a power brake lowers the clocks of all {len(gpus)} GPUs"
        severity: Literal["warn"] | None = "warn" if all(_is_momentary(gpu) for gpu in gpus) else None
        fix = _FIXES[_BRAKE] + (_NOT_YET if severity else "")
        yield Finding(message, expected="none", found=_BRAKE, fix=fix, severity=severity)
        return
    for gpu in gpus:
        if gpu.throttle_reasons is None:
            yield Unknown(f"{gpu.label} does not report why its clocks are lowered")
            continue
        reasons = [reason for reason in _FIXES if reason in gpu.throttle_reasons]
        if reasons:
            is_momentary = _is_momentary(gpu)
            yield Finding(
                f"clocks lowered by {', '.join(reasons)}",
                expected="none",
                found=", ".join(reasons),
                fix=_FIXES[reasons[0]] + (_NOT_YET if is_momentary else ""),
                part=gpu.part,
                severity="warn" if is_momentary or reasons == ["sw_thermal_slowdown"] else None,
            )


def _is_momentary(gpu: Gpu) -> bool:
    """Return True if the counters of all hardware reasons that are active are 0."""
    counted = {"hw_thermal_slowdown": gpu.heat_slowdown_microseconds, _BRAKE: gpu.power_brake_microseconds}
    active = [microseconds for reason, microseconds in counted.items() if reason in (gpu.throttle_reasons or ())]
    return bool(active) and all(microseconds == 0 for microseconds in active)

"""No GPU slows its clocks down because of heat, a power brake or a hardware fault."""

from collections.abc import Iterator

from gpuops import Finding, Profile, Unknown, check
from gpuops.probes.nvidia.gpus import Gpu, gpus

_FIXES = {
    "hw_thermal_slowdown": "look at fans, airflow and inlet temperature; if its neighbours are cool, send the card in",
    "hw_power_brake_slowdown": "look at the power supplies and the rack's power budget: the brake comes from outside",
    "hw_slowdown": "look at the power supplies and the cooling; if both are well, send the card in",
    "sw_thermal_slowdown": "look at fans, airflow and inlet temperature",
}
"""By reason, the most telling first: ``hw_slowdown`` is set beside the two that say why."""


@check(
    needs=gpus,
    severity="fail",
    tags=("quick", "gpu", "power", "temperature", "nvidia-smi"),
    explains=("temperature",),
    catches="a GPU at half speed because of heat or power: the whole job runs at its pace",
    fix="look at cooling and power supplies; if both are well, send the card in",
)
def throttle(gpus: tuple[Gpu, ...], _profile: Profile) -> Iterator[Finding | Unknown]:
    """Idle, application clocks, display clocks, sync boost and the software power cap are normal.

    Source: NVIDIA NVML API reference, clocks event reasons; the software thermal slowdown only warns, as the driver
    uses it to stay below the limit (leptonai/gpud, hw-slowdown component, fails for hardware reasons only).
    """
    for gpu in gpus:
        if gpu.throttle_reasons is None:
            yield Unknown(f"{gpu.label} does not tell why its clocks are lowered")
            continue
        reasons = [reason for reason in _FIXES if reason in gpu.throttle_reasons]
        if reasons:
            yield Finding(
                f"clocks lowered by {', '.join(reasons)}",
                expected="none",
                found=", ".join(reasons),
                fix=_FIXES[reasons[0]],
                part=gpu.part,
                severity="warn" if reasons == ["sw_thermal_slowdown"] else None,
            )

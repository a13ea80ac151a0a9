"""No GPU is slowed down by heat or by its power supply under load."""

from collections.abc import Iterator
from itertools import chain

from gpuops import Finding, Profile, Unknown, check
from gpuops.probes.nvidia.burn_in import BurnIn, GpuBurn, burn_in

_BAD = ("hw_thermal_slowdown", "hw_power_brake_slowdown", "hw_slowdown")
SPREAD_CELSIUS = 10
"""Between the hottest and the coolest GPU of one node; more indicates a badly seated heat sink or a blocked duct."""


@check(
    needs=burn_in,
    severity="fail",
    tags=("burnin", "gpu", "temperature", "power"),
    catches="bad cooling and weak power supplies, which show only when all GPUs are busy",
    fix="check fans, airflow, inlet temperature and power supplies; a single hot card is probably badly seated",
    fix_in_common="look at the cooling and the power feed of these nodes",
)
def burn_in_heat(result: BurnIn, _profile: Profile) -> Iterator[Finding | Unknown]:
    """There is no hardware slowdown at all; a slowdown by software or a wide spread of temperatures is a warning.

    The power cap is the usual state of a GPU under load. Source: NVIDIA, nvml.h (clocks event reasons);
    stas00/ml-engineering, compute/accelerator (spread of temperatures).
    """
    loaded = [gpu for gpu in result.gpus if gpu.loaded]
    if not loaded:
        yield Unknown("no samples of a GPU under load")
    yield from chain.from_iterable(map(_slowed, loaded))
    yield from _spread(loaded)


def _slowed(gpu: GpuBurn) -> Iterator[Finding]:
    bad = {word: gpu.slowed[word] for word in _BAD if word in gpu.slowed}
    soft = gpu.slowed.get("sw_thermal_slowdown", 0.0)
    if bad:
        word, share = next(iter(bad.items()))
        yield Finding(f"{word} under load", expected="never", found=f"{share:.1%} of the time", part=f"gpu{gpu.gpu}")
    elif soft:
        duration = f"{soft:.1%} of the time, {gpu.hottest_celsius} °C at most"
        message = "slowed down by heat under load"
        yield Finding(message, expected="never", found=duration, part=f"gpu{gpu.gpu}", severity="warn")


def _spread(gpus: list[GpuBurn]) -> Iterator[Finding]:
    celsius_by_gpu = {gpu.gpu: gpu.hottest_celsius for gpu in gpus if gpu.hottest_celsius is not None}
    coolest = min(celsius_by_gpu.values(), default=0.0)
    for gpu, celsius in celsius_by_gpu.items():
        if celsius - coolest > SPREAD_CELSIUS:
            message = f"{celsius:.0f} °C under load, the coolest GPU of the node {coolest:.0f} °C"
            yield Finding(
                message,
                expected=f"within {SPREAD_CELSIUS} °C",
                found=celsius - coolest,
                unit="°C",
                part=f"gpu{gpu}",
                severity="warn",
            )

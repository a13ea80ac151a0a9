"""No GPU is near its slowdown temperature."""

from collections.abc import Iterator

from gpuops import Finding, Profile, Unknown, check
from gpuops.probes.nvidia.gpus import Gpu, gpus

WARM_CELSIUS = 80
"""Less is good; 70 to 75 under load is excellent."""
THROTTLING_CELSIUS = 84
"""For cards that report no limit: throttling begins at 84 to 90 degrees, depending on the model."""


@check(
    needs=gpus,
    severity="fail",
    tags=("quick", "gpu", "temperature", "nvidia-smi"),
    explains=("throttle",),
    catches="a blocked fan or duct, dried paste, a hot aisle: the GPU slows down, then stops",
    fix="check fans, airflow and inlet temperature; if its neighbours are cool, return the card",
    fix_in_common="look at the cooling of these nodes: inlet temperature, fans, coolant",
)
def temperature(gpus: tuple[Gpu, ...], _profile: Profile) -> Iterator[Finding | Unknown]:
    """From 80 °C it is a warning; if no margin to the card's own limit is left, a failure.

    The limit is T.Limit if the card has one (Hopper and later: the degrees that are left), else its slowdown
    temperature, else 84 °C. Source: NVIDIA nvidia-smi manual page, Temperature; for 80 and 84 °C:
    stas00/ml-engineering, compute/accelerator, high accelerator temperature.
    """
    for gpu in gpus:
        celsius, margin = gpu.temperature_celsius, _margin(gpu)
        if margin is None:
            yield Unknown(f"{gpu.label} does not report its temperature")
        elif margin <= 0:
            at = "" if celsius is None else f"{celsius} °C, "
            message = f"{at}no margin left, so it slows down"
            yield Finding(message, expected="more than 0", found=margin, unit="°C of margin", part=gpu.part)
        elif celsius is not None and celsius >= WARM_CELSIUS:
            message = f"{celsius} °C, {margin} °C below its limit"
            below = f"below {WARM_CELSIUS}"
            yield Finding(message, expected=below, found=celsius, unit="°C", part=gpu.part, severity="warn")


def _margin(gpu: Gpu) -> int | None:
    """Return the degrees Celsius that are left before the card slows down."""
    if gpu.tlimit_celsius is not None:
        return gpu.tlimit_celsius
    if gpu.temperature_celsius is None:
        return None
    limit = THROTTLING_CELSIUS if gpu.slowdown_celsius is None else gpu.slowdown_celsius
    return limit - gpu.temperature_celsius

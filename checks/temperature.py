"""No GPU is near its slowdown temperature, and no GPU's memory above its highest operating temperature."""

from collections.abc import Iterator

from gpuops import Finding, Profile, Unknown, check
from gpuops.probes.nvidia.gpus import Gpu, gpus

WARM_CELSIUS = 80
"""Less is good; 70 to 75 under load is excellent."""
THROTTLING_CELSIUS = 84
"""For cards that report no limit: throttling begins at 84 to 90 degrees, depending on the model."""

MEMORY_CELSIUS = 95
"""For cards that print no limit of their memory: the limit that an A100 prints for its HBM."""


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
    """80 °C and above warns; a GPU that has reached its own limit fails.

    The limit is reached if T.Limit, the degrees that are left (Hopper and later), is 0. Other cards have a slowdown
    temperature; if nvidia-smi prints none, the limit is 84 °C. Memory that has reached its own limit fails; if
    nvidia-smi prints no such limit, memory warns from 95 °C on.

    Source: NVIDIA nvidia-smi manual page, Temperature (GPU and memory); for 80 and 84 °C: stas00/ml-engineering,
    compute/accelerator, high accelerator temperature.
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
        if margin is None or margin > 0:
            yield from _judge_memory(gpu)


def _judge_memory(gpu: Gpu) -> Iterator[Finding]:
    celsius, own = gpu.memory_temperature_celsius, gpu.memory_max_celsius
    limit = MEMORY_CELSIUS if own is None else own
    if celsius is not None and celsius >= limit:
        message = f"its memory has {celsius} °C, its limit is {limit} °C"
        yield Finding(
            message,
            expected=f"below {limit}",
            found=celsius,
            unit="°C",
            part=gpu.part,
            severity="warn" if own is None else None,
        )


def _margin(gpu: Gpu) -> int | None:
    """Return the degrees Celsius that are left before the card slows down."""
    if gpu.tlimit_celsius is not None:
        return gpu.tlimit_celsius
    if gpu.temperature_celsius is None:
        return None
    limit = THROTTLING_CELSIUS if gpu.slowdown_celsius is None else gpu.slowdown_celsius
    return limit - gpu.temperature_celsius

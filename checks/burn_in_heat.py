"""No GPU is slowed down by heat or by its power supply under load."""

from collections.abc import Iterator
from itertools import chain, islice

from gpuops import Finding, Profile, Unknown, check
from gpuops.probes.nvidia.burn_in import BurnIn, GpuBurn, burn_in

_BAD = ("hw_thermal_slowdown", "hw_power_brake_slowdown", "hw_slowdown")
WARM_CELSIUS = 80
"""Less is good; 70 to 75 is excellent."""
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
    """Any slowdown by hardware fails; a slowdown by software, 80 °C or a wide spread warns.

    A spread is wide if a GPU is more than 10 °C hotter than the coolest one of its node. GPUs under load usually run at
    their power cap, so that is not a finding. 70 to 75 °C is excellent; at 84 to 90 °C a card slows down. Only the most
    severe finding of each GPU is reported. Source: NVIDIA, nvml.h (clocks event reasons); stas00/ml-engineering,
    compute/accelerator (temperatures and their spread).
    """
    loaded = [gpu for gpu in result.gpus if gpu.loaded]
    if not loaded:
        yield Unknown("no samples of a GPU under load")
    coolest = min((gpu.hottest_celsius for gpu in loaded if gpu.hottest_celsius is not None), default=0.0)
    for gpu in loaded:
        yield from islice(chain(_slowed(gpu), _spread(gpu, coolest), _warm(gpu)), 1)


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


def _spread(gpu: GpuBurn, coolest: float) -> Iterator[Finding]:
    celsius = gpu.hottest_celsius
    if celsius is not None and celsius - coolest > SPREAD_CELSIUS:
        message = f"{celsius:.0f} °C under load, the coolest GPU of the node {coolest:.0f} °C"
        within, apart = f"within {SPREAD_CELSIUS} °C", celsius - coolest
        yield Finding(message, expected=within, found=apart, unit="°C", part=f"gpu{gpu.gpu}", severity="warn")


def _warm(gpu: GpuBurn) -> Iterator[Finding]:
    celsius = gpu.hottest_celsius
    if celsius is not None and celsius >= WARM_CELSIUS:
        message, below = f"{celsius:.0f} °C under load", f"below {WARM_CELSIUS}"
        yield Finding(message, expected=below, found=celsius, unit="°C", part=f"gpu{gpu.gpu}", severity="warn")

"""No GPU is held below the power that the profile expects."""

from collections.abc import Iterator

from gpuops import Finding, Profile, Unknown, check
from gpuops.probes.nvidia.gpus import Gpu, gpus


@check(
    needs=gpus,
    expects=("power.limit_watts",),
    severity="fail",
    tags=("quick", "gpu", "power", "nvidia-smi"),
    catches="a GPU that somebody capped: 10-30 % slower than its neighbours, and every job waits for it",
    fix="nvidia-smi -i GPU -pl WATTS, and find what lowered it",
)
def power_limit(gpus: tuple[Gpu, ...], profile: Profile) -> Iterator[Finding | Unknown]:
    """The enforced limit must not be below the profile's (half a watt is rounding); a higher one is the owner's choice.

    Source of the figures: the card's data sheet, in the profile.
    """
    expected = profile["power.limit_watts"]
    for gpu in gpus:
        limit = gpu.power_limit_watts
        if limit is None:
            yield Unknown(f"{gpu.label} does not tell its power limit")
        elif limit < expected - 0.5:
            fix = f"nvidia-smi -i {gpu.index} -pl {expected:g}, and find what lowered it"
            message = f"power limit {limit:g} W, expected {expected:g} W"
            yield Finding(message, expected=expected, found=limit, unit="W", fix=fix, part=gpu.part)

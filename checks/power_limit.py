"""No GPU has a power limit below the profile's."""

from collections.abc import Iterator

from gpuops import Finding, Profile, Unknown, check
from gpuops.judging.alike import judge_alike
from gpuops.probes.nvidia.gpus import Gpu, gpus


@check(
    needs=gpus,
    expects=("power.limit_watts",),
    severity="fail",
    tags=("quick", "gpu", "power", "nvidia-smi"),
    catches="a GPU with a lowered power cap: it is 10-30 % slower than its neighbours and slows down every job",
    fix="nvidia-smi -i GPU -pl WATTS, and find out what lowered it",
    fix_in_common="if the limit is wanted, set expect: {power.limit_watts: …}; else set it back on all of them",
)
def power_limit(gpus: tuple[Gpu, ...], profile: Profile) -> Iterator[Finding | Unknown]:
    """A limit that is lower by more than half a watt, for rounding, fails; a higher limit is the owner's choice.

    A limit that all GPUs share is one finding on the node. Source of the values: the card's data sheet, in the profile.
    """
    expected = profile["power.limit_watts"]

    def judge(gpu: Gpu, selection: str) -> Iterator[Finding | Unknown]:
        limit = gpu.power_limit_watts
        if limit is None:
            yield Unknown(f"{gpu.label} does not report its power limit")
        elif limit < expected - 0.5:
            fix = f"nvidia-smi{selection} -pl {expected:g}, and find out what lowered it"
            message = f"power limit {limit:g} W, expected {expected:g} W"
            yield Finding(message, expected=expected, found=limit, unit="W", fix=fix, part=gpu.part)

    yield from judge_alike(gpus, judge)

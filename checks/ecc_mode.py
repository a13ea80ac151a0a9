"""ECC is on, and stays on, on every GPU that should have it."""

from collections.abc import Iterator

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.judging.alike import judge_alike
from gpuops.probes.nvidia.gpus import Gpu, gpus


@check(
    needs=gpus,
    expects=("gpu.ecc",),
    severity="fail",
    tags=("quick", "gpu", "memory", "nvidia-smi"),
    catches="a GPU that computes with flipped bits and counts no error",
    fix="nvidia-smi -i GPU -e 1, then reboot",
)
def ecc_mode(gpus: tuple[Gpu, ...], profile: Profile) -> Iterator[Finding | Unknown | NotApplicable]:
    """If ECC is on now but will be off after the next reboot, that is a warning. What all GPUs share is one finding.

    Source: NVIDIA nvidia-smi manual page, ECC Mode (a change takes effect after the next reboot); the profile says
    which machines have ECC.
    """
    if not profile["gpu.ecc"]:
        yield NotApplicable("the profile expects no ECC")
        return
    yield from judge_alike(gpus, _judge)


def _judge(gpu: Gpu, selection: str) -> Iterator[Finding | Unknown]:
    if gpu.ecc_mode is None:
        yield Unknown(f"{gpu.label} does not report its ECC mode")
    elif not gpu.ecc_mode:
        later = " until the next reboot" if gpu.ecc_mode_pending else ""
        fix = "reboot" if gpu.ecc_mode_pending else f"nvidia-smi{selection} -e 1, then reboot"
        yield Finding(f"ECC is off{later}", expected="on", found="off", fix=fix, part=gpu.part)
    elif gpu.ecc_mode_pending is False:
        message = "ECC will be off after the next reboot"
        fix = f"nvidia-smi{selection} -e 1"
        yield Finding(message, expected="on", found="off", fix=fix, part=gpu.part, severity="warn")

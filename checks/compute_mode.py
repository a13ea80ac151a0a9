"""Every GPU lets processes compute on it, also with regard to MIG."""

from collections.abc import Iterator
from functools import partial
from typing import Literal

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.judging.alike import judge_alike
from gpuops.probes.nvidia.gpus import Gpu, gpus


@check(
    needs=gpus,
    severity="fail",
    tags=("quick", "start", "gpu", "nvidia-smi"),
    catches='"all CUDA-capable devices are busy or unavailable" on a GPU that looks idle and healthy',
    fix="nvidia-smi -i GPU -c DEFAULT",
)
def compute_mode(gpus: tuple[Gpu, ...], _profile: Profile) -> Iterator[Finding | Unknown | NotApplicable]:
    """Prohibited fails. An exclusive mode warns if GPUs of the node differ; otherwise it is a choice.

    A mode that all GPUs share is one finding on the node.

    A GPU in MIG mode without an instance takes no job, so it fails if other GPUs of the node are not in MIG mode. A
    pending change of the MIG mode warns. Source: NVIDIA nvidia-smi manual page, Compute Mode ("Prohibited" means no
    contexts are allowed; "Exclusive Process" means one context per device, as MPS wants it); NVIDIA Multi-Instance GPU
    User Guide (CUDA needs an instance).
    """
    is_mixed = {False, True} <= {gpu.mig_mode for gpu in gpus}
    yield from judge_alike(gpus, partial(_judge_mig, is_mixed=is_mixed))
    modes = {gpu.compute_mode for gpu in gpus}
    if modes == {None}:
        yield NotApplicable("nvidia-smi reports no compute mode here")
        return
    yield from judge_alike(gpus, partial(_judge_mode, is_mixed=len(modes) > 1))


def _judge_mode(gpu: Gpu, selection: str, *, is_mixed: bool) -> Iterator[Finding | Unknown]:
    mode, fix = gpu.compute_mode, f"nvidia-smi{selection} -c DEFAULT"
    if mode is None:
        yield Unknown(f"{gpu.label} does not report its compute mode")
    elif mode == "Prohibited":
        message = "its compute mode forbids every process"
        yield Finding(message, expected="Default", found=mode, fix=fix, part=gpu.part)
    elif mode != "Default":
        severity: Literal["warn", "info"] = "warn" if is_mixed else "info"
        message = f"compute mode {mode}"
        yield Finding(message, expected="Default", found=mode, fix=fix, part=gpu.part, severity=severity)


def _judge_mig(gpu: Gpu, selection: str, *, is_mixed: bool) -> Iterator[Finding]:
    off = f"nvidia-smi{selection} -mig 0, then reset the GPU; or create its instances (nvidia-smi mig -cgi …)"
    if gpu.mig_mode and gpu.mig_devices == 0 and is_mixed:
        message = "in MIG mode without an instance, so it takes no job; other GPUs are not in MIG mode"
        yield Finding(message, expected="Disabled", found="Enabled", fix=off, part=gpu.part, code="mig")
    elif None not in {gpu.mig_mode, gpu.mig_pending} and gpu.mig_mode != gpu.mig_pending:
        back = f"nvidia-smi{selection} -mig {int(bool(gpu.mig_mode))}"
        which = f"GPU {gpu.index}" if selection else "the GPUs"
        fix = f"reset {which} when idle, or set the mode back: {back}"
        message = "a change of its MIG mode waits for a reset"
        yield Finding(message, fix=fix, part=gpu.part, severity="warn", code="mig")

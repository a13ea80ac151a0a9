"""Every GPU lets processes compute on it, also with regard to MIG."""

from collections.abc import Iterator

from gpuops import Finding, NotApplicable, Profile, Unknown, check
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

    A GPU in MIG mode without an instance takes no job, so it fails if other GPUs of the node are not in MIG mode. A
    pending change of the MIG mode warns. Source: NVIDIA nvidia-smi manual page, Compute Mode ("Prohibited" means no
    contexts are allowed; "Exclusive Process" means one context per device, as MPS wants it); NVIDIA Multi-Instance GPU
    User Guide (CUDA needs an instance).
    """
    yield from _judge_mig(gpus)
    modes = {gpu.compute_mode for gpu in gpus}
    if modes == {None}:
        yield NotApplicable("nvidia-smi reports no compute mode here")
        return
    for gpu in gpus:
        mode, fix = gpu.compute_mode, f"nvidia-smi -i {gpu.index} -c DEFAULT"
        if mode is None:
            yield Unknown(f"{gpu.label} does not report its compute mode")
        elif mode == "Prohibited":
            message = "its compute mode forbids every process"
            yield Finding(message, expected="Default", found=mode, fix=fix, part=gpu.part)
        elif mode != "Default":
            yield Finding(
                f"compute mode {mode}",
                expected="Default",
                found=mode,
                fix=fix,
                part=gpu.part,
                severity="warn" if len(modes) > 1 else "info",
            )


def _judge_mig(gpus: tuple[Gpu, ...]) -> Iterator[Finding]:
    is_mixed = {False, True} <= {gpu.mig_mode for gpu in gpus}
    for gpu in gpus:
        off = f"nvidia-smi -i {gpu.index} -mig 0, then reset the GPU; or create its instances (nvidia-smi mig -cgi …)"
        if gpu.mig_mode and gpu.mig_devices == 0 and is_mixed:
            message = "in MIG mode without an instance, so it takes no job; other GPUs are not in MIG mode"
            yield Finding(message, expected="Disabled", found="Enabled", fix=off, part=gpu.part, code="mig")
        elif None not in {gpu.mig_mode, gpu.mig_pending} and gpu.mig_mode != gpu.mig_pending:
            back = f"nvidia-smi -i {gpu.index} -mig {int(bool(gpu.mig_mode))}"
            fix = f"reset GPU {gpu.index} when idle, or set the mode back: {back}"
            message = "a change of its MIG mode waits for a reset"
            yield Finding(message, fix=fix, part=gpu.part, severity="warn", code="mig")

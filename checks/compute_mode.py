"""Every GPU lets processes compute on it."""

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
    """Prohibited fails; an exclusive mode warns if other GPUs of the node have another mode, else it is a choice.

    Source: NVIDIA nvidia-smi manual page, Compute Mode ("Prohibited" means no contexts are allowed; "Exclusive Process"
    means one context per device, as MPS wants it).
    """
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

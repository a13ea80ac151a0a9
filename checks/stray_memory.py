"""No GPU's memory is in use without a process."""

from collections.abc import Iterator

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.probes.host.session import Session, session
from gpuops.probes.nvidia.gpus import Gpu, gpus

STRAY_MIB = 512
"""Our own figure, above the GPU of the node that uses least: what the driver itself holds differs between releases."""


@check(
    needs=(gpus, session),
    severity="warn",
    tags=("quick", "gpu", "memory", "nvidia-smi"),
    catches="memory that a dead process left behind: the next job runs out of memory on one GPU",
    fix="fuser -v /dev/nvidia* shows which processes have the GPU open; if none does, reset the GPU",
)
def stray_memory(
    gpus: tuple[Gpu, ...], here: Session, _profile: Profile
) -> Iterator[Finding | Unknown | NotApplicable]:
    """GPUs with a process or in MIG mode are left out. In a container, nvidia-smi may hide processes, so it is skipped.

    Source: facebookresearch/gcm, check_nvidia_smi.py (more than 15 MiB in use without a process); nebius/soperator,
    alloc_gpus_busy (a GPU that is given to a job must be free). The limit is our own figure.
    """
    if here.confined:
        yield NotApplicable(f"{here.confined} may hide processes from nvidia-smi")
        return
    told = [gpu for gpu in gpus if gpu.memory_used_mib is not None and gpu.processes is not None]
    if not told:
        yield NotApplicable("nvidia-smi does not list memory and processes here")
    least = min((gpu.memory_used_mib or 0 for gpu in told), default=0) if len(told) > 1 else 0
    for gpu in gpus:
        used = gpu.memory_used_mib or 0
        if told and (gpu.memory_used_mib is None or gpu.processes is None):
            yield Unknown(f"nvidia-smi does not list the memory and processes of {gpu.label}")
        elif gpu.processes == () and not gpu.mig_mode and used > least + STRAY_MIB:
            message = f"{used} MiB of memory in use, and no process"
            fix = f"fuser -v /dev/nvidia{gpu.index} shows who has it open; if nothing does, reset GPU {gpu.index}"
            expected = f"at most {least + STRAY_MIB}"
            yield Finding(message, expected=expected, found=used, unit="MiB", fix=fix, part=gpu.part)

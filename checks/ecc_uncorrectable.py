"""No GPU has had an uncorrectable memory error since its last reset."""

from collections.abc import Iterator

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.probes.nvidia.gpus import Gpu, gpus


@check(
    needs=gpus,
    uses=("gpu.ecc",),
    severity="reset",
    tags=("quick", "gpu", "memory", "nvidia-smi"),
    explains=("xid:48", "xid:63", "xid:94", "xid:95", "xid:154", "recovery-action"),
    catches="memory that returned a wrong value: the job crashed, and the next one may compute with wrong data",
    fix="reset the GPU when idle; if the error comes back, replace it",
)
def ecc_uncorrectable(gpus: tuple[Gpu, ...], profile: Profile) -> Iterator[Finding | Unknown | NotApplicable]:
    """The volatile counter must be 0; any other value requires a reset.

    Source: facebookresearch/gcm, check_nvidia_smi.py (uncorrected volatile at most 0); NVIDIA Xid catalogue, Xid 48.
    Skipped for cards without ECC (GeForce, TITAN). If the profile sets ``gpu.ecc``, ECC must be on.
    """
    for gpu in gpus:
        yield from _judge(gpu, must_have_ecc=bool(profile.get("gpu.ecc", default=False)))


def _judge(gpu: Gpu, *, must_have_ecc: bool) -> Iterator[Finding | Unknown | NotApplicable]:
    count = gpu.ecc_uncorrected_volatile
    if count:
        reset = f"reset GPU {gpu.index} (nvidia-smi --gpu-reset -i {gpu.index}) when idle"
        fix = f"{reset}; if the error comes back, replace it"
        message = f"uncorrectable ECC errors: {count}"
        yield Finding(message, expected=0, found=count, unit="errors", fix=fix, part=gpu.part)
    elif must_have_ecc and gpu.ecc_mode is False:
        fix = f"nvidia-smi -i {gpu.index} -e 1, then reboot"
        yield Finding("ECC is off", expected="on", found="off", fix=fix, part=gpu.part, severity="warn")
    elif count is None and (must_have_ecc or gpu.ecc_mode):
        yield Unknown(f"{gpu.label} does not report its uncorrectable ECC errors")
    elif count is None:
        yield NotApplicable(f"{gpu.name or gpu.label} has no ECC in use")

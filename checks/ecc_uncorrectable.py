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
    Cards without ECC (GeForce, TITAN) are skipped, and so are cards whose ECC is off, which ecc-mode judges.
    """
    if all(gpu.ecc_uncorrected_volatile is None and not gpu.ecc_mode for gpu in gpus):
        must_have = profile.get("gpu.ecc", default=False) and any(gpu.ecc_mode is None for gpu in gpus)
        why = f"{gpus[0].name or gpus[0].label} has no ECC in use"
        yield Unknown("no GPU reports its uncorrectable ECC errors") if must_have else NotApplicable(why)
        return
    for gpu in gpus:
        yield from _judge(gpu)


def _judge(gpu: Gpu) -> Iterator[Finding | Unknown]:
    count = gpu.ecc_uncorrected_volatile
    if count:
        reset = f"reset GPU {gpu.index} (nvidia-smi --gpu-reset -i {gpu.index}) when idle"
        fix = f"{reset}; if the error comes back, replace it"
        message = f"uncorrectable ECC errors: {count}"
        yield Finding(message, expected=0, found=count, unit="errors", fix=fix, part=gpu.part)
    elif count is None and gpu.ecc_mode is not False:
        yield Unknown(f"{gpu.label} does not report its uncorrectable ECC errors")

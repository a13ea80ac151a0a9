"""No GPU corrects far more memory errors than the others."""

from collections.abc import Iterator
from statistics import median

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.probes.nvidia.gpus import Gpu, gpus

MANY = 20_000_000
"""Azure's limit for corrected DRAM errors, which one card reaches without any other beside it."""
NOTABLE = 10_000
"""Azure's limit for corrected SRAM errors: a card below it is not compared."""
TIMES_THE_OTHERS = 100


@check(
    needs=gpus,
    severity="warn",
    tags=("quick", "gpu", "memory", "nvidia-smi"),
    catches="dying memory: each error is corrected, but the flood of them slows the GPU and its driver down",
    fix="watch how fast the counter rises under load; if it goes on after a reset, have the GPU replaced",
)
def ecc_corrected(gpus: tuple[Gpu, ...], _profile: Profile) -> Iterator[Finding | Unknown | NotApplicable]:
    """A finding is more than 20 million since the last reset, or 10,000 and a hundred times the other GPUs'.

    Source of the limits: Azure/azurehpc-health-checks (corrected DRAM and SRAM errors); the comparison is our own
    figure, after NVIDIA/NVSentinel issue 1748: one GPU of four had 9.6e9 and was called healthy. Cards without ECC are
    skipped.
    """
    counts = {gpu.index: gpu.ecc_corrected_volatile for gpu in gpus if gpu.ecc_corrected_volatile is not None}
    if not counts and not any(gpu.ecc_mode for gpu in gpus):
        yield NotApplicable("no GPU has ECC in use")
        return
    for gpu in gpus:
        count = counts.get(gpu.index)
        others = [number for index, number in counts.items() if index != gpu.index]
        if count is None and gpu.ecc_mode is not False:
            yield Unknown(f"{gpu.label} does not report its corrected ECC errors")
        elif count is not None and count > _limit(others):
            message = f"{count} corrected ECC errors" + (f", the others {median(others):.0f}" if others else "")
            limit = _limit(others)
            yield Finding(message, expected=f"at most {limit:.0f}", found=count, unit="errors", part=gpu.part)


def _limit(others: list[int]) -> float:
    return min(MANY, max(NOTABLE, TIMES_THE_OTHERS * median(others))) if others else MANY

"""No GPU's memory has more errors than NVIDIA tolerates."""

from collections.abc import Iterator
from typing import Literal

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.probes.nvidia.gpus import Gpu, gpus


@check(
    needs=gpus,
    severity="isolate",
    tags=("quick", "gpu", "memory", "nvidia-smi"),
    explains=("repair-pending", "row-remap-pending", "ecc-uncorrectable", "xid:48", "xid:157", "recovery-action"),
    catches="a card whose memory errors come back after every reset, though no counter since the boot shows them",
    fix="take the node out of use, run NVIDIA's field diagnostic and replace the GPU",
)
def memory_unrepairable(gpus: tuple[Gpu, ...], _profile: Profile) -> Iterator[Finding | Unknown | NotApplicable]:
    """SRAM Threshold Exceeded and Unrepairable Memory must be No; older drivers and cards without ECC lack both.

    Below the threshold, uncorrectable SRAM errors are information. If a card does not report the threshold, they count:
    one over its life warns, more than 4 fail. A card that retires pages instead of remapping rows must be returned from
    63 retired pages on; more than 15 for double-bit errors warn.

    Source: NVIDIA NVML API reference, nvmlEccSramErrorStatus_v1_t (bThresholdExceeded: the error threshold of the field
    diagnostic is exceeded); NVIDIA Xid catalogue, Xid 48 (the flag leads to the field diagnostic); NVIDIA Dynamic Page
    Retirement (64 pages at most) and DCGM, DcgmHealthWatch.cpp (15 pages for double-bit errors). Source of the limits
    of SRAM errors: Azure/azurehpc-health-checks, azure_gpu_ecc.nhc (more than 0); stas00/ml-engineering, debug (more
    than 4).
    """
    reporting = any(gpu.sram_threshold_exceeded is not None for gpu in gpus)
    retiring = any(gpu.retired_pages_double_bit is not None for gpu in gpus)
    counting = any(gpu.sram_uncorrected_aggregate is not None for gpu in gpus)
    if not reporting and not retiring and not counting:
        yield NotApplicable("nvidia-smi reports no threshold of SRAM errors here")
    yield from (finding for gpu in gpus for finding in _retired(gpu))
    yield from (finding for gpu in gpus if not gpu.sram_threshold_exceeded for finding in _sram(gpu))
    for gpu in gpus:
        fix = f"take the node out of use, run NVIDIA's field diagnostic on GPU {gpu.index}, and replace it"
        if gpu.unrepairable_memory:
            yield Finding("memory cannot be repaired", expected="no", found="yes", fix=fix, part=gpu.part)
        elif gpu.sram_threshold_exceeded:
            message = "too many uncorrectable SRAM errors over its life"
            yield Finding(message, expected="no", found="yes", fix=fix, part=gpu.part)
        elif reporting and gpu.sram_threshold_exceeded is None:
            yield Unknown(f"{gpu.label} does not report whether its SRAM has too many errors")


_MAX_PAGES, _MAX_DOUBLE_BIT, _MAX_SRAM = 63, 15, 4


def _sram(gpu: Gpu) -> Iterator[Finding]:
    count = gpu.sram_uncorrected_aggregate or 0
    plural = "errors" if count > 1 else "error"
    if count and gpu.sram_threshold_exceeded is False:
        message = f"{count} uncorrectable SRAM {plural} over its life, which NVIDIA tolerates"
        yield Finding(message, fix="nothing to do", part=gpu.part, severity="info")
    elif count:
        message = f"{count} uncorrectable SRAM {plural} over its life, and the driver does not know the threshold"
        fix = (
            f"run NVIDIA's field diagnostic on GPU {gpu.index}{'' if count > _MAX_SRAM else ' in the next maintenance'}"
        )
        severity: Literal["warn", "isolate"] = "isolate" if count > _MAX_SRAM else "warn"
        yield Finding(message, expected=0, found=count, unit="errors", part=gpu.part, severity=severity, fix=fix)


def _retired(gpu: Gpu) -> Iterator[Finding]:
    single, double = gpu.retired_pages_single_bit or 0, gpu.retired_pages_double_bit or 0
    if single + double >= _MAX_PAGES:
        message = f"{single + double} pages of its memory are retired, and no more than 64 can be"
        yield Finding(message, expected=0, found=single + double, unit="pages", part=gpu.part, severity="rma")
    elif double > _MAX_DOUBLE_BIT:
        message = f"{double} pages of its memory are retired for double-bit errors"
        fix = f"run NVIDIA's field diagnostic on GPU {gpu.index} in the next maintenance"
        yield Finding(message, expected=0, found=double, unit="pages", part=gpu.part, severity="warn", fix=fix)

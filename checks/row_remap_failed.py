"""No GPU has run out of spare memory rows."""

from collections.abc import Iterator
from typing import Literal

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.probes.nvidia.gpus import Gpu, gpus

_MOST_ROWS = 512
"""Rows that a card can remap."""


@check(
    needs=gpus,
    uses=("gpu.row_remap",),
    severity="rma",
    tags=("quick", "gpu", "memory", "nvidia-smi"),
    explains=("row-remap-pending", "ecc-uncorrectable", "xid:64", "recovery-action"),
    catches="a card without spare rows: its memory errors come back after every reset",
    fix="take the node out of use and replace the GPU; a reset does not help, because no spare row is left",
)
def row_remap_failed(gpus: tuple[Gpu, ...], profile: Profile) -> Iterator[Finding | Unknown | NotApplicable]:
    """Remapping Failure Occurred must be No; a memory bank without a spare row is a warning, and so are 512 rows.

    Source: NVIDIA GPU Memory Error Management (docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt): a remapping failure
    qualifies the card for replacement, and a card can remap 512 rows. Azure/azurehpc-health-checks and Oracle's cluster
    scripts take a card with more out of use.
    """
    for gpu in gpus:
        failed = gpu.remapped_rows.failure if gpu.remapped_rows else None
        remapped = (gpu.remapped_rows and gpu.remapped_rows.uncorrectable) or 0
        if failed:
            why = "a reset does not help, because no spare row is left"
            fix = f"take the node out of use and replace GPU {gpu.index}; {why}"
            yield Finding("a row remapping failed", expected="no", found="yes", fix=fix, part=gpu.part)
        elif remapped >= _MOST_ROWS:
            message = f"{remapped} of its memory rows were remapped, and a card can remap {_MOST_ROWS}"
            fix = f"replace GPU {gpu.index}: no spare row is left for the next uncorrectable error"
            severity: Literal["warn"] | None = None if remapped > _MOST_ROWS else "warn"
            yield Finding(
                message,
                expected=f"below {_MOST_ROWS}",
                found=remapped,
                unit="rows",
                fix=fix,
                part=gpu.part,
                severity=severity,
            )
        elif gpu.exhausted_banks:
            message = f"{gpu.exhausted_banks} banks of its memory have no spare row left"
            fix = f"plan the replacement of GPU {gpu.index}: the next bad row of these banks cannot be remapped"
            yield Finding(
                message, expected=0, found=gpu.exhausted_banks, unit="banks", fix=fix, part=gpu.part, severity="warn"
            )
        elif failed is None and profile.get("gpu.row_remap", default=bool(gpu.remapped_rows)):
            yield Unknown(f"{gpu.label} does not report whether a row remapping failed")
        elif failed is None:
            yield NotApplicable(f"{gpu.name or gpu.label} does not remap rows")

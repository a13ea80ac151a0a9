"""No GPU needs a reset to replace a bad memory row."""

from collections.abc import Iterator

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.probes.nvidia.gpus import Gpu, gpus


@check(
    needs=gpus,
    uses=("gpu.row_remap",),
    severity="reset",
    tags=("quick", "gpu", "memory", "nvidia-smi"),
    explains=("ecc-uncorrectable", "xid:63", "xid:154", "recovery-action"),
    catches="a bad row that stays in use until the GPU is reset",
    fix="reset the GPU when idle, or reboot",
)
def row_remap_pending(gpus: tuple[Gpu, ...], profile: Profile) -> Iterator[Finding | Unknown | NotApplicable]:
    """Pending must be No. Cards before Ampere retire pages instead of remapping rows.

    Source: NVIDIA GPU Memory Error Management (docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt): a pending remapping
    takes effect at the next GPU reset.
    """
    for gpu in gpus:
        pending = gpu.remapped_rows.pending if gpu.remapped_rows else gpu.retired_pages_pending
        if pending:
            fix = f"reset GPU {gpu.index} (nvidia-smi --gpu-reset -i {gpu.index}) when idle, or reboot"
            what = "a row remapping" if gpu.remapped_rows else "the retirement of a page"
            yield Finding(f"{what} is pending", expected="no", found="yes", fix=fix, part=gpu.part)
        elif pending is None and profile.get("gpu.row_remap", default=bool(gpu.remapped_rows)):
            yield Unknown(f"{gpu.label} does not report whether a row remapping is pending")
        elif pending is None:
            yield NotApplicable(f"{gpu.name or gpu.label} neither remaps rows nor retires pages")

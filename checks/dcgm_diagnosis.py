"""NVIDIA's own diagnosis, level 3, passes on every GPU."""

from collections.abc import Iterator

from gpuops import Finding, NotApplicable, Profile, check
from gpuops.probes.nvidia.dcgm_diag import DcgmDiagnosis, dcgm_diag


@check(
    needs=dcgm_diag,
    severity="isolate",
    tags=("burnin", "gpu", "memory", "pcie"),
    catches="a GPU whose memory, PCIe, NVLink or power fails only under NVIDIA's own load",
    fix="follow the warning; return a GPU that fails again",
)
def dcgm_diagnosis(diagnosis: DcgmDiagnosis, _profile: Profile) -> Iterator[Finding | NotApplicable]:
    """Every test that runs passes; a test with a warning is a warning. Skipped if DCGM is not installed.

    Source: NVIDIA DCGM documentation, Diagnostics (levels and tests).
    """
    if not diagnosis.installed:
        yield NotApplicable("dcgmi is not installed")
    for result in diagnosis.results:
        if result.status in ("fail", "warn"):
            message = f"dcgmi diag: {result.test} {result.status}s{': ' if result.warnings else ''}"
            message += "; ".join(result.warnings)
            yield Finding(
                message,
                expected="pass",
                found=result.status,
                part="node" if result.gpu is None else f"gpu{result.gpu}",
                severity="warn" if result.status == "warn" else None,
            )

"""No error counter increased while the node was under load."""

from collections.abc import Iterator

from gpuops import Finding, Profile, Unknown, check
from gpuops.probes.nvidia.burn_in import BurnIn, burn_in


@check(
    needs=burn_in,
    severity="isolate",
    tags=("burnin", "gpu", "memory", "nvlink", "network"),
    catches="memory, links and GPUs that fail only when hot and busy",
    fix="run the burn-in again, and replace the part if it reports errors again",
)
def burn_in_errors(result: BurnIn, _profile: Profile) -> Iterator[Finding | Unknown]:
    """Xids, uncorrectable memory errors, remapped rows and link errors are as many as before the burn-in.

    Corrected and transient errors of links only warn, up to a rate that healthy links have too. A counter that has
    reached its maximum is unknown. Source: NVIDIA GPU Memory Error Management and Xid catalogue
    (docs.nvidia.com/deploy): if only the burn-in uses the GPUs, each of these errors is a fault of the hardware or its
    driver; NVIDIA DCGM, DcgmHealthWatch.cpp, and NVIDIA NVSentinel, nic-health-monitor.md (rates of links).
    """
    for error in (*result.xids, *result.grown):
        part, _, event = error.partition(": ")
        yield Finding(f"{event} during the burn-in", expected="no new error", found=event, part=part)
    for error in result.noticed:
        part, _, event = error.partition(": ")
        fix = "compare with other nodes; clean or reseat the link if it counts more than theirs"
        yield Finding(f"{event} during the burn-in", found=event, part=part, severity="warn", fix=fix, code="noticed")
    for why in result.blind:
        yield Unknown(why)

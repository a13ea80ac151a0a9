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
    """Xids, uncorrectable memory errors, remapped rows and link errors: the counts are the same as before the burn-in.

    Source: NVIDIA GPU Memory Error Management and Xid catalogue (docs.nvidia.com/deploy): if only the burn-in uses the
    GPUs, each of these errors is a fault of the hardware or its driver.
    """
    for error in (*result.xids, *result.grown):
        part, _, event = error.partition(": ")
        yield Finding(f"{event} during the burn-in", expected="no new error", found=event, part=part)
    for why in result.blind:
        yield Unknown(why)

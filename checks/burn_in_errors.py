"""No error was counted while the node was under load."""

from collections.abc import Iterator

from gpuops import Finding, Profile, Unknown, check
from gpuops.probes.nvidia.burn_in import BurnIn, burn_in


@check(
    needs=burn_in,
    severity="isolate",
    tags=("burnin", "gpu", "memory", "nvlink", "network"),
    catches="memory, links and GPUs that fail only when they are hot and busy",
    fix="run it again; what counts errors again under load is replaced",
)
def burn_in_errors(result: BurnIn, _profile: Profile) -> Iterator[Finding | Unknown]:
    """Xids, uncorrectable memory errors, remapped rows and errors of links: as many after the burn-in as before.

    Source: NVIDIA GPU Memory Error Management and Xid catalogue (docs.nvidia.com/deploy): where nobody but the burn-in
    itself uses the GPUs, each is a fault of the hardware or of what drives it.
    """
    for error in (*result.xids, *result.grown):
        part, _, event = error.partition(": ")
        yield Finding(f"{event} during the burn-in", expected="no new error", found=event, part=part)
    for why in result.blind:
        yield Unknown(why)

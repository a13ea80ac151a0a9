"""The node does not slow down under sustained load."""

from collections.abc import Iterator
from statistics import median

from gpuops import Finding, Profile, Unknown, check
from gpuops.probes.nvidia.burn_in import BurnIn, burn_in

SLOWEST_SHARE = 0.9
"""Fraction of the median round; nccl-tests uses the same factor (NCCL_TESTS_MIN_BW)."""


@check(
    needs=burn_in,
    severity="fail",
    tags=("burnin", "gpu", "nvlink"),
    catches="a node that is fast for a minute and slow for an hour",
    fix="check temperature and power of its GPUs under load; if both are normal, take the node out of use",
)
def burn_in_pace(result: BurnIn, _profile: Profile) -> Iterator[Finding | Unknown]:
    """No round fails, and the slowest round reaches at least 90 percent of the median.

    Source: NVIDIA nccl-tests, src/common.cu (0.9 of the requested bandwidth).
    """
    for failure in dict.fromkeys(result.troubles):
        yield Finding(f"an all-reduce within the node failed: {failure}", expected="every round", found=failure)
    if not result.gb_per_s:
        yield Unknown("no all-reduce within the node was measured")
        return
    usual, slowest = median(result.gb_per_s), min(result.gb_per_s)
    if slowest < SLOWEST_SHARE * usual:
        message = f"one of {len(result.gb_per_s)} rounds was much slower than the others"
        yield Finding(message, expected=round(SLOWEST_SHARE * usual, 1), found=round(slowest, 1), unit="GB/s")

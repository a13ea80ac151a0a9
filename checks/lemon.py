"""No node and no part fails repeatedly."""

from collections.abc import Iterator

from gpuops import Finding, NotApplicable, Profile, check
from gpuops.trends import Record, lemons, past


@check(
    needs=past,
    severity="warn",
    tags=("quick", "over-time"),
    applies_to="nodes that have been in the store for 14 days",
    catches="a node or card that each repair returns to service, and that fails the next long job",
    fix="stop repairing it piece by piece: collect the evidence (gpuops bundle), and have it returned or replaced",
)
def lemon(record: Record, _profile: Profile) -> Iterator[Finding | NotApplicable]:
    """A node is named if at most one healthy node in 100 fails as often in 30 days; for parts, one in 1,000.

    Healthy nodes fail at the rate of all other nodes in the store, which is combined with 4.2 failures in 1,000
    node-days. Failures of a part with a serial number follow it to another node. Source of this rate:
    stepfun-ai/InfiniteHBD-Trace; the back-test is in docs/memory.md.
    """
    yield from lemons(record)

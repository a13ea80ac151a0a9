"""An all-reduce within each node and between the nodes runs as fast as its links allow."""

from collections.abc import Iterator, Mapping

from gpuops import Finding, PartName, Profile, Unknown, check
from gpuops.isolation import BlamedPart, NodeEvidence, Unfit, all_reduce, blame, evidence_of, fix_for

_FABRIC = ("leaf", "unit", "spine")


@check(
    needs=all_reduce,
    scope="group",
    severity="fail",
    tags=("standard", "network", "nvlink"),
    catches="a slow or hanging GPU, NIC, cable or switch that no counter shows: every job on it runs at its pace",
    fix="do what the finding says of the part that it names",
)
def all_reduce_bandwidth(shares: Mapping[str, NodeEvidence | Unfit], _profile: Profile) -> Iterator[Finding | Unknown]:
    """The part is named that the figures of all rounds accuse together; a pair that was slow only once accuses nobody.

    Source: NCCL tests, doc/PERFORMANCE.md (bus bandwidth); stas00/ml-engineering, network/benchmarks (its figures).
    """
    for node, told in shares.items():
        if isinstance(told, Unfit):
            yield Finding(told.why, fix=told.do, host=node)
    said = blame(evidence_of({node: told for node, told in shares.items() if isinstance(told, NodeEvidence)}))
    for accusation in said.blamed:
        yield _finding(accusation)
    for pair in said.contention:
        yield Finding(f"fabric contention: {pair}; nobody is accused", severity="info", part="fabric")
    for why in said.unclear:
        yield Unknown(why)


def _finding(accused: BlamedPart) -> Finding:
    owner, _, part = accused.part.partition(":")
    shared = owner in _FABRIC or accused.alternatives
    label = " or ".join((accused.part, *accused.alternatives))
    return Finding(
        "; ".join(accused.evidence) or f"{accused.part}: {accused.kind}",
        expected=accused.expected_gb_per_s,
        found=accused.found_gb_per_s,
        unit="GB/s",
        fix=fix_for(accused),
        part=PartName(accused.part, label) if shared else part or "node",
        host="" if shared else owner,
        code=accused.kind,
    )

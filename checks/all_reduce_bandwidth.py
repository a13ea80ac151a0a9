"""An all-reduce within each node and between the nodes runs as fast as its links allow."""

from collections.abc import Iterator, Mapping

from gpuops import Finding, PartName, Profile, Unknown, check
from gpuops.isolation import (
    BlamedPart,
    CommonCause,
    Excluded,
    NodeEvidence,
    all_reduce,
    blame,
    evidence_of,
    fix_for,
    fix_in_common,
)

_FABRIC = ("leaf", "unit", "spine")


@check(
    needs=all_reduce,
    scope="group",
    severity="fail",
    tags=("standard", "network", "nvlink"),
    catches="a slow or hanging GPU, NIC, cable or switch that no counter shows, and that slows down every job",
    fix="follow the advice of the finding for the part that it names",
)
def all_reduce_bandwidth(
    measured: Mapping[str, NodeEvidence | Excluded], _profile: Profile
) -> Iterator[Finding | Unknown]:
    """All rounds together decide which part is blamed; one slow pair blames no part.

    Source: NCCL tests, doc/PERFORMANCE.md (bus bandwidth); stas00/ml-engineering, network/benchmarks (its figures).
    """
    for node, value in measured.items():
        if isinstance(value, Excluded):
            yield Finding(value.why, fix=value.do, host=node)
    verdict = blame(evidence_of({node: own for node, own in measured.items() if isinstance(own, NodeEvidence)}))
    for cause in verdict.fleet:
        yield _common(cause)
    for blamed in verdict.blamed:
        yield _finding(blamed)
    for pair in verdict.contention:
        yield Finding(f"fabric contention: {pair}; no part is blamed", severity="info", part="fabric")
    for why in verdict.unclear:
        yield Unknown(why)


def _common(cause: CommonCause) -> Finding:
    return Finding(
        "; ".join((f"all-reduce {cause}", *cause.evidence)),
        expected=cause.expected_gb_per_s,
        found=cause.found_gb_per_s,
        unit="GB/s",
        fix=fix_in_common(cause),
        part="fabric",
        code=cause.kind,
    )


def _finding(blamed: BlamedPart) -> Finding:
    owner, _, part = blamed.part.partition(":")
    shared = owner in _FABRIC or blamed.alternatives
    label = " or ".join((blamed.part, *blamed.alternatives))
    return Finding(
        "; ".join(filter(None, (*blamed.evidence, blamed.doubt))) or f"{blamed.part}: {blamed.kind}",
        expected=blamed.expected_gb_per_s,
        found=blamed.found_gb_per_s,
        unit="GB/s",
        fix=fix_for(blamed),
        part=PartName(blamed.part, label) if shared else part or "node",
        host="" if shared else owner,
        code=blamed.kind,
    )

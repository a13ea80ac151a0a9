"""Simulated cases that run through the same planning and blaming as real measurements, and their results."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from gpuops.isolation import blame, next_round
from gpuops.isolation.cases import Case
from gpuops.isolation.evidence import Blame, BlamedPart, Evidence, Measured
from gpuops.isolation.faults import FabricFault, masking_faults


@dataclass(frozen=True)
class Trial:
    """A case that was measured until the plan was empty, and what was blamed."""

    case: Case
    evidence: Evidence
    blame: Blame

    @property
    def rounds(self) -> int:
        """The number of measured rounds; groups of one round run at once."""
        return len(self.evidence.rounds)

    @functools.cached_property
    def missed(self) -> tuple[FabricFault, ...]:
        """The faults that were not named; a fault that another one masks counts as named with it."""
        named = {fault for fault in self.case.faults if any(_names(a, fault) for a in self.blame.blamed)}
        return tuple(
            fault
            for fault in self.case.faults
            if fault not in named and not named.intersection(masking_faults(fault, self.case.faults, self.case.fabric))
        )

    @functools.cached_property
    def false_positives(self) -> tuple[BlamedPart, ...]:
        """The blamed parts that are not faulty, nor are their alternatives."""
        faulty = {fault.part for fault in self.case.faults}
        return tuple(blamed for blamed in self.blame.blamed if faulty.isdisjoint((blamed.part, *blamed.alternatives)))

    @property
    def ambiguous(self) -> tuple[BlamedPart, ...]:
        """The blamed parts with alternatives, one of which is at fault."""
        return tuple(blamed for blamed in self.blame.blamed if blamed.alternatives)


def _names(blamed: BlamedPart, fault: FabricFault) -> bool:
    return fault.kind == blamed.kind and fault.part in {blamed.part, *blamed.alternatives}


def run(case: Case) -> Trial:
    """Measure ``case`` until the plan is empty."""
    evidence, engine = Evidence(case.declared_fabric), case.simulation()
    while (planned := next_round(evidence)) is not None:
        measured = Measured(planned, engine.measure(planned))
        evidence = replace(evidence, rounds=(*evidence.rounds, measured))
    return Trial(case, evidence, blame(evidence))

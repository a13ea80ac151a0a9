"""Trials: simulated cases run through the same planning and blaming as real measurements, and what came of them."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from gpuops.isolation import blame, next_round
from gpuops.isolation.cases import Case
from gpuops.isolation.evidence import Blame, BlamedPart, Evidence, Measured
from gpuops.isolation.faults import FabricFault, hiders


@dataclass(frozen=True)
class Trial:
    """A case that was measured until nothing was left to ask, and what was blamed."""

    case: Case
    evidence: Evidence
    blame: Blame

    @property
    def rounds(self) -> int:
        """How many rounds were measured; groups of one round run at once."""
        return len(self.evidence.rounds)

    @functools.cached_property
    def missed(self) -> tuple[FabricFault, ...]:
        """The faults that nobody named; one behind which all of another is hidden is named for both."""
        named = {fault for fault in self.case.faults if any(_names(a, fault) for a in self.blame.accusations)}
        return tuple(
            fault
            for fault in self.case.faults
            if fault not in named and not named.intersection(hiders(fault, self.case.faults, self.case.fabric))
        )

    @functools.cached_property
    def wrong(self) -> tuple[BlamedPart, ...]:
        """The accusations in which no faulty part is named."""
        faulty = {fault.part for fault in self.case.faults}
        return tuple(a for a in self.blame.accusations if faulty.isdisjoint((a.part, *a.alternatives)))

    @property
    def vague(self) -> tuple[BlamedPart, ...]:
        """The accusations that name several parts, of which one is at fault."""
        return tuple(accusation for accusation in self.blame.accusations if accusation.alternatives)


def _names(accusation: BlamedPart, fault: FabricFault) -> bool:
    return fault.kind == accusation.kind and fault.part in {accusation.part, *accusation.alternatives}


def run(case: Case) -> Trial:
    """Measure ``case`` for as long as there is something to ask."""
    evidence, engine = Evidence(case.known), case.simulation()
    while (planned := next_round(evidence)) is not None:
        measured = Measured(planned, engine.measure(planned))
        evidence = replace(evidence, rounds=(*evidence.rounds, measured))
    return Trial(case, evidence, blame(evidence))

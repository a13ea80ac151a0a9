"""The parts that isolation blames on a fabric which a program measures, and its JSON document."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from gpuops.isolation.evidence import Blame, BlamedPart, CommonCause, Evidence
from gpuops.reasons import Conclusion, FailOn, Result
from gpuops.secret import redact


@dataclass(frozen=True)
class Isolation(Result):
    """All rounds that the program measured, and the parts that are to blame."""

    SCHEMA: ClassVar[str] = "gpuops.isolation/1"

    evidence: Evidence
    blame: Blame
    interrupted: bool = False

    def conclusion(self, fail_on: FailOn = "fail") -> Conclusion:  # noqa: ARG002 - every result has it
        """Return ``failed`` if anything is at fault, ``incomplete`` if a part is unclear, as for real nodes."""
        if self.interrupted:
            return "interrupted"
        if self.blame.is_failed:
            return "failed"
        return "incomplete" if self.blame.is_incomplete else "ok"

    def to_document(self) -> dict[str, Any]:
        """Return plain data for JSON, with secrets masked: details come from the program."""
        return {
            "schema": self.SCHEMA,
            "rounds": len(self.evidence.rounds),
            "blamed": [_blamed(blamed) for blamed in self.blame.blamed],
            "fleet": [_common(cause) for cause in self.blame.fleet],
            "contention": list(self.blame.contention),
            "suspects": list(self.blame.suspects),
            "unclear": [redact(why) for why in self.blame.unclear],
            "interrupted": self.interrupted,
        }


def _blamed(blamed: BlamedPart) -> dict[str, Any]:
    return {
        "part": blamed.part,
        "kind": blamed.kind,
        "alternatives": list(blamed.alternatives),
        "probability": blamed.probability,
        "found_gb_per_s": blamed.found_gb_per_s,
        "expected_gb_per_s": blamed.expected_gb_per_s,
        "evidence": [redact(sentence) for sentence in blamed.evidence],
    }


def _common(cause: CommonCause) -> dict[str, Any]:
    return {**asdict(cause), "evidence": [redact(sentence) for sentence in cause.evidence]}

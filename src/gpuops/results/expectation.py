"""Expected all-reduce bandwidth of each kind of machine, with formulas and sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from gpuops.bandwidth import PRIOR, Cap, Efficiency, ExpectedBandwidth, Operation
from gpuops.collective.expectations import Expectations
from gpuops.isolation.fabric import Fabric, FabricNic, FabricNode
from gpuops.isolation.rounds import RankGroup
from gpuops.profile import Profile
from gpuops.reasons import Conclusion, Excluded, FailOn, Result
from gpuops.trends.baselines import Baseline


@dataclass(frozen=True)
class HostClass:
    """Hosts with the same expectations: their GPUs and NICs, and a figure for each kind of run (None if unknown).

    ``measured`` is what these hosts reached themselves, by kind of run.
    """

    hosts: tuple[str, ...]
    profile: str
    gpus: int
    nics: int
    figures: Mapping[str, ExpectedBandwidth | None]
    measured: Mapping[str, Baseline] = field(default_factory=dict)

    @property
    def caps(self) -> list[Cap]:
        """Every cap of every figure."""
        return [cap for expected in self.figures.values() if expected for cap in expected.terms]

    def to_document(self) -> dict[str, Any]:
        """Return plain data: bytes, GB/s, and whether a figure can fail a node."""
        figures = [{"what": what.strip(), **_document(expected)} for what, expected in self.figures.items()]
        about = {"profile": self.profile, "gpus": self.gpus, "nics": self.nics}
        measured = [_baseline_document(what, own) for what, own in self.measured.items()]
        return {"nodes": list(self.hosts), **about, "figures": figures, "measured": measured}


@dataclass(frozen=True)
class Expectation(Result):
    """Hosts grouped by their expected bandwidth."""

    SCHEMA: ClassVar[str] = "gpuops.expectation/1"
    classes: tuple[HostClass, ...]
    excluded: Mapping[str, Excluded] = field(default_factory=dict)
    interrupted: bool = False
    seconds: float = 0.0

    def to_document(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"schema": self.SCHEMA, "classes": [each.to_document() for each in self.classes]}

    def conclusion(self, fail_on: FailOn = "fail") -> Conclusion:  # noqa: ARG002 - every result has it
        """Return ``incomplete`` if a host has no GPU to expect anything of; an expectation finds no faults."""
        has_gap = any(excluded.kind == "unknown" for excluded in self.excluded.values())
        return "interrupted" if self.interrupted else "incomplete" if has_gap else "ok"


def _document(expected: ExpectedBandwidth | None) -> dict[str, Any]:
    if expected is None:
        return {"gb_per_s": None}
    return {**asdict(expected), "floor_gb_per_s": expected.floor_gb_per_s, "may_fail": expected.may_fail}


def _baseline_document(what: str, own: Baseline) -> dict[str, Any]:
    times = {"oldest": own.oldest.isoformat(), "newest": own.newest.isoformat()}
    return {"what": what, "source": "measured-here", **asdict(own), **times}


def host_class(
    hosts: tuple[str, ...],
    profile: Profile,
    nics: int,
    together: int,
    size_bytes: int | None = None,
    efficiency: Efficiency = PRIOR,
    operation: Operation = "all_reduce",
) -> HostClass:
    """Return the figures of ``hosts`` of one kind: alone, on a rail, in pairs, and in a group of ``together`` hosts."""
    gpus = profile.get("gpu.count", 0)
    ports = tuple(FabricNic(f"nic{rail}", rail, 0.0) for rail in range(nics))
    names = tuple(f"n{number}" for number in range(max(together, 2)))
    fabric = Fabric({name: FabricNode(name, tuple(range(gpus)), ports) for name in names})
    expectations = Expectations(fabric, dict.fromkeys(names, profile), efficiency, size_bytes, operation)
    groups = {"within a node": RankGroup(names[:1])}
    if operation == "all_reduce":
        groups["  without its SHARP"] = RankGroup(names[:1], variant="ring")
    if together > 1:
        groups |= {"a rail of two nodes": RankGroup(names[:2], rail=0), "two nodes": RankGroup(names[:2])}
    if together > 2:
        groups[f"{together} nodes"] = RankGroup(names)
    return HostClass(hosts, profile.name, gpus, nics, {what: expectations.of(group) for what, group in groups.items()})

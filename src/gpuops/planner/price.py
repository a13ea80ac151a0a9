"""The cost of a slow part: the step time with it, compared with the step time with a healthy one; pure.

Every ring is as fast as its slowest link. So one slow NIC lowers the bandwidth between nodes for the whole job, and a
GPU with slow NVLinks lowers that inside nodes, each to the fraction of its peers' bandwidth that it was measured at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from gpuops.errors import LayoutError
from gpuops.layout import Layout
from gpuops.planner.candidates import Candidates
from gpuops.planner.hardware import ClusterSpec
from gpuops.planner.model import TransformerSpec
from gpuops.planner.step_time import step_time
from gpuops.planner.training import TrainingSetup


@dataclass(frozen=True)
class SlowPart:
    """A ``part`` of ``node`` that reached ``gb_per_s`` where its peers reach ``expected_gb_per_s``, as bus bandwidths.

    Without a ``part``, the node is slow with its partners on every rail.
    """

    node: str
    part: str
    gb_per_s: float
    expected_gb_per_s: float

    def __post_init__(self) -> None:
        if self.gb_per_s <= 0 or self.expected_gb_per_s <= 0:
            raise LayoutError(f"{self.name}: a bandwidth must be above 0; measure it again")

    @property
    def name(self) -> str:
        """The node, and the part in it."""
        return f"{self.node} {self.part}".strip()

    @property
    def kept(self) -> float:
        """The fraction of its peers' bandwidth that is left."""
        return min(1.0, self.gb_per_s / self.expected_gb_per_s)

    @property
    def is_inside(self) -> bool:
        """Whether it slows down traffic inside its node, rather than between nodes."""
        return self.part.startswith("gpu")


@dataclass(frozen=True)
class Price:
    """Seconds of a step with a slow part, and as they were if it were as its peers.

    ``is_used`` is False if its node is left out; then it is what the part would cost in place of a healthy one.
    """

    part: SlowPart
    step_seconds: float
    healthy_seconds: float
    is_used: bool

    @property
    def fraction(self) -> float:
        """How much longer a step takes with the part, as a fraction."""
        return self.step_seconds / self.healthy_seconds - 1


def slowed(cluster: ClusterSpec, parts: Iterable[SlowPart]) -> ClusterSpec:
    """Return ``cluster``, whose bandwidths are those of healthy links, with each lowered to that of the worst part."""
    found = list(parts)
    for is_inside, name in ((True, "nvlink_gb_per_s"), (False, "network_gb_per_s")):
        worst = min((part for part in found if part.is_inside == is_inside), key=lambda part: part.kept, default=None)
        if worst is not None:
            source = f"{cluster.sources.get(name, '')}, times what is left of {worst.name}".removeprefix(", ")
            lowered = {name: worst.kept * getattr(cluster, name)}
            cluster = cluster.with_measurements(source=source, **lowered)
    return cluster


def prices(
    model: TransformerSpec,
    healthy: ClusterSpec,
    training: TrainingSetup,
    layout: Layout,
    parts: Sequence[SlowPart],
    used_nodes: Collection[str],
) -> list[Price]:
    """Return the price of each of ``parts`` for a job of this layout on ``healthy`` links, the highest first."""

    def seconds(cluster: ClusterSpec) -> float:
        return float(step_time(model, cluster, training, Candidates.of([layout])).total[0])

    usual = seconds(healthy)
    found = [Price(part, seconds(slowed(healthy, [part])), usual, part.node in used_nodes) for part in parts]
    return sorted(found, key=lambda price: -price.step_seconds)

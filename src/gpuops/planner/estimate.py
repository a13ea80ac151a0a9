"""Estimates of single layouts as plain numbers: time by cause, memory by part, tokens a second, and use of the GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from gpuops.layout import Layout
from gpuops.planner.candidates import Candidates
from gpuops.planner.constants import MEMORY_PRIORS, Constants, MemoryConstants
from gpuops.planner.hardware import ClusterSpec
from gpuops.planner.memory import Memory, memory
from gpuops.planner.model import FlopsKind, TransformerSpec
from gpuops.planner.step_time import CAUSES, StepTime, step_time
from gpuops.planner.training import TrainingSetup

PARTS = tuple(f.name for f in fields(Memory) if f.name not in ("host", "nvme", "tiles"))


@dataclass(frozen=True)
class Estimate:
    """What a layout would do: ``seconds`` of a step by cause, and ``memory_bytes`` on the fullest GPU by part.

    ``tflops`` are per GPU, counted as ``flops_kind``; ``mfu`` is their fraction of the peak at the job's precision.
    ``tiles`` are those of memory-centric tiling, 1 without it.
    """

    layout: Layout
    seconds: Mapping[str, float] = field(hash=False)
    memory_bytes: Mapping[str, float] = field(hash=False)
    host_bytes: float
    nvme_bytes: float
    fits: bool
    tokens_per_second: float
    tflops: float
    mfu: float
    flops_kind: FlopsKind
    tiles: int = 1

    @property
    def step_seconds(self) -> float:
        """Seconds of one step."""
        return sum(self.seconds.values())

    @property
    def gpu_bytes(self) -> float:
        """Bytes on the fullest GPU."""
        return sum(self.memory_bytes.values())

    @property
    def limit(self) -> str:
        """The cause that takes most of the step."""
        return max(self.seconds, key=self.seconds.__getitem__)


def estimates(
    model: TransformerSpec,
    cluster: ClusterSpec,
    training: TrainingSetup,
    candidates: Candidates,
    constants: Constants | None = None,
    memory_constants: MemoryConstants = MEMORY_PRIORS,
    flops_kind: FlopsKind = "model",
) -> list[Estimate]:
    """Return the estimate of each candidate, in their order; for many thousands, use the arrays themselves."""
    time = step_time(model, cluster, training, candidates, constants)
    space = memory(model, cluster, training, candidates, memory_constants)
    fits, per_token = space.fits(cluster), model.flops_per_token(training.sequence, flops_kind)
    peak = cluster.gpu.peak_tflops(training.precision)
    rows = []
    for row in range(len(candidates)):
        layout = candidates.layout(row)
        seconds = _row(time, CAUSES, row)
        speed = layout.global_batch * training.sequence / sum(seconds.values())
        tflops = speed * per_token / layout.ranks / 1e12
        host, nvme, tiles = float(space.host[row]), float(space.nvme[row]), int(space.tiles[row])
        sizes = (_row(space, PARTS, row), host, nvme, bool(fits[row]))
        rows.append(Estimate(layout, seconds, *sizes, speed, tflops, tflops / peak, flops_kind, tiles))
    return rows


def _row(columns: StepTime | Memory, names: tuple[str, ...], row: int) -> dict[str, float]:
    return {name: float(getattr(columns, name)[row]) for name in names}

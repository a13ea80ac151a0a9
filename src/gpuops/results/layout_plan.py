"""Layouts of a training job that a search found, with the reasons, as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from gpuops.reasons import Conclusion, Excluded, FailOn, Result

if TYPE_CHECKING:
    from gpuops.planner.estimate import Estimate
    from gpuops.planner.finishing import Finish
    from gpuops.planner.goodput import ClusterJob, Goodput
    from gpuops.planner.hardware import ClusterSpec
    from gpuops.planner.model import TransformerSpec
    from gpuops.planner.price import Price
    from gpuops.planner.search import Found, WayOut
    from gpuops.planner.training import TrainingSetup


@dataclass(frozen=True)
class Compared:
    """What was asked for by name: its fastest layout that fits, else the closest one, or why there is none."""

    name: str
    estimate: Estimate | None = None
    why: str = ""


@dataclass(frozen=True)
class Advice:
    """A rule of the guide that applies, and the strategies that it recommends, each with its fastest layout."""

    rule: str
    text: str
    kept: bool = True
    recommended: tuple[Compared, ...] = ()


@dataclass(frozen=True)
class Outlook:
    """What failures make of a job: ``job`` with its rate of failures, and its ``goodput`` without spares.

    ``finishes`` say when a job of ``tokens`` ends with each number of spares, the first to finish first.
    """

    job: ClusterJob
    goodput: Goodput
    tokens: float = 0.0
    finishes: tuple[Finish, ...] = ()


@dataclass(frozen=True)
class LayoutPlan(Result):
    """Layouts of ``model`` on ``cluster``, the fastest first; ``answers`` say what would help if none fits.

    ``prices`` say what each part that was measured to be slow costs the fastest layout. ``against_fits`` is False if
    the layout to compare against, which is the last one ``compared``, cannot run on the cluster. ``left_out`` says
    which degrees were not searched, and why, because of the framework or of the model's layers. ``why_none`` says why
    no layout is valid; then the ``answers`` are fewer nodes and another batch.
    """

    SCHEMA: ClassVar[str] = "gpuops.layout-plan/1"
    model: TransformerSpec
    cluster: ClusterSpec
    training: TrainingSetup
    found: Found
    compared: tuple[Compared, ...] = ()
    advice: tuple[Advice, ...] = ()
    answers: tuple[WayOut, ...] = ()
    excluded: Mapping[str, Excluded] = field(default_factory=dict)
    prices: tuple[Price, ...] = ()
    outlook: Outlook | None = None
    against_fits: bool = True
    left_out: tuple[str, ...] = ()
    why_none: str = ""
    interrupted: bool = False

    def __iter__(self) -> Iterator[Estimate]:
        return iter(self.found.best)

    @property
    def best(self) -> Estimate | None:
        """The fastest layout that fits."""
        return self.found.best[0] if self.found.best else None

    def conclusion(self, fail_on: FailOn = "fail") -> Conclusion:  # noqa: ARG002 - every result has it
        """Return ``failed`` if no layout fits, or the one to compare against does not."""
        fits = bool(self.found.best) and self.against_fits
        return "interrupted" if self.interrupted else "ok" if fits else "failed"

    def to_document(self) -> dict[str, Any]:
        """Return plain data for JSON: seconds, bytes, tokens a second."""
        found = self.found
        return {
            "schema": self.SCHEMA,
            "model": {"name": self.model.name, "parameters": self.model.total_parameters()},
            "cluster": _cluster_document(self.cluster),
            "training": asdict(self.training),
            "scored": found.scored,
            "fitting": found.fitting,
            "layouts": [estimate_document(each) for each in found.best],
            "left_out": list(self.left_out),
            "why_none": self.why_none,
            "front": [estimate_document(each) for each in found.front],
            "closest": estimate_document(found.closest) if found.closest else None,
            "compared": [_compared_document(each) for each in self.compared],
            "rules": [
                {"rule": each.rule, "text": each.text, "kept": each.kept,
                 "recommended": [_compared_document(one) for one in each.recommended]}
                for each in self.advice
            ],
            "answers": [
                {"what": each.what, "change": each.change,
                 "estimate": estimate_document(each.estimate) if each.estimate else None}
                for each in self.answers
            ],
            "prices": [
                {"node": each.part.node, "part": each.part.part, "used": each.is_used,
                 "gb_per_s": each.part.gb_per_s, "expected_gb_per_s": each.part.expected_gb_per_s,
                 "step_seconds": each.step_seconds, "healthy_seconds": each.healthy_seconds}
                for each in self.prices
            ],
            "outlook": _outlook_document(self.outlook) if self.outlook else None,
        }  # fmt: skip


def _cluster_document(cluster: ClusterSpec) -> dict[str, Any]:
    return {
        "name": cluster.name,
        "gpu": cluster.gpu.name,
        "gpus": cluster.gpus,
        "gpus_per_node": cluster.gpus_per_node,
        "domain_gpus": cluster.domain_gpus,
        "nvlink_gb_per_s": cluster.nvlink_gb_per_s,
        "network_gb_per_s": cluster.network_gb_per_s,
        "host_bytes": cluster.host_bytes,
        "nvme_bytes": cluster.nvme_bytes,
        "sources": dict(cluster.sources),
    }


def _outlook_document(outlook: Outlook) -> dict[str, Any]:
    job, result = outlook.job, outlook.goodput
    return {
        "failures_per_day": result.failures_per_day,
        "rate_source": job.rate.source,
        "checkpoint_seconds": job.checkpoint_seconds,
        "restart_seconds": job.restart_seconds,
        "repair_seconds": job.repair_seconds,
        "checkpoint_interval_seconds": result.interval_seconds,
        "effective": result.effective,
        "tokens": outlook.tokens,
        "finishes": [
            {"nodes": each.nodes, "spares": each.spares, "days": each.days, "running": each.goodput.running,
             "trained": each.goodput.trained, "checkpoint_interval_seconds": each.goodput.interval_seconds,
             "estimate": estimate_document(each.estimate)}
            for each in outlook.finishes
        ],
    }  # fmt: skip


def _compared_document(each: Compared) -> dict[str, Any]:
    return {
        "name": each.name,
        "estimate": estimate_document(each.estimate) if each.estimate else None,
        "why": each.why,
    }


def estimate_document(estimate: Estimate) -> dict[str, Any]:
    """Return one estimate as plain data; ``layout`` is what ``--layout`` takes."""
    return {
        "layout": str(estimate.layout),
        "fits": estimate.fits,
        "step_seconds": estimate.step_seconds,
        "tokens_per_second": estimate.tokens_per_second,
        "tflops_per_gpu": estimate.tflops,
        "mfu": estimate.mfu,
        "flops_kind": estimate.flops_kind,
        "gpu_bytes": estimate.gpu_bytes,
        "host_bytes": estimate.host_bytes,
        "nvme_bytes": estimate.nvme_bytes,
        "tiles": estimate.tiles,
        "limit": estimate.limit,
        "seconds": dict(estimate.seconds),
        "memory_bytes": dict(estimate.memory_bytes),
    }

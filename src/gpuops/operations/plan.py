"""Layouts of a model on a cluster: of a catalogue, or of the hosts as they are and as they were measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuops.document import load
from gpuops.errors import LayoutError
from gpuops.layout import Layout, parse_layout, rule_violations
from gpuops.operations.health import check_profiles, expected_of, quick_probes, unhealthy
from gpuops.operations.launch import model_document
from gpuops.operations.past.baselines import RAIL, WITHIN, measured_here
from gpuops.operations.past.recall import blamed
from gpuops.placement import NodeShape, shape_of
from gpuops.planner.calibration_file import read_calibration
from gpuops.planner.constants import PRIORS, Constants
from gpuops.planner.estimate import Estimate
from gpuops.planner.hardware import ClusterSpec, from_catalogue, from_nodes
from gpuops.planner.model import TransformerSpec, from_sizes
from gpuops.planner.model_config import read_config
from gpuops.planner.rules import GuideRule, Situation, keeps, rules_for, situation
from gpuops.planner.search import Found, search, ways_out
from gpuops.planner.strategies import Strategy, strategy_named
from gpuops.planner.training import TrainingSetup
from gpuops.probes.host.pcie import pcie
from gpuops.probes.nvidia.nvidia_smi import smi
from gpuops.probes.nvidia.topo import topo
from gpuops.probing import Unknown
from gpuops.reasons import Excluded
from gpuops.requests import PlanRequest
from gpuops.results.layout_plan import Advice, Compared, LayoutPlan
from gpuops.workspace import Workspace

_WITHOUT_BF16 = ("volta", "turing")
_SEQUENCE = 2048
"""Tokens of a sequence where neither the request nor the model's configuration names a length."""
_LONGEST = 8192
"""The most that is taken from a configuration: what models can read is longer than what they are trained on."""


def plan(work: Workspace, request: PlanRequest) -> LayoutPlan:
    """Search the layouts of a model; raise `LayoutError` for a model, a cluster or a condition that is not possible."""
    model = planned_model(request)
    strategy = strategy_named(request.strategy) if request.strategy else None
    cluster, excluded = cluster_of(work, request)
    training = _training(work, model, cluster, request)
    cluster, constants = _calibrated(work, cluster, request)
    found = search(model, cluster, training, limits=_limits(strategy), top=request.top, constants=constants)
    job = (model, cluster, training)
    compared = [_conditions(*job, constants, text) for text in request.why_not]
    compared += [_conditions(*job, constants, request.against)] if request.against else []
    return LayoutPlan(
        *job,
        found,
        tuple(compared),
        tuple(_advice(*job, constants, found)) if request.explain else (),
        () if found.best else tuple(ways_out(*job, limits=_limits(strategy), constants=constants)),
        excluded,
    )


def planned_model(request: PlanRequest) -> TransformerSpec:
    """Return the model of a request: from a ``config.json`` or its content, or from sizes."""
    if request.model is None:
        return from_sizes(request.sizes or {})
    if isinstance(request.model, Mapping):
        return read_config(dict(request.model), "the model")
    path = Path(request.model)
    return read_config(model_document(path), path.parent.name or path.stem)


def _training(work: Workspace, model: TransformerSpec, cluster: ClusterSpec, request: PlanRequest) -> TrainingSetup:
    sequence = request.sequence or min(model.sequence or _SEQUENCE, _LONGEST)
    batch = request.global_batch or 8 * cluster.gpus
    gpu, precision = cluster.gpu, request.precision
    if precision in ("fp8", "fp4") and precision not in gpu.tflops:
        raise LayoutError(f"--precision: {gpu.name} has no {precision} in its tensor cores; use bf16 or fp16")
    if precision == "bf16" and gpu.generation in _WITHOUT_BF16:
        work.note(f"{gpu.name} has no bf16 in its tensor cores: planned with fp16")
        precision = "fp16"
    return TrainingSetup(sequence, batch, precision, request.optimizer, request.framework)


def _calibrated(work: Workspace, cluster: ClusterSpec, request: PlanRequest) -> tuple[ClusterSpec, Constants]:
    """Return the cluster with the source of its constants, and these: the priors, or those of the calibration."""
    if request.calibration is None:
        return cluster, PRIORS
    calibration, gpu = read_calibration(load(request.calibration)), cluster.gpu.name
    if gpu not in calibration.factors:
        work.note(f"{request.calibration}: no run on {gpu} is in it, so its constants are used without a factor")
    sources = {**cluster.sources, "constants": f"constants calibrated by {request.calibration}"}
    return replace(cluster, sources=sources), calibration.constants_on(gpu)


def _limits(strategy: Strategy | None) -> Mapping[str, tuple[Any, ...]]:
    if strategy and not strategy.training:
        raise LayoutError(f"{strategy.name} runs inference only; choose a strategy that trains")
    return strategy.limits if strategy else {}


def cluster_of(work: Workspace, request: PlanRequest) -> tuple[ClusterSpec, dict[str, Excluded]]:
    """Return the cluster of a catalogue, or that of the healthy hosts with what they were measured at."""
    if request.cluster:
        return from_catalogue(request.cluster, work.catalogue.profiles()), {}
    work = work.of_inventory()
    check_profiles(work.hosts, work.catalogue)
    gathered = work.nodes.gather(quick_probes(work.catalogue, smi, topo, pcie), facts=request.facts)
    gathered.raise_if_interrupted()
    profiles = expected_of(work.hosts, gathered.values, work.catalogue)
    known = {name: profiles[name] for name in gathered.values}
    excluded = {**gathered.excluded}
    if not request.all_nodes:
        excluded |= unhealthy(gathered.values, known, work.catalogue, waivers=work.waivers())
        excluded |= {} if work.nodes.source == "saved" else blamed(work, known)
    shapes: dict[str, NodeShape] = {}
    for host in (host for host in work.hosts if host.name in known and host.name not in excluded):
        shape = shape_of(host, gathered.values[host.name])
        if isinstance(shape, Unknown):
            excluded[host.name] = Excluded(host.name, "unknown", shape.why)
        else:
            shapes[host.name] = shape
    work.nodes.note_excluded(excluded.values())
    if not shapes:
        raise LayoutError("no healthy node has a GPU that a job could use; gpuops validate says why")
    names = {name: _gpu_name(gathered.values[name][smi]) for name in shapes}
    cluster = from_nodes(list(shapes.values()), names, known[next(iter(shapes))])
    return _as_measured(work, cluster, list(shapes)), excluded


def _gpu_name(report: Any) -> str:
    return next((str(gpu.name) for gpu in report.gpus if gpu.uuid), "")


def _as_measured(work: Workspace, cluster: ClusterSpec, nodes: list[str]) -> ClusterSpec:
    """Return the cluster with what its own all-reduces reached, where the store has at least three of a kind."""
    here = {} if work.nodes.source == "saved" else measured_here(work, nodes)
    if within := here.get(WITHIN):
        source = f"measured here: median of {within.count} nodes"
        cluster = cluster.with_measurements(nvlink_gb_per_s=within.gb_per_s, source=source)
    if rail := here.get(RAIL):
        source = f"measured here: median of {rail.count} pairs"
        cluster = cluster.with_measurements(network_gb_per_s=rail.gb_per_s, source=source)
    return cluster


def _conditions(
    model: TransformerSpec, cluster: ClusterSpec, training: TrainingSetup, constants: Constants, text: str
) -> Compared:
    """Return the best layout with the degrees of ``text``, or the rule that they break."""
    wanted = parse_layout(text)
    words = [word.partition("=")[0].replace("-", "_") for word in text.replace(",", " ").split()]
    names = [{"gas": "chunks", "sp": "sequence_parallel"}.get(word, word) for word in words]
    limits = {name: (getattr(wanted, name),) for name in names if name != "sequence_parallel"}
    try:
        found = search(model, cluster, training, limits=limits, top=1, constants=constants)
    except LayoutError as error:
        return Compared(text, None, _broken(wanted, cluster, model) or str(error))
    return _compared(text, found)


def _broken(layout: Layout, cluster: ClusterSpec, model: TransformerSpec) -> str:
    reach = max(cluster.domain_gpus, cluster.gpus_per_node)
    violations = rule_violations(layout, gpus_per_domain=reach, model=model)
    reasons = [violation.reason for violation in violations if not violation.warning]
    if cluster.gpus % layout.ranks:
        reasons.append(f"{layout.ranks} ranks do not divide {cluster.gpus} GPUs")
    return "; ".join(reasons)


def _compared(name: str, found: Found) -> Compared:
    if found.best:
        return Compared(name, found.best[0])
    return Compared(name, found.closest, "does not fit")


def _advice(
    model: TransformerSpec, cluster: ClusterSpec, training: TrainingSetup, constants: Constants, found: Found
) -> list[Advice]:
    facts = situation(model, cluster, training)
    best = found.best[0] if found.best else None

    def priced(rule: GuideRule) -> tuple[Compared, ...]:
        return tuple(_priced(model, cluster, training, constants, strategy_named(name)) for name in rule.recommends)

    return [Advice(r.name, r.text, _kept(r, best, facts), priced(r)) for r in rules_for(facts)]


def _kept(rule: GuideRule, best: Estimate | None, facts: Situation) -> bool:
    return best is None or keeps(rule, best.layout, facts)


def _priced(
    model: TransformerSpec, cluster: ClusterSpec, training: TrainingSetup, constants: Constants, strategy: Strategy
) -> Compared:
    if "nvme" in strategy.limits.get("offload", ()) and not cluster.nvme_bytes:
        return Compared(strategy.name, None, "the size of NVMe drives is unknown")
    try:
        found = search(model, cluster, training, limits=strategy.limits, top=1, constants=constants)
    except LayoutError:
        return Compared(strategy.name, None, "no valid layout with this batch and these GPUs")
    return replace(_compared(strategy.name, found), name=strategy.name)

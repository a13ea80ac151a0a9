"""Layouts of a model on a cluster: of a catalogue, or of the hosts as they are and as they were measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gpuops.errors import InputError, LayoutError
from gpuops.layout import ALIASES, parse_layout, spelled_out
from gpuops.operations.launch import model_document
from gpuops.operations.planning.asked import check_values
from gpuops.operations.planning.calibrated import calibrated
from gpuops.operations.planning.machines import Machines, machines_of, with_storage
from gpuops.operations.planning.outlook import check_work, outlook_of
from gpuops.planner.estimate import Estimate
from gpuops.planner.hardware import ClusterSpec
from gpuops.planner.layout_space import Limits, left_out, why_none
from gpuops.planner.memory import USABLE
from gpuops.planner.model import TransformerSpec, from_sizes
from gpuops.planner.model_config import read_config
from gpuops.planner.price import Price, prices
from gpuops.planner.rules import GuideRule, Situation, keeps, rules_for, situation
from gpuops.planner.search import Found, other_jobs, search, ways_out
from gpuops.planner.strategies import Strategy, strategy_named
from gpuops.planner.training import TrainingSetup
from gpuops.requests import PlanRequest
from gpuops.results.layout_plan import Advice, Compared, LayoutPlan
from gpuops.workspace import Workspace

_MOST = 10**9
_WITHOUT_BF16 = ("volta", "turing")
_SEQUENCE = 2048
"""Tokens of a sequence where neither the request nor the model's configuration names a length."""
_LONGEST = 8192
"""The most that is taken from a configuration: what models can read is longer than what they are trained on."""


def plan(work: Workspace, request: PlanRequest) -> LayoutPlan:
    """Search the layouts of a model; raise `LayoutError` for a model, a cluster or a condition that is not possible."""
    check_values(request)
    check_work(request)
    model = planned_model(request)
    strategy = strategy_named(request.strategy) if request.strategy else None
    machines = with_storage(calibrated(work, machines_of(work, request), request.calibration), request)
    cluster = machines.cluster
    asked = _training(work, model, cluster, request)
    _note_limits(work, model, asked)
    training = strategy.applied_to(asked, cluster.nodes) if strategy else asked
    if strategy and training.framework != asked.framework:
        work.note(f"planned with --framework {training.framework}, to which {strategy.name} belongs")
    limits = strategy.limits_on(cluster.nodes) if strategy else {}
    found, nothing = _searched(model, cluster, training, limits, request)
    job = (model, cluster, replace(asked, framework=training.framework))
    compared = [_conditions(*job, text) for text in request.why_not]
    compared += [_conditions(*job, request.against)] if request.against else []
    return LayoutPlan(
        model,
        cluster,
        training,
        found,
        tuple(compared),
        tuple(_advice(*job, found)) if request.explain else (),
        () if found.best else tuple((other_jobs if nothing else ways_out)(model, cluster, training, limits)),
        machines.excluded,
        _prices(model, machines, training, found),
        outlook_of(work, request, machines, model, training, found.best[0], limits) if found.best else None,
        not (request.against and compared[-1].why),
        left_out=tuple(left_out(model, cluster, training, limits)),
        why_none=nothing,
    )


def _searched(
    model: TransformerSpec, cluster: ClusterSpec, training: TrainingSetup, limits: Limits, request: PlanRequest
) -> tuple[Found, str]:
    """Return what a search found, or nothing and why no layout is valid if there is a layout to compare against.

    That is what an operator asks after a node was lost, so the plan says what the nodes that are left can do.
    """
    try:
        return search(model, cluster, training, limits=limits, top=request.top), ""
    except LayoutError:
        if not request.against:
            raise
        return Found((), (), 0, 0), why_none(model, cluster, training, limits)


def _prices(model: TransformerSpec, machines: Machines, training: TrainingSetup, found: Found) -> tuple[Price, ...]:
    """Return what each slow part costs the fastest layout."""
    if not found.best or not machines.slow_parts:
        return ()
    return tuple(prices(model, machines.healthy, training, found.best[0].layout, machines.slow_parts, machines.nodes))


def planned_model(request: PlanRequest) -> TransformerSpec:
    """Return the model of a request: from a ``config.json`` or its content, or from sizes."""
    if request.model is None:
        return from_sizes(request.sizes or {})
    if request.sizes:
        raise InputError("--model excludes --params: its configuration has the sizes")
    if isinstance(request.model, Mapping):
        return read_config(dict(request.model), "the model")
    path = Path(request.model)
    name = path.parent.name if path.name == "config.json" else path.stem  # Hugging Face names the directory
    return read_config(model_document(path), name or path.stem)


def _training(work: Workspace, model: TransformerSpec, cluster: ClusterSpec, request: PlanRequest) -> TrainingSetup:
    sequence = request.sequence or min(model.sequence or _SEQUENCE, _LONGEST)
    batch = request.global_batch or 8 * cluster.gpus
    if max(sequence, batch) > _MOST:
        raise InputError(f"--gbs and --seq are at most {_MOST:,}")
    gpu, precision = cluster.gpu, request.precision
    if precision in ("fp8", "fp4") and precision not in gpu.tflops:
        raise LayoutError(f"--precision: {gpu.name} has no {precision} in its tensor cores; use bf16 or fp16")
    if precision == "bf16" and gpu.generation in _WITHOUT_BF16:
        work.note(f"{gpu.name} has no bf16 in its tensor cores: planned with fp16")
        precision = "fp16"
    return TrainingSetup(sequence, batch, precision, request.optimizer, request.framework)


def _note_limits(work: Workspace, model: TransformerSpec, training: TrainingSetup) -> None:
    """Note what of a model is not planned."""
    if model.wrapper:
        work.note(f"{model.name}: only the language model in {model.wrapper} is planned; other towers are not counted")
    if model.positions and training.sequence > model.sequence:
        work.note(
            f"{model.name} has learned positions for {model.sequence:,} tokens, and sequences have "
            f"{training.sequence:,}: it needs a larger table of positions"
        )


def _conditions(model: TransformerSpec, cluster: ClusterSpec, training: TrainingSetup, text: str) -> Compared:
    """Return the best layout with the degrees of ``text``, or the rule that they break."""
    wanted = parse_layout(text)
    words = [word.partition("=")[0].replace("-", "_") for word in text.replace(",", " ").split()]
    names = [ALIASES.get(word, word) for word in words]
    limits = {name: (getattr(wanted, name),) for name in names}
    name = str(wanted) if text == spelled_out(wanted) else text
    try:
        found = search(model, cluster, training, limits=limits, top=1)
    except LayoutError:
        return Compared(name, None, why_none(model, cluster, training, limits))
    return _compared(name, found, cluster)


def _compared(name: str, found: Found, cluster: ClusterSpec) -> Compared:
    if found.best:
        return Compared(name, found.best[0])
    return Compared(name, found.closest, f"does not fit: {_shortage(found.closest, cluster)}" if found.closest else "")


def _shortage(estimate: Estimate, cluster: ClusterSpec) -> str:
    """Return what does not fit: the largest part on a GPU, or else what is too large for a node."""
    sizes = {name.replace("_", " "): size for name, size in estimate.memory_bytes.items()}
    if estimate.gpu_bytes <= USABLE * cluster.gpu.memory_bytes:
        sizes = {"host memory": estimate.host_bytes, "NVMe": estimate.nvme_bytes}
    largest = max(sizes, key=sizes.__getitem__)
    return f"{largest} {'are' if largest.endswith('s') else 'is'} most, {sizes[largest] / (1 << 30):.1f} GiB"


def _advice(model: TransformerSpec, cluster: ClusterSpec, training: TrainingSetup, found: Found) -> list[Advice]:
    facts = situation(model, cluster, training)
    best = found.best[0] if found.best else None

    def priced(rule: GuideRule) -> tuple[Compared, ...]:
        return tuple(_priced(model, cluster, training, strategy_named(name)) for name in rule.recommends)

    return [Advice(r.name, r.text, _kept(r, best, facts), priced(r)) for r in rules_for(facts)]


def _kept(rule: GuideRule, best: Estimate | None, facts: Situation) -> bool:
    return best is None or keeps(rule, best.layout, facts)


def _priced(model: TransformerSpec, cluster: ClusterSpec, training: TrainingSetup, strategy: Strategy) -> Compared:
    if "nvme" in strategy.limits.get("offload", ()) and not cluster.nvme_bytes:
        return Compared(strategy.name, None, "the size of NVMe drives is unknown; give it with --nvme")
    try:
        job = strategy.applied_to(training, cluster.nodes)
        limits = strategy.limits_on(cluster.nodes)
        found = search(model, cluster, job, limits=limits, top=1)
    except LayoutError:
        return Compared(strategy.name, None, "no valid layout with this batch and these GPUs")
    return _compared(strategy.name, found, cluster)

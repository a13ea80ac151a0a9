"""Every layout that ``gpuops plan`` searches is one that a launch target of its framework, or strategy, can start."""

from dataclasses import replace

import pytest

from gpuops.catalogue import Catalogue
from gpuops.errors import TemplateError
from gpuops.layout import rule_violations
from gpuops.placement import GpuShape, NodeShape, Placement, Rank
from gpuops.planner.frameworks import TARGETS
from gpuops.planner.hardware import from_catalogue
from gpuops.planner.layout_space import candidates
from gpuops.planner.model import from_sizes
from gpuops.planner.model_config import read_config
from gpuops.planner.strategies import STRATEGIES, strategy_named
from gpuops.planner.training import TrainingSetup
from gpuops.render import Job, find_target, render

DENSE = from_sizes({"layers": 14, "hidden": 1024, "heads": 16}, "dense")
EXPERTS = read_config(
    {"model_type": "mixtral", "hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 16,
     "intermediate_size": 1024, "vocab_size": 1000, "num_local_experts": 4, "num_experts_per_tok": 2}, "experts"
)  # fmt: skip
WORDS = {"megatron-deepspeed": ("--num-experts", "4", "--use-flash-attn-v2")}
"""What a script must be started with by a target for some of its layouts."""
GPUS = 4
TRAINING = [strategy for strategy in STRATEGIES if strategy.training]


def cluster(nodes):
    node = from_catalogue("1xhgx-h100", Catalogue(None).profiles())
    return replace(node, gpus=nodes * GPUS, gpus_per_node=GPUS, domain_gpus=GPUS)


def placed(layout):
    """Return the layout on nodes of four GPUs, in the order of its ranks."""
    cards = tuple(GpuShape(i, f"GPU-{i}", f"0000:{i:02x}:00.0", 0, f"mlx5_{i}", 0) for i in range(GPUS))
    names = [f"gpu{n}" for n in range(-(-layout.ranks // GPUS))]
    shapes = tuple(NodeShape(name, name, cards, ("leaf0",), None, name) for name in names)
    ranks = (
        Rank(r, names[r // GPUS], r % GPUS, r % GPUS, f"mlx5_{r % GPUS}", 0, **layout.coordinates(r))
        for r in range(layout.ranks)
    )
    return Placement(layout, tuple(ranks), shapes)


def different(layouts):
    """Return layouts of which each differs in what a target may refuse."""
    found = {}
    for row in range(len(layouts)):
        layout = layouts.layout(row)
        key = (layout.tp, layout.pp, layout.cp, layout.ep, min(layout.vpp, 2), layout.zero, layout.offload)
        key = (*key, layout.dp_replicate > 1)
        found.setdefault((*key, layout.chunks == 1), layout)
    return list(found.values())


def refusal(name, layout, model):
    """Return why ``name`` cannot start a layout, or nothing if it can."""
    target = find_target(name)
    broken = [v.reason for v in rule_violations(layout, gpus_per_domain=GPUS, engine=target.engine, model=model)
              if not (v.warning or v.forceable)]  # fmt: skip
    job = Job("train.py", WORDS.get(name, ()), "train", 29500)
    order = target.orders[0] if target.orders else layout.order
    try:
        render(target, placed(type(layout)(**{**vars(layout), "order": order})), job, model)
    except TemplateError as error:
        broken.append(str(error))
    return "; ".join(broken)


@pytest.mark.parametrize("model", [DENSE, EXPERTS], ids=lambda model: model.name)
@pytest.mark.parametrize("framework", TARGETS)
def test_each_layout_of_a_framework_has_a_target_that_starts_it(framework, model):
    layouts = different(candidates(model, cluster(2), TrainingSetup(8192, 32, framework=framework)))
    assert layouts
    for layout in layouts:
        refusals = [refusal(name, layout, model) for name in TARGETS[framework]]
        assert not all(refusals), (layout, refusals)


@pytest.mark.parametrize("strategy", TRAINING, ids=lambda strategy: strategy.name)
def test_each_layout_of_a_strategy_has_a_target_that_starts_it(strategy):
    machines = cluster(1 if strategy.one_node else 2)
    job = strategy.applied_to(TrainingSetup(8192, 1 if strategy.name == "naive MP" else 32), machines.nodes)
    for model in (DENSE, EXPERTS):
        layouts = different(candidates(model, machines, job, strategy.limits_on(machines.nodes)))
        assert layouts or strategy.name == "ZeRO-Infinity", "which needs drives"
        for layout in layouts:
            refusals = [refusal(name, layout, model) for name in strategy.targets]
            assert not all(refusals), (layout, refusals)


def test_what_targets_refuse_is_not_searched():
    """Megatron-DeepSpeed does not interleave, and Varuna keeps a whole optimizer in each stage."""
    job = TrainingSetup(8192, 32)
    combined, varuna = (candidates(DENSE, cluster(2), job, strategy_named(n).limits) for n in ("ZeRO+3D", "Varuna"))
    assert set(combined.vpp.tolist()) == {1}
    assert set(varuna.zero.tolist()) == {0}

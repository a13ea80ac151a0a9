"""The guide's strategies and rules: its own examples, and that each strategy fixes what its system can run."""

import pytest

from gpuops.catalogue import Catalogue
from gpuops.errors import LayoutError
from gpuops.layout import Layout
from gpuops.planner.candidates import Candidates
from gpuops.planner.hardware import from_catalogue
from gpuops.planner.model import from_sizes
from gpuops.planner.rules import RULES, Situation, keeps, rules_for, situation
from gpuops.planner.search import candidates, search
from gpuops.planner.strategies import STRATEGIES, exchange_bytes, split, strategy_named
from gpuops.planner.training import TrainingSetup

MODEL = from_sizes({"layers": 32, "hidden": 4096, "heads": 32, "ffn": 16384, "vocab": 50304}, "8b")
GUIDE = Situation(8, 1, 8, fits_one=True, largest_layer_fits=True, fast_node=True, fast_network=True)


@pytest.fixture(scope="module")
def machines():
    profiles = Catalogue(None).profiles()
    return lambda text: from_catalogue(text, profiles)


def test_every_name_and_alias_is_found_and_means_one_strategy():
    words = [word for strategy in STRATEGIES for word in (strategy.name, *strategy.aliases)]
    assert len({word.lower() for word in words}) == len(words)
    for strategy in STRATEGIES:
        assert {strategy_named(word.upper()) for word in (strategy.name, *strategy.aliases)} == {strategy}
    with pytest.raises(LayoutError, match="did you mean"):
        strategy_named("DPP")


@pytest.mark.parametrize("strategy", [s for s in STRATEGIES if s.training], ids=lambda s: s.name)
def test_every_strategy_has_layouts_and_all_are_its_own(machines, strategy):
    cluster = machines("2xhgx-h100")
    layouts: Candidates = candidates(MODEL, cluster, TrainingSetup(2048, 64), strategy.limits)
    if strategy.name == "ZeRO-Infinity":
        assert not len(layouts)  # the profile names no NVMe
        return
    if strategy.name == "naive MP":
        layouts = candidates(MODEL, cluster, TrainingSetup(2048, 1), strategy.limits)
    assert len(layouts)
    for row in range(len(layouts)):
        layout = layouts.layout(row)
        assert all(getattr(layout, name) in values for name, values in strategy.limits.items()), layout


def test_soap_splits_samples_and_attributes():
    """10 x 512 over two GPUs: by sample 2 parts of 5 x 512, by attribute 10 x 2 x 256."""
    assert split((10, 512), 0, 2) == (2, 5, 512)
    assert split((10, 512), 1, 2) == (10, 2, 256)
    with pytest.raises(LayoutError, match="10 x 512"):
        split((10, 512), 0, 3)


def test_ddp_has_one_exchange_and_dp_five():
    assert list(exchange_bytes("DDP", 1.0, 1.0, 8)) == ["gradients"]
    assert len(exchange_bytes("DataParallel", 1.0, 1.0, 8)) == 5


def test_dp_and_ddp_on_two_titan_rtx_come_in_the_measured_order():
    """101.9 s DDP with NVLink, 110.6 s DP with NVLink, 131.4 s DDP without: 200 steps of GPT-2 with 4 samples a GPU.

    124 million fp32 gradients; the logits of 4 x 1024 tokens; 45 GB/s over two NVLinks, and 6 through the host.
    """
    gradients, logits = 4 * 124e6, 4 * 1024 * 50257 * 4 / 2
    ddp, dp = (sum(exchange_bytes(name, gradients, logits, 2).values()) for name in ("DDP", "DP"))
    assert ddp / 45e9 < dp / 45e9 < ddp / 6e9


def test_r1_to_r12_are_there():
    assert {rule.name for rule in RULES} == {f"R{number}" for number in range(1, 13)}


@pytest.mark.parametrize(
    ("changed", "rule", "first"),
    [
        ({"gpus": 1}, "R1", None),
        ({"gpus": 1, "fits_one": False}, "R1", "ZeRO-Offload"),
        ({}, "R2", "DDP"),
        ({"fits_one": False}, "R3", "1F1B"),
        ({"fits_one": False, "fast_node": False}, "R4", "1F1B"),
        ({"largest_layer_fits": False}, "R6", "TP"),
        ({"nodes": 2, "gpus": 16}, "R7", "ZeRO-3"),
        ({"nodes": 2, "gpus": 16, "fast_network": False, "fits_one": False}, "R8", "ZeRO+3D"),
    ],
)
def test_each_situation_has_the_recommendation_of_the_guide(changed, rule, first):
    facts = Situation(**{**GUIDE.__dict__, **changed})
    found = {r.name: r for r in rules_for(facts)}
    assert (found[rule].recommends or (None,))[0] == first
    decisive = {"R1", "R2", "R3", "R4", "R7", "R8"}
    assert len(decisive & set(found)) == 1


def test_a_situation_follows_from_model_and_cluster(machines):
    small = from_sizes({"layers": 12, "hidden": 768, "heads": 12, "vocab": 50304}, "small")
    assert situation(small, machines("1xhgx-h100"), TrainingSetup(1024, 8)).fits_one
    large = situation(MODEL, machines("2xhgx-h100"), TrainingSetup(1024, 8))
    assert (large.fits_one, large.nodes, large.fast_network, large.fast_node) == (False, 2, True, True)


def test_the_search_keeps_the_rules_that_forbid(machines):
    cluster, training = machines("4xhgx-h100"), TrainingSetup(2048, 128)
    facts = situation(MODEL, cluster, training)
    for estimate in search(MODEL, cluster, training, top=50).best:
        assert all(keeps(rule, estimate.layout, facts) for rule in rules_for(facts))


def test_tp_across_nodes_breaks_r5():
    (r5,) = [rule for rule in RULES if rule.name == "R5"]
    assert not keeps(r5, Layout(tp=16), GUIDE)

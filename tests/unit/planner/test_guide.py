"""The examples of Hugging Face's guide "Efficient training on multiple GPUs", as docs/strategies.md tells them."""

from dataclasses import replace

import pytest

from gpuops.catalogue import Catalogue
from gpuops.errors import LayoutError
from gpuops.planner.candidates import Candidates
from gpuops.planner.constants import MemoryConstants
from gpuops.planner.hardware import from_catalogue
from gpuops.planner.memory import USABLE, memory
from gpuops.planner.model import TransformerSpec, from_sizes
from gpuops.planner.rules import situation
from gpuops.planner.search import search
from gpuops.planner.step_time import step_time
from gpuops.planner.strategies import strategy_named, zero_shards
from gpuops.planner.training import TrainingSetup

GB = 10**9
RAW = MemoryConstants(reserved_bytes=0, fragmentation=0, bucket_bytes=0)
STATES = 18
"""Bytes a parameter: weights in bf16, gradients in fp32, Adam's two moments and a master copy."""


@pytest.fixture(scope="module")
def cards():
    node = from_catalogue("1xdgx-a100", Catalogue(None).profiles())
    return lambda count, size: replace(node, gpus=count, gpu=replace(node.gpu, memory_bytes=int(size)))


def matrices(parameters, layers=24):
    """A GPT of so many parameters, all of them in its layers."""
    heads = round((parameters / layers / 12) ** 0.5 / 64)
    hidden = 64 * heads
    return TransformerSpec("gpt", layers, hidden, heads, heads, 4 * hidden, 0, head_dim=64, norm_vectors=0)


def states(model, cluster, **columns):
    space = memory(model, cluster, TrainingSetup(512, 8), Candidates.product(mbs=1, **columns), RAW)
    return float((space.parameters + space.gradients + space.optimizer)[0])


def test_zero_gives_each_gpu_a_part_of_every_layer():
    layers = {"La": ("a0", "a1", "a2"), "Lb": ("b0", "b1", "b2"), "Lc": ("c0", "c1", "c2")}
    assert zero_shards(layers, 3) == [
        {"La": ("a0",), "Lb": ("b0",), "Lc": ("c0",)},
        {"La": ("a1",), "Lb": ("b1",), "Lc": ("c1",)},
        {"La": ("a2",), "Lb": ("b2",), "Lc": ("c2",)},
    ]
    with pytest.raises(LayoutError, match="Lb: 3 parameters cannot be shared by 2 GPUs"):
        zero_shards({"La": ("a0", "a1"), "Lb": layers["Lb"]}, 2)


def test_zero_3_over_three_gpus_keeps_a_third_of_all_states_on_each(cards):
    model, three = matrices(3e8), cards(3, 40 * GB)
    assert states(model, three, dp=3, zero=3) == pytest.approx(states(model, three) / 3)
    assert states(model, three, dp=3, zero=0) == pytest.approx(states(model, three))


def test_four_cards_of_6_gb_hold_what_one_of_24_gb_holds_and_are_slower(cards):
    model = matrices(22e9 / STATES)
    one, four = cards(1, 24 * GB), cards(4, 6 * GB)
    whole, quarter = states(model, one), states(model, four, pp=4)
    assert 6 * GB < quarter * 4 == pytest.approx(whole)
    assert whole < 24 * GB
    assert quarter < 6 * GB
    job = TrainingSetup(512, 1)
    alone = step_time(model, one, job, Candidates.product(mbs=1))
    naive = step_time(model, four, job, Candidates.product(mbs=1, pp=4, chunks=1))
    compute = ("gemm", "attention", "elementwise", "logits", "bubble")
    works = [sum(float(getattr(each, cause)[0]) for cause in compute) for each in (alone, naive)]
    assert works[1] == pytest.approx(works[0]), "one GPU works at a time"
    assert naive.p2p[0] > alone.p2p[0] == 0, "and what goes between them is copied"


def test_a_model_of_45_gb_fits_four_cards_of_40_gb_if_that_is_all_its_states(cards):
    model, job = matrices(45e9 / STATES), TrainingSetup(2048, 4)
    one, four = cards(1, 40 * GB), cards(4, 40 * GB)
    assert not situation(model, one, job).fits_one
    for name in ("naive MP", "1F1B", "ZeRO-3", "TP"):
        batch = replace(job, global_batch=1) if name == "naive MP" else job
        assert search(model, four, batch, limits=strategy_named(name).limits, top=1).best, name


def test_a_model_with_45_gb_of_weights_needs_host_memory_on_four_cards_of_40_gb(cards):
    model, job, four = matrices(45e9 / 2), TrainingSetup(2048, 4), cards(4, 40 * GB)
    assert states(model, four) == pytest.approx(9 * 45e9, rel=0.02), "gradients and Adam take eight times the weights"
    assert not search(model, four, job, limits={"offload": ("none",)}, top=1).best
    assert search(model, four, job, limits={"offload": ("cpu",)}, top=1).best
    twelve = cards(12, 40 * GB)
    assert search(model, twelve, replace(job, global_batch=12), limits={"offload": ("none",)}, top=1).best


def test_the_search_and_the_rules_leave_the_same_margin(cards):
    """A model fits one GPU for the rules if, and only if, the search finds a layout on one."""
    model, job = matrices(1e9), TrainingSetup(1024, 1)
    whole = Candidates.product(mbs=1, recompute=[0, 1, 2])
    least = float(memory(model, cards(1, 80 * GB), job, whole).total.min())
    on_gpu = {"offload": ("none",)}
    for size, fits in ((least / USABLE * 0.999, False), (least / USABLE * 1.001, True)):
        cluster = cards(1, size)
        assert situation(model, cluster, job).fits_one == fits
        assert bool(search(model, cluster, job, limits=on_gpu, top=1).best) == fits


def test_the_global_batch_is_the_product_of_micro_batch_chunks_and_replicas():
    """1024 sequences over 4 replicas are 256 each; 32 chunks of 8."""
    layouts = Candidates.product(mbs=8, chunks=32, dp=4)
    assert layouts.global_batch.tolist() == [1024]


def fastest(model, cluster, job, *names):
    """Return the seconds of a step with the fastest layout of each strategy, as the best of those named together."""
    found = (search(model, cluster, job, limits=strategy_named(name).limits, top=1).best for name in names)
    return min(best[0].step_seconds for best in found if best)


@pytest.fixture(scope="module")
def h100():
    return lambda nodes: from_catalogue(f"{nodes}xhgx-h100", Catalogue(None).profiles())


def test_one_node_with_nvlink_makes_pp_zero_and_tp_about_as_fast_and_without_it_pp_is_first(h100):
    """R3 and R4: 13 billion parameters on eight H100 with NVLink, and with 25 GB/s in place of it."""
    model, job = from_sizes({"params": 13 * GB}), TrainingSetup(2048, 256)
    linked = h100(1)
    times = [fastest(model, linked, job, *names) for names in (("1F1B",), ("ZeRO-3",), ("TP",))]
    assert max(times) / min(times) < 1.1
    slow = replace(linked.with_measurements(nvlink_gb_per_s=25), has_nvlink=False, domain_gpus=1)
    pipeline, zero, tensor = (fastest(model, slow, job, *names) for names in (("1F1B",), ("ZeRO-3",), ("TP",)))
    assert pipeline < zero < tensor


def test_several_nodes_choose_between_zero_and_3d_as_the_network_is_fast_or_slow(h100):
    """R7 and R8: 70 billion parameters on 128 H100 with 45 GB/s a GPU between nodes, and with 1.25."""
    model, job, fast = from_sizes({"params": 70 * GB}), TrainingSetup(4096, 1024), h100(16)
    assert fastest(model, fast, job, "ZeRO-3") / fastest(model, fast, job, "DP+PP+TP", "ZeRO+3D") < 1.1
    slow = fast.with_measurements(network_gb_per_s=1.25)
    assert fastest(model, slow, job, "ZeRO+3D") < 0.6 * fastest(model, slow, job, "ZeRO-3")
    assert fastest(model, slow, job, "ZeRO+3D") < fastest(model, slow, job, "DP+PP+TP")


def test_zero_costs_next_to_nothing_on_one_node_and_frees_memory(h100):
    """R2: one billion parameters on eight H100, DDP and the stages of ZeRO with the same micro-batch."""
    model, job = from_sizes({"params": GB}), TrainingSetup(2048, 256)
    alike = {"tp": (1,), "pp": (1,), "mbs": (8,), "recompute": ("none",), "offload": ("none",)}
    found = [search(model, h100(1), job, limits={**alike, "zero": (zero,)}, top=1).best[0] for zero in range(4)]
    assert max(e.step_seconds for e in found) / min(e.step_seconds for e in found) < 1.02
    assert [e.gpu_bytes for e in found] == sorted((e.gpu_bytes for e in found), reverse=True)

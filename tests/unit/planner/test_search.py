"""Search: every valid layout and no other, the same every time, and an answer where nothing fits."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from gpuops.catalogue import Catalogue
from gpuops.errors import LayoutError
from gpuops.layout import rule_violations
from gpuops.planner.estimate import estimates
from gpuops.planner.hardware import from_catalogue
from gpuops.planner.layout_space import candidates
from gpuops.planner.model import from_sizes
from gpuops.planner.search import other_jobs, search, ways_out
from gpuops.planner.strategies import strategy_named
from gpuops.planner.training import TrainingSetup

SMALL = from_sizes({"layers": 12, "hidden": 768, "heads": 12, "vocab": 50304}, "small")
LARGE = from_sizes({"layers": 80, "hidden": 8192, "heads": 64, "kv_heads": 8, "ffn": 28672, "vocab": 128256}, "large")


@pytest.fixture(scope="module")
def cluster():
    profiles = Catalogue(None).profiles()
    return lambda text: from_catalogue(text, profiles)


def rows(layouts):
    return [layouts.layout(row) for row in range(len(layouts))]


def test_every_layout_is_valid_and_none_is_there_twice(cluster):
    training = TrainingSetup(8192, 256)
    layouts = rows(candidates(LARGE, cluster("8xhgx-h100"), training))
    assert len(set(layouts)) == len(layouts) > 1000
    for layout in layouts:
        broken = [v for v in rule_violations(layout, gpus_per_domain=8, model=LARGE) if not v.warning]
        assert not broken, (layout, broken)
        assert layout.ranks == 64
        assert layout.global_batch == 256
        assert layout.vpp == 1 or layout.chunks % layout.pp == 0
        assert layout.zero <= 1 or layout.pp == 1


def test_no_valid_layout_is_missing(cluster):
    """Counted by brute force over the degrees of a small model on one node."""
    training = TrainingSetup(1024, 16)
    layouts = rows(candidates(SMALL, cluster("1xhgx-h100"), training, {"zero": (0,), "recompute": ("none",)}))
    found = {(x.dp, x.tp, x.pp, x.mbs, x.vpp) for x in layouts}
    degrees = itertools.product((1, 2, 4, 8), (1, 2, 4), (1, 2, 4), (1, 2, 4, 8, 16), (1, 2, 3, 6, 12))
    expected = {
        (dp, tp, pp, mbs, vpp)
        for dp, tp, pp, mbs, vpp in degrees
        if dp * tp * pp == 8
        and 16 % (mbs * dp) == 0
        and 12 % (pp * vpp) == 0
        and (vpp == 1 or (pp > 1 and 16 // (mbs * dp) % pp == 0))
    }
    assert found == expected


def test_every_micro_batch_that_divides_the_batch_is_searched(cluster):
    """24 sequences on eight GPUs are three each, so one micro-batch of three is faster than three of one."""
    model, machines, job = from_sizes({"params": 8 * 10**9}), cluster("1xhgx-h100"), TrainingSetup(1024, 24)
    assert set(candidates(model, machines, job).mbs.tolist()) == {1, 2, 3, 4, 6, 8, 12, 24}
    three = search(model, machines, job, limits={"mbs": (3,)}, top=1).best[0]
    assert search(model, machines, job, top=1).best[0].step_seconds <= three.step_seconds
    assert max(candidates(SMALL, machines, TrainingSetup(1024, 1024)).mbs.tolist()) == 64


def test_no_layout_with_these_nodes_and_this_batch_offers_fewer_nodes_or_another_batch(cluster):
    model, machines, job = from_sizes({"params": 7 * 10**9}), cluster("15xhgx-h100"), TrainingSetup(2048, 1024)
    with pytest.raises(LayoutError, match="a global batch of 1024 is not divisible by mbs·dp"):
        search(replace(model, layers=32), machines, job)
    nodes, batch = other_jobs(replace(model, layers=32), machines, job)
    assert (nodes.what, nodes.change) == ("nodes", "12 nodes")
    assert nodes.estimate.layout.ranks == 96
    assert (batch.what, batch.change) == ("batch", "--gbs 1080")
    assert (batch.estimate.layout.ranks, batch.estimate.layout.global_batch) == (120, 1080)


def test_the_best_is_the_fastest_that_fits(cluster):
    training, machines = TrainingSetup(8192, 256), cluster("8xhgx-h100")
    found = search(LARGE, machines, training)
    everything = estimates(LARGE, machines, training, candidates(LARGE, machines, training))
    most, size = 0.95 * machines.gpu.memory_bytes, machines.gpu.memory_bytes
    fitting = [each.step_seconds for each in everything if each.fits]
    assert all(each.gpu_bytes <= most for each in everything if each.fits)
    assert any(most < each.gpu_bytes <= size for each in everything), "some are too close to the limit"
    assert found.best[0].step_seconds == pytest.approx(min(fitting))
    assert (found.scored, found.fitting) == (len(everything), len(fitting))


def test_the_front_trades_speed_for_memory(cluster):
    front = search(LARGE, cluster("8xhgx-h100"), TrainingSetup(8192, 256)).front
    assert len(front) > 3
    for faster, leaner in itertools.pairwise(front):
        assert faster.step_seconds <= leaner.step_seconds
        assert faster.gpu_bytes > leaner.gpu_bytes


def test_the_same_answer_every_time_whatever_the_block(cluster, monkeypatch):
    first = search(LARGE, cluster("8xhgx-h100"), TrainingSetup(8192, 256))
    monkeypatch.setattr("gpuops.planner.search.BLOCK", 100)
    again = search(LARGE, cluster("8xhgx-h100"), TrainingSetup(8192, 256))
    assert [x.layout for x in first.best] == [x.layout for x in again.best]
    assert [x.layout for x in first.front] == [x.layout for x in again.front]


def test_limits_narrow_the_search_and_cannot_widen_it(cluster):
    training, machines = TrainingSetup(8192, 256), cluster("8xhgx-h100")
    assert {x.tp for x in rows(candidates(LARGE, machines, training, {"tp": (8,), "pp": (4,)}))} == {8}
    assert not len(candidates(LARGE, machines, training, {"tp": (16,)}))


def test_experts_are_searched_for_experts_only(cluster):
    layouts = candidates(LARGE, cluster("8xhgx-h100"), TrainingSetup(8192, 256))
    assert np.all(layouts.ep == 1)


def test_a_model_that_fits_nowhere_gets_three_answers(cluster):
    training, machines = TrainingSetup(2048, 64), cluster("1xhgx-h100")
    without_offload = {"offload": ("none",)}
    found = search(LARGE, machines, training, limits=without_offload)
    assert not found.best
    assert found.closest.gpu_bytes > machines.gpu.memory_bytes
    answers = {answer.what: answer for answer in ways_out(LARGE, machines, training)}
    assert set(answers) == {"gpu", "gpus", "offload"}
    assert all(answer.estimate.fits for answer in answers.values())
    assert answers["gpus"].change == "32 GPUs"


def test_the_answer_with_offload_is_of_the_framework_that_can(cluster):
    """Megatron-LM offloads no more than the optimizer; DeepSpeed's ZeRO 3 needs host memory only, or NVMe for more."""
    model, machines = from_sizes({"params": 70 * 10**9}), cluster("1xrtx-4090")
    job = TrainingSetup(2048, 8)
    assert not search(model, machines, job).best
    answers = {each.what: each for each in ways_out(model, machines, job)}
    assert answers["offload"].change == "--framework deepspeed, offload to host memory"
    assert answers["offload"].estimate.layout.offload == "cpu"
    small = {each.what: each for each in ways_out(model, replace(machines, host_bytes=1 << 30), job)}
    assert small["offload"].change.startswith("--framework deepspeed, offload to NVMe of 30 TB a node")
    assert small["offload"].estimate.layout.offload == "nvme"


def test_answers_keep_to_the_strategy(cluster):
    model = from_sizes({"params": 8 * 10**9, "layers": 32, "hidden": 4096, "heads": 32})
    ways = ways_out(model, cluster("1xhgx-h100"), TrainingSetup(8192, 64), strategy_named("DDP").limits)
    answers = {each.what: each.estimate for each in ways}
    assert answers.keys() == {"gpu", "gpus"}
    assert answers["gpu"].layout.zero == 0
    assert answers["gpus"] is None, "each GPU of DDP holds the whole model, however many there are"


@pytest.mark.parametrize(
    ("framework", "field", "allowed"),
    [
        ("deepspeed", "cp", {1}),
        ("deepspeed", "vpp", {1}),
        ("fsdp", "pp", {1}),
        ("fsdp", "zero", {2, 3}),
        ("fsdp", "ep", {1}),
        ("megatron", "vpp", {1, 2, 4, 5, 8, 10, 20, 40}),
    ],
)
def test_only_what_the_framework_can_run_is_searched(cluster, framework, field, allowed):
    layouts = candidates(LARGE, cluster("8xhgx-h100"), TrainingSetup(16384, 256, framework=framework))
    assert set(getattr(layouts, field).tolist()) == allowed


def test_a_batch_that_no_layout_can_divide_is_refused(cluster):
    with pytest.raises(LayoutError, match="give a larger --gbs"):
        search(SMALL, cluster("128xhgx-h100"), TrainingSetup(1024, 1))


@pytest.mark.parametrize(
    ("sequence", "tp", "cp"), [(2047, {1}, {1}), (2046, {1, 2}, {1}), (2**16, {1, 2, 4, 8}, {1, 2, 4, 8})]
)
def test_a_sequence_is_split_evenly_or_not_at_all(cluster, sequence, tp, cp):
    layouts = rows(candidates(LARGE, cluster("1xhgx-h100"), TrainingSetup(sequence, 256)))
    assert {layout.tp for layout in layouts} == tp
    assert {layout.cp for layout in layouts} == cp

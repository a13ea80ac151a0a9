"""HSDP: what a rank holds and sends follows from the size of its group, by hand; which groups the search has."""

from dataclasses import replace

import numpy as np
import pytest

from gpuops.catalogue import Catalogue
from gpuops.layout import parse_layout
from gpuops.planner.candidates import Candidates
from gpuops.planner.constants import PRIORS, MemoryConstants
from gpuops.planner.gpus import gpu_named
from gpuops.planner.hardware import ClusterSpec, from_catalogue
from gpuops.planner.layout_space import candidates, why_none
from gpuops.planner.memory import memory
from gpuops.planner.model import TransformerSpec, from_sizes
from gpuops.planner.model_config import read_config
from gpuops.planner.search import search
from gpuops.planner.shard_groups import shard_groups
from gpuops.planner.step_time import step_time
from gpuops.planner.strategies import strategy_named
from gpuops.planner.training import TrainingSetup

MODEL = TransformerSpec("gpt", 4, 1024, 8, 8, 4096, 0, head_dim=128, norm_vectors=0)
P = 4 * 12 * 1024**2
"""Parameters: four layers of twelve squares, and neither vocabulary nor norms."""
GPU = gpu_named("NVIDIA H100 80GB HBM3")
LINKS = ClusterSpec("4 nodes of 8", GPU, 32, 8, 8, 100.0, 10.0, nvlink_latency_us=0.0, network_latency_us=0.0)
"""NVLink of 100 GB/s and NICs of 10, without latencies."""
RAW = MemoryConstants(reserved_bytes=0, fragmentation=0, bucket_bytes=0)
SHOWN = replace(PRIORS, scale=1.0, zero3_unhidden=1.0, deepspeed_zero3=1.0)
"""Constants with which nothing is hidden that ZeRO 3 gathers."""


def held(text, job=None):
    return memory(MODEL, LINKS, job or TrainingSetup(512, 32), Candidates.of([parse_layout(text)]), RAW)


def sent(text, framework="fsdp", cluster=LINKS):
    """Return the seconds of data parallelism; nothing overlaps."""
    job = TrainingSetup(512, 64, framework=framework, dp_overlap=False)
    return step_time(MODEL, cluster, job, Candidates.of([parse_layout(text)]), SHOWN).data_parallel[0]


@pytest.mark.parametrize(("zero", "parts"), [(1, (2, 4, 12 / 8)), (2, (2, 4 / 8, 12 / 8)), (3, (2 / 8, 4 / 8, 12 / 8))])
def test_a_rank_holds_its_part_of_a_group_and_not_of_all_replicas(zero, parts):
    group, whole = held(f"dp=32,zero={zero},shard=8"), held(f"dp=32,zero={zero},shard=32")
    assert [getattr(group, name)[0] / P for name in ("parameters", "gradients", "optimizer")] == pytest.approx(parts)
    assert whole.total[0] == held(f"dp=32,zero={zero}").total[0] < group.total[0]


def test_context_parallel_ranks_share_states_too():
    assert held("dp=8,cp=4,zero=3,shard=2").parameters[0] == 2 * P / 8


def test_experts_are_shared_by_the_ranks_of_a_group_that_hold_the_same_ones():
    """Of 8 ranks that share states, each pair of neighbours has all experts between them: 4 hold the same ones."""
    sizes = {"hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8, "intermediate_size": 1024}
    experts = read_config(
        {"model_type": "mixtral", **sizes, "vocab_size": 1000, "num_local_experts": 4, "num_experts_per_tok": 2}, "moe"
    )
    job, layouts = TrainingSetup(512, 32), [parse_layout(f"dp=32,ep=2,zero=1,shard={n}") for n in (8, 32)]
    group, whole = memory(experts, LINKS, job, Candidates.of(layouts), RAW).optimizer
    parameters = experts.total_parameters() - experts.parameters()["experts"]
    own = experts.parameters()["experts"] / 2
    assert group == pytest.approx(12 * (parameters / 8 + own / 4))
    assert whole == pytest.approx(12 * (parameters / 32 + own / 16))


def test_each_group_offloads_its_own_copy():
    job = TrainingSetup(512, 32, framework="fsdp")
    whole, group = (held(f"dp=32,zero=3,offload=cpu{shard}", job).host[0] for shard in ("", ",shard=8"))
    assert (whole, group) == pytest.approx((18 * P / 4, 18 * P))


def test_a_group_scatters_and_gathers_over_nvlink_and_copies_reduce_their_part_over_a_nic():
    """ZeRO 1: 4 bytes scattered and 2 gathered of 7/8 over NVLink, then 2·3/4 of 4 bytes of an eighth over a NIC."""
    assert sent("dp=32,zero=1,shard=8,mbs=2", "megatron") == pytest.approx(
        6 * P * 7 / 8 / 100e9 + 2 * 3 / 4 * 4 * P / 8 / 10e9
    )
    assert sent("dp=32,zero=1,mbs=2", "megatron") == pytest.approx(6 * P * 31 / 32 / 80e9), "a ring over eight NICs"


GATHERED, SUMMED = 6 * P * 7 / 8 / 100e9, 2 * 3 / 4 * 2 * P / 8 / 10e9


@pytest.mark.parametrize(
    ("framework", "seconds"),
    [("fsdp", 2 * (GATHERED + SUMMED)), ("deepspeed", 2 * GATHERED + SUMMED), ("megatron", 2 * GATHERED + SUMMED)],
)
def test_fsdp2_sums_over_copies_for_each_micro_batch_and_others_once_a_step(framework, seconds):
    assert sent("dp=32,zero=3,shard=8,chunks=2", framework) == pytest.approx(seconds)


def test_a_group_of_all_replicas_is_the_same_as_none():
    for zero in (1, 2, 3):
        assert sent(f"dp=32,zero={zero},shard=32,chunks=2") == sent(f"dp=32,zero={zero},chunks=2")


def test_copies_wait_for_each_layer_of_fsdp2():
    slow = replace(LINKS, network_latency_us=100.0)
    extra = sent("dp=32,zero=3,shard=8,chunks=2", cluster=slow) - sent("dp=32,zero=3,shard=8,chunks=2")
    assert extra == pytest.approx(2 * 4 * 100e-6 * np.log2(4))


@pytest.fixture(scope="module")
def nodes():
    return from_catalogue("4xhgx-h100", Catalogue(None).profiles())


LARGE = from_sizes({"layers": 32, "hidden": 4096, "heads": 32, "ffn": 16384, "vocab": 50304}, "8b")


@pytest.mark.parametrize(
    ("gpus", "per_node", "domain", "groups"),
    [(32, 8, 8, (8, 16)), (64, 4, 1, (4, 8, 16, 32)), (288, 4, 72, (4, 8, 72, 144)), (8, 8, 8, ())],
)
def test_groups_are_nodes_domains_and_doublings_that_no_domain_boundary_cuts(nodes, gpus, per_node, domain, groups):
    assert shard_groups(replace(nodes, gpus=gpus, gpus_per_node=per_node, domain_gpus=domain)) == groups


def test_groups_of_the_search_are_whole_nodes_whatever_tp_and_cp_are(nodes):
    found = candidates(LARGE, nodes, TrainingSetup(8192, 64, framework="fsdp"))
    hybrid = found.take(found.shard > 0)
    assert set((hybrid.shard * hybrid.tp * hybrid.cp).tolist()) == {8, 16}
    assert set(hybrid.tp.tolist()) == {1, 2, 4, 8}
    assert (hybrid.dp % hybrid.shard == 0).all()
    assert (hybrid.zero > 0).all()


def test_a_group_of_any_size_is_compared_if_it_is_asked_for(nodes):
    found = candidates(LARGE, nodes, TrainingSetup(8192, 64, framework="fsdp"), {"shard": (4,), "tp": (1,)})
    assert set(found.shard.tolist()) == {4}
    whole = candidates(LARGE, nodes, TrainingSetup(8192, 64, framework="fsdp"), {"shard": (0,)})
    assert set(whole.shard.tolist()) == {0}


@pytest.mark.parametrize(
    ("framework", "limits", "why"),
    [
        ("fsdp", {"dp": (32,), "shard": (3,)}, "shard=3 does not divide dp=32"),
        ("fsdp", {"dp": (32,), "shard": (32,)}, "shard=32 is all of dp=32; write shard=0, or omit it"),
        ("megatron", {"dp": (32,), "shard": (8,), "zero": (0,)}, "but zero is 0; omit shard, or add zero=3"),
        ("megatron", {"dp": (4,), "tp": (8,), "shard": (1,), "zero": (1,)}, "partition; omit shard, and use zero=0"),
        ("deepspeed", {"dp": (16,), "tp": (2,), "shard": (8,), "zero": (3,)}, "only with zero=3, dp alone"),
        ("deepspeed", {"dp": (32,), "shard": (8,), "zero": (1,)}, "only with zero=3, dp alone"),
    ],
)
def test_what_hsdp_cannot_have_is_refused_with_the_reason(nodes, framework, limits, why):
    assert why in why_none(LARGE, nodes, TrainingSetup(2048, 64, framework=framework), limits)


@pytest.mark.parametrize(
    ("network", "fsdp2", "hsdp", "copies"), [(45, (3.7, 51.5), (3.6, 66.1), 2), (5, (4.7, 43.8), (4.3, 67.9), 16),
                                             (1.25, (5.8, 43.8), (5.1, 60.2), 16)]
)  # fmt: skip
def test_figures_of_the_page_of_strategies(nodes, network, fsdp2, hsdp, copies):
    model = from_sizes({"params": 8 * 10**9})
    cluster = replace(nodes, gpus=128).with_measurements(network_gb_per_s=network)

    def best(name):
        strategy = strategy_named(name)
        job = strategy.applied_to(TrainingSetup(4096, 1024), 16)
        return search(model, cluster, job, limits=strategy.limits, top=1).best[0]

    found = [best(name) for name in ("FSDP2", "HSDP")]
    figures = [(round(each.step_seconds, 1), round(each.gpu_bytes / 2**30, 1)) for each in found]
    assert (figures, found[1].layout.dp_replicate) == ([fsdp2, hsdp], copies)


def test_a_slow_network_makes_hsdp_faster_than_sharding_over_all(nodes):
    job = TrainingSetup(2048, 64, framework="fsdp")
    limits = {"tp": (1,), "cp": (1,), "zero": (3,)}
    slow = nodes.with_measurements(network_gb_per_s=1.0)
    best = search(LARGE, slow, job, limits=limits, top=1).best[0]
    whole = search(LARGE, slow, job, limits={**limits, "shard": (0,)}, top=1).best[0]
    assert best.layout.shard == 8
    assert best.step_seconds < 0.8 * whole.step_seconds
    assert best.gpu_bytes > whole.gpu_bytes

"""The time of a step follows from the layout in the directions, and by the laws, that pipelines and rings have."""

import numpy as np
import pytest

from gpuops.layout import Layout
from gpuops.planner.candidates import Candidates
from gpuops.planner.constants import PRIORS
from gpuops.planner.estimate import estimates
from gpuops.planner.hardware import from_catalogue
from gpuops.planner.model import TransformerSpec
from gpuops.planner.step_time import CAUSES, step_time
from gpuops.planner.training import TrainingSetup
from gpuops.profile import known

CLUSTER = from_catalogue("16xdgx-a100", {profile.name: profile for profile in known()})
GPT = TransformerSpec("gpt", 96, 12288, 96, 96, 4 * 12288, 51200, head_dim=128)
TRAINING = TrainingSetup(2048, 128)


def timed(training=TRAINING, cluster=CLUSTER, model=GPT, **columns):
    return step_time(model, cluster, training, Candidates.product(**columns))


def test_the_bubble_is_that_of_1f1b_and_shrinks_with_interleaving():
    columns = {"tp": 8, "pp": 8, "chunks": 64}
    plain, interleaved = timed(**columns), timed(**columns, vpp=4)
    work = sum(getattr(plain, cause)[0] for cause in ("gemm", "attention", "elementwise", "tensor_parallel"))
    assert plain.bubble[0] == pytest.approx((work + plain.logits[0]) * 7 / 64)
    assert interleaved.bubble[0] == pytest.approx(plain.bubble[0] / 4)


def test_stages_of_one_node_send_over_its_own_links_and_those_of_several_through_nics():
    node = CLUSTER.with_gpus(8)
    job = {"model": GPT, "tp": 2, "pp": 4, "chunks": 64}
    slow_nics = node.with_measurements(network_gb_per_s=node.network_gb_per_s / 100)
    assert timed(cluster=node, **job).p2p[0] == timed(cluster=slow_nics, **job).p2p[0]
    slow_links = node.with_measurements(nvlink_gb_per_s=node.nvlink_gb_per_s / 100)
    assert timed(cluster=slow_links, **job).p2p[0] > 10 * timed(cluster=node, **job).p2p[0]
    across = {**job, "dp": 4}
    assert timed(cluster=slow_links, **across).p2p[0] == timed(cluster=node, **across).p2p[0]
    assert timed(cluster=slow_nics, **across).p2p[0] > 10 * timed(cluster=node, **across).p2p[0]


def test_full_recomputation_costs_a_third_more_products():
    none, full = timed(tp=8, pp=8, chunks=64), timed(tp=8, pp=8, chunks=64, recompute=2)
    assert full.gemm[0] == pytest.approx(none.gemm[0] * 4 / 3)
    assert full.tensor_parallel[0] == pytest.approx(none.tensor_parallel[0] * 6 / 4)


def test_products_never_exceed_the_measured_rate():
    flops = 6 * 96 * 12 * 12288**2 * 2048 * 64 / 64
    seconds = timed(tp=8, pp=8, chunks=64).gemm[0]
    assert flops / seconds < 312e12 * 0.869


def test_tensor_parallelism_across_nodes_costs_more_than_within():
    inside, outside = timed(tp=8), timed(tp=16)
    assert outside.tensor_parallel[0] > 1.4 * inside.tensor_parallel[0]


def test_a_sick_link_costs_data_parallelism_what_its_bandwidth_says():
    columns = {"tp": 8, "pp": 8, "dp": 2, "chunks": 1}
    training = TrainingSetup(2048, 2, dp_overlap=False)
    sick = CLUSTER.with_measurements(network_gb_per_s=CLUSTER.network_gb_per_s / 2)
    healthy, ill = timed(training, **columns), timed(training, sick, **columns)
    assert ill.data_parallel[0] == pytest.approx(2 * healthy.data_parallel[0], rel=0.01)
    assert ill.gemm[0] == healthy.gemm[0]


def test_overlap_hides_gradients_but_never_all():
    columns = {"tp": 8, "pp": 8, "dp": 2, "chunks": 8, "zero": 1}
    hidden, shown = timed(**columns), timed(TrainingSetup(2048, 128, dp_overlap=False), **columns)
    assert 0 < hidden.data_parallel[0] < shown.data_parallel[0]


def test_deepspeed_zero_3_of_2021_is_slower_than_fsdp():
    columns = {"dp": 128, "zero": 3, "recompute": 2}
    fsdp, deepspeed = (timed(TrainingSetup(2048, 128, framework=name), **columns) for name in ("fsdp", "deepspeed"))
    assert deepspeed.data_parallel[0] > 2 * fsdp.data_parallel[0]


def test_experts_far_away_cost_more():
    moe = TransformerSpec(
        "moe", 24, 2048, 16, 16, 8192, 32000, head_dim=128, gated=True, experts=64, experts_per_token=4, expert_ffn=1024
    )
    near, far = timed(model=moe, dp=64, ep=8, mbs=4), timed(model=moe, dp=64, ep=64, mbs=4)
    assert far.experts[0] > near.experts[0] > 0
    assert timed(dp=8).experts[0] == 0


def test_one_layout_takes_as_long_alone_as_among_many():
    columns = {"tp": [1, 8, 4], "pp": [1, 8, 4], "zero": [3, 0, 1], "dp": [8, 2, 2], "cp": [1, 1, 2], "chunks": 8}
    many = timed(**columns).total
    alone = [
        timed(**{k: np.atleast_1d(v)[min(i, np.size(v) - 1)] for k, v in columns.items()}).total[0] for i in range(3)
    ]
    assert list(many) == alone


def test_an_estimate_says_where_the_time_goes():
    layout = Layout(dp=2, pp=8, tp=8, chunks=64, recompute="full", sequence_parallel=True)
    estimate = estimates(GPT, CLUSTER, TRAINING, Candidates.of([layout]))[0]
    assert estimate.layout == layout
    assert tuple(estimate.seconds) == CAUSES
    assert estimate.limit == "gemm"
    assert estimate.step_seconds == pytest.approx(
        timed(dp=2, pp=8, tp=8, chunks=64, recompute=2, sequence_parallel=True).total[0]
    )
    assert estimate.tokens_per_second == pytest.approx(128 * 2048 / estimate.step_seconds)
    assert 0.3 < estimate.mfu < 0.6
    assert estimate.mfu * 312 == pytest.approx(estimate.tflops)
    assert estimate.fits


def test_calibration_scales_the_whole_step():
    from dataclasses import replace

    slower = step_time(GPT, CLUSTER, TRAINING, Candidates.product(tp=8), replace(PRIORS, scale=1.1))
    assert slower.total[0] == pytest.approx(1.1 * timed(tp=8).total[0])


def test_zero_2_scatters_gradients_of_every_micro_batch_and_zero_1_once():
    """The last micro-batch of ZeRO 2 costs what that of ZeRO 1 does; each before it scatters its gradients, too."""
    training = TrainingSetup(2048, 128, dp_overlap=False)
    one, two = (
        timed(training, tp=8, dp=16, chunks=[1, 4, 8], zero=zero).data_parallel - timed(training, tp=8).data_parallel[0]
        for zero in (1, 2)
    )
    assert one == pytest.approx([one[0]] * 3), "ZeRO 1 keeps whole gradients up to the last micro-batch"
    assert two[0] == pytest.approx(one[0])
    assert (two[2] - two[0]) / 7 == pytest.approx((two[1] - two[0]) / 3)
    scattered = 4 * (15 / 16) * (GPT.total_parameters() / 8) / (CLUSTER.network_gb_per_s * 1e9)
    assert (two[1] - two[0]) / 3 == pytest.approx(scattered, rel=0.01), "gradients in fp32, 15 of 16 parts"


def test_zero_2_with_a_pipeline_reduces_once_as_those_who_publish_it():
    layouts = timed(tp=8, pp=8, dp=2, chunks=8, zero=[1, 2])
    assert layouts.data_parallel[0] == layouts.data_parallel[1]

"""When a job finishes with each number of spares, against the closed forms and the search."""

import pytest

from gpuops.catalogue import Catalogue
from gpuops.planner.finishing import finishes
from gpuops.planner.goodput import DAY, ClusterJob, FailureRate, goodput
from gpuops.planner.hardware import from_catalogue
from gpuops.planner.model import from_sizes
from gpuops.planner.search import search
from gpuops.planner.training import TrainingSetup

MODEL = from_sizes({"layers": 32, "hidden": 4096, "heads": 32, "vocab": 32000})
CLUSTER = from_catalogue("16xhgx-h100", Catalogue(None).profiles())
LIMITS = {"zero": (1,), "recompute": ("none",), "offload": ("none",)}
TOKENS = 1e12


def ends(rate, batch=1024, cluster=CLUSTER, **times):
    job = ClusterJob(cluster.gpus, cluster.gpus_per_node, FailureRate(rate, "test"), **times)
    return finishes(MODEL, cluster, TrainingSetup(2048, batch), job, TOKENS, LIMITS)


def test_the_first_to_finish_comes_first_and_its_days_are_the_work_by_what_trains():
    found = ends(2e-3)
    assert [each.days for each in found] == sorted(each.days for each in found)
    assert {each.spares for each in found} == set(range(len(found)))
    for each in found:
        assert each.nodes == 16 - each.spares
        assert each.estimate.layout.ranks == 8 * each.nodes
        job = ClusterJob(8 * each.nodes, 8, FailureRate(2e-3, "test"), spares=each.spares)
        assert each.goodput == goodput(job)
        assert each.days == pytest.approx(TOKENS / each.estimate.tokens_per_second / each.goodput.trained / DAY)
    best = search(MODEL, CLUSTER, TrainingSetup(2048, 1024), limits=LIMITS, top=1).best[0]
    assert next(each for each in found if not each.spares).estimate.layout == best.layout


def test_spares_pay_where_nodes_fail_and_repairs_are_long():
    assert ends(0.0)[0].spares == 0
    assert ends(2e-3)[0].spares > 0
    assert ends(2e-3, repair_seconds=600)[0].spares == 0
    rare, often = ends(2e-4), ends(4e-3)
    assert rare[0].spares < often[0].spares
    assert rare[0].days < often[0].days


def test_fewer_nodes_get_the_nearest_batch_that_they_can_share():
    found = {each.spares: each.estimate.layout.global_batch for each in ends(2e-3)}
    assert (found[0], found[1], found[2]) == (1024, 1080, 1008)


def test_a_node_alone_has_no_spare():
    (only,) = ends(2e-3, 64, from_catalogue("1xhgx-h100", Catalogue(None).profiles()))
    assert (only.nodes, only.spares) == (1, 0)

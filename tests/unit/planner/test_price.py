"""The cost of a slow part, computed by hand for one layout of one job."""

import pytest

from gpuops.catalogue import Catalogue
from gpuops.errors import LayoutError
from gpuops.layout import parse_layout
from gpuops.planner.candidates import Candidates
from gpuops.planner.hardware import from_catalogue
from gpuops.planner.model import from_sizes
from gpuops.planner.price import SlowPart, prices, slowed
from gpuops.planner.step_time import step_time
from gpuops.planner.training import TrainingSetup

MODEL = from_sizes({"layers": 32, "hidden": 4096, "heads": 32, "vocab": 32000})
CLUSTER = from_catalogue("4xhgx-h100", Catalogue(None).profiles())
TRAINING = TrainingSetup(2048, 64)
LAYOUT = parse_layout("dp=8,tp=4,mbs=1,chunks=8,zero=1")
RAIL = SlowPart("gpu06", "mlx5_6", 22.5, 45.0)
GPU = SlowPart("gpu02", "gpu3", 300.0, 400.0)
ALL_RAILS = SlowPart("gpu05", "", 44.0, 45.0)


def seconds(cluster):
    (total,) = step_time(MODEL, cluster, TRAINING, Candidates.of([LAYOUT])).total
    return float(total)


def test_a_slow_nic_slows_what_crosses_nodes_and_a_slow_gpu_what_stays_inside():
    slow = slowed(CLUSTER, [RAIL, ALL_RAILS, GPU])
    assert slow.network_gb_per_s == pytest.approx(CLUSTER.network_gb_per_s / 2)
    assert slow.nvlink_gb_per_s == pytest.approx(CLUSTER.nvlink_gb_per_s * 0.75)
    assert "what is left of gpu06 mlx5_6" in slow.sources["network_gb_per_s"]
    assert slowed(CLUSTER, []) == CLUSTER


def test_each_part_is_priced_alone_the_dearest_first():
    found = prices(MODEL, CLUSTER, TRAINING, LAYOUT, [ALL_RAILS, RAIL, GPU], ("gpu05", "gpu02"))
    assert {price.part for price in found} == {ALL_RAILS, RAIL, GPU}
    assert [price.fraction for price in found] == sorted((price.fraction for price in found), reverse=True)
    by_part = {price.part: price for price in found}
    assert by_part[RAIL].step_seconds == pytest.approx(seconds(slowed(CLUSTER, [RAIL])))
    assert by_part[RAIL].healthy_seconds == pytest.approx(seconds(CLUSTER))
    assert by_part[RAIL].fraction > by_part[ALL_RAILS].fraction > 0
    assert {price.part.node: price.is_used for price in found} == {"gpu06": False, "gpu05": True, "gpu02": True}


def test_a_part_as_fast_as_its_peers_costs_nothing_and_a_dead_one_has_no_price():
    (price,) = prices(MODEL, CLUSTER, TRAINING, LAYOUT, [SlowPart("gpu06", "mlx5_6", 46.0, 45.0)], ())
    assert price.fraction == 0
    with pytest.raises(LayoutError, match="gpu06 mlx5_6: a bandwidth must be above 0"):
        SlowPart("gpu06", "mlx5_6", 0.0, 45.0)

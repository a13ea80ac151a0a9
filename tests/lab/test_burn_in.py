"""A burn-in of the lab over real SSH: all_reduce_perf runs repeatedly while the GPUs are sampled."""

import threading
import time

import pytest

from gpuops.cancellation import CancelToken
from gpuops.cluster import Cluster
from gpuops.collective.request import MeasureRequest
from gpuops.operations import measure
from gpuops.operations.burn_in import burn
from gpuops.probes.nvidia.burn_in import burn_in
from gpuops.probes.nvidia.dcgm_diag import dcgm_diag
from gpuops.probing import Unknown

pytestmark = pytest.mark.long


@pytest.fixture
def burnt(lab):
    """Return a function that runs a burn-in of ``seconds`` and returns the facts of each host."""

    def burnt(seconds):
        with Cluster.open(lab.folder / "inventory.yml", total_timeout=600.0) as cluster:
            work = cluster._workspace("burn_in", CancelToken())
            gathered = work.nodes.gather(measure.probes(work))
            assert not gathered.excluded
            return burn(work, MeasureRequest(engine="nccl-tests"), gathered.values, seconds)

    return burnt


def test_nodes_are_under_load_for_as_long_as_was_asked_and_are_watched(burnt):
    began = time.monotonic()
    result = burnt(3.0)
    assert time.monotonic() - began > 3.0
    assert result.excluded == {}
    for facts in result.facts.values():
        value = facts[burn_in]
        assert not isinstance(value, Unknown), value
        assert len(value.gb_per_s) >= 1
        assert value.troubles == value.grown == value.xids == ()
        assert [gpu.gpu for gpu in value.gpus] == list(range(8))
        assert all(gpu.loaded and gpu.most_watts > 500 for gpu in value.gpus)
        assert not isinstance(facts[dcgm_diag], Unknown), facts[dcgm_diag]


def test_a_node_that_is_not_well_takes_no_part(burnt, plant):
    plant("gpu02:gpu3:lost")
    result = burnt(1.0)
    assert result.excluded["gpu02"].kind == "unhealthy"
    assert all(check.startswith("gpu-") for check in result.excluded["gpu02"].checks)
    assert result.facts["gpu02"][burn_in].skipped_on_purpose
    assert not isinstance(result.facts["gpu01"][burn_in], Unknown)


def test_what_fails_only_under_load_is_told_of_the_card_that_it_is(burnt, plant):
    late = threading.Timer(4.0, plant, ["gpu02:gpu3:ecc-uncorrectable=2"])
    late.start()
    facts = burnt(8.0).facts
    late.join()
    assert facts["gpu01"][burn_in].grown == ()
    assert any(line.startswith("gpu3: ecc_uncorrected_volatile 0 → 2") for line in facts["gpu02"][burn_in].grown)
    (xid,) = facts["gpu02"][burn_in].xids
    assert "Xid 48" in xid

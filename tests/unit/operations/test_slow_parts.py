"""What measurements blamed and how a plan takes it: as a slow part with its bandwidths, or as one line about it."""

import datetime as dt
from types import SimpleNamespace

import pytest

from gpuops.catalogue import Catalogue
from gpuops.operations.past.recall import note_fabric
from gpuops.operations.past.slow_parts import slow_parts
from gpuops.operations.planning.machines import as_measured
from gpuops.planner.hardware import from_catalogue
from gpuops.planner.price import SlowPart
from gpuops.results.kept import ALL_GPUS, ALL_RAILS, ALL_REDUCE, blamed_figures
from gpuops.store import Runs
from gpuops.store.records import FLEET, FindingKey, RunRecord, SeenFinding, SeenLink, Visit

NOW = dt.datetime.now(dt.timezone.utc)


@pytest.fixture
def work(tmp_path):
    notes = []
    return SimpleNamespace(project=SimpleNamespace(store_path=tmp_path / "state.db"), note=notes.append, notes=notes)


def blamed(node, part, kind="slow"):
    return SeenFinding(FindingKey(node, ALL_REDUCE, part, kind), "fail", "fail", "all-reduce")


def figures(**rates):
    pairs = [zip(blamed_figures(part), rates_of_part, strict=True) for part, rates_of_part in rates.items()]
    return {name: rate for pair in pairs for name, rate in pair}


def save(work, node, *findings, verb="allreduce", links=(), fleet=(), **rates):
    """Save a run that blamed parts of a node with what they and their peers reached, and return what still holds."""
    visit = Visit("fail", checks={ALL_REDUCE: "fail"}, findings=findings, figures=figures(**rates))
    with Runs(work.project.store_path) as runs:
        runs.save(RunRecord(verb, NOW, 1.0, "failed", "alice", nodes={node: visit}, links=links, fleet=fleet))
        return runs.findings(is_open=True)


def test_slow_part_of_a_node_is_priced(work):
    known = save(work, "n3", blamed("n3", "mlx5_1"), mlx5_1=(24.0, 48.0))
    assert slow_parts(work, known, {"n3"}) == [SlowPart("n3", "mlx5_1", 24.0, 48.0)]
    assert slow_parts(work, known, {"n1"}) == []
    assert work.notes == []


def test_slow_node_is_slow_between_nodes_or_inside_or_both(work):
    known = save(work, "n3", blamed("n3", "node"), **{ALL_RAILS: (24.0, 48.0), ALL_GPUS: (300.0, 450.0)})
    rails, inside = slow_parts(work, known, {"n3"})
    assert (rails, rails.is_inside) == (SlowPart("n3", "", 24.0, 48.0), False)
    assert (inside, inside.is_inside) == (SlowPart("n3", "gpus", 300.0, 450.0), True)


def test_part_that_a_later_run_saw_without_measuring_it_keeps_its_price(work):
    save(work, "n3", blamed("n3", "mlx5_1"), mlx5_1=(24.0, 48.0))
    known = save(work, "n3", blamed("n3", "mlx5_1"), verb="validate")
    assert slow_parts(work, known, {"n3"}) == [SlowPart("n3", "mlx5_1", 24.0, 48.0)]


def test_part_without_a_bandwidth_is_noted_in_one_line(work):
    known = save(work, "n3", blamed("n3", "mlx5_1", "hang"))
    assert slow_parts(work, known, {"n3"}) == []
    (note,) = work.notes
    assert f"the all-reduce of {NOW:%Y-%m-%d %H:%M} (run 1) blamed n3 mlx5_1 (hang) without a bandwidth" in note


def test_part_of_the_fabric_is_noted_in_one_line(work):
    note_fabric(work, save(work, "n3", fleet=(blamed(FLEET, "leaf:L1"),)))
    (note,) = work.notes
    assert note.endswith("blamed leaf:L1: jobs that cross it may be slow, which no estimate includes")


CLUSTER = from_catalogue("3xhgx-h100", Catalogue(None).profiles())
NODES = ("n1", "n2", "n3")
PAIRS = (("n1", "n2"), ("n1", "n3"), ("n2", "n3"))


@pytest.mark.parametrize(("rail", "gb_per_s"), [(0, 48.0), (None, 8 * 48.0)])
def test_network_of_a_plan_is_as_measured_on_rails_or_on_whole_nodes(work, rail, gb_per_s):
    save(work, "n1", links=[SeenLink(a, b, rail, gb_per_s) for a, b in PAIRS])
    machines = as_measured(work, CLUSTER, NODES, {}, ())
    assert machines.cluster.network_gb_per_s == 48.0
    assert machines.cluster.sources["network_gb_per_s"] == "measured here: median of 3 pairs"


def test_slow_part_counts_once_even_if_most_pairs_include_it(work):
    links = [SeenLink(a, b, 0, 24.0 if "n3" in (a, b) else 48.0) for a, b in PAIRS]
    known = save(work, "n3", blamed("n3", "mlx5_1"), links=links, mlx5_1=(24.0, 48.0))
    machines = as_measured(work, CLUSTER, NODES, {}, known)
    assert machines.healthy.network_gb_per_s == 48.0
    assert machines.cluster.network_gb_per_s == 24.0

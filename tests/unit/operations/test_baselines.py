"""Baselines: this fleet's own figures, without what is old, and without measurements of something else."""

import datetime as dt
from types import SimpleNamespace

import pytest

from gpuops.operations.past.baselines import PAIR, RAIL, WITHIN, measured_here
from gpuops.store import Runs
from gpuops.store.records import RunRecord, SeenLink, Visit

NOW = dt.datetime.now(dt.timezone.utc)


@pytest.fixture
def work(tmp_path):
    said = []
    return SimpleNamespace(project=SimpleNamespace(store_path=tmp_path / "state.db"), note=said.append, said=said)


def measure(work, days_ago, rates, level="", links=()):
    nodes = {node: Visit("pass", figures={"node.gb_per_s": rate}) for node, rate in rates.items()}
    at = NOW - dt.timedelta(days=days_ago)
    with Runs(work.project.store_path) as runs:
        runs.save(RunRecord("allreduce", at, 1.0, "ok", "alice", level=level, nodes=nodes, links=links))


def test_baseline_is_the_median_of_the_latest_figures(work):
    measure(work, 9, {"n1": 100.0, "n2": 100.0, "n3": 100.0})
    measure(work, 2, {"n1": 470.0, "n2": 480.0, "n3": 200.0})
    own = measured_here(work, ["n1", "n2", "n3"])[WITHIN]
    assert (own.gb_per_s, own.count) == (470.0, 3)
    assert own.spread_gb_per_s == pytest.approx(1.4826 * 10)
    assert (NOW - own.newest).days == 2


def test_old_figures_weigh_nothing(work):
    measure(work, 91, {"n1": 470.0, "n2": 480.0, "n3": 475.0})
    assert measured_here(work, ["n1", "n2", "n3"]) == {}


def test_two_nodes_are_no_baseline(work):
    measure(work, 1, {"n1": 470.0, "n2": 480.0})
    assert measured_here(work, ["n1", "n2"]) == {}


def test_other_nodes_and_other_loads_do_not_count(work):
    measure(work, 1, {"n1": 470.0, "n2": 480.0, "other": 10.0})
    assert measured_here(work, ["n1", "n2"]) == {}
    measure(work, 0, {"n1": 40.0, "n2": 40.0, "n3": 40.0}, level="all_gather of 8 bytes")
    assert measured_here(work, ["n1", "n2", "n3"]) == {}


def test_rails_and_pairs_have_baselines_of_their_own(work):
    rails = [SeenLink("n1", "n2", rail, 48.0 + rail) for rail in range(3)]
    pairs = [SeenLink(a, b, None, 390.0) for a, b in (("n1", "n2"), ("n2", "n3"), ("n1", "n3"))]
    measure(work, 1, {}, links=(*rails, *pairs))
    found = measured_here(work, ["n1", "n2", "n3"])
    assert {kind: each.gb_per_s for kind, each in found.items()} == {RAIL: 49.0, PAIR: 390.0}


def test_store_that_cannot_be_read_is_noted(work):
    work.project.store_path.write_text("not a database, but some other file")
    assert measured_here(work, ["n1"]) == {}
    assert "not a gpuops store" in work.said[0]

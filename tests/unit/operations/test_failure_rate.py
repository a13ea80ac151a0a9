"""The failure rate of a fleet: what began to fail on nodes that were watched, or else a published rate."""

import datetime as dt
from types import SimpleNamespace

import pytest

from gpuops.operations.past.failures import failure_rate
from gpuops.planner.goodput import LLAMA_3
from gpuops.store import Runs
from gpuops.store.records import FindingKey, RunRecord, SeenFinding, Visit

NOW = dt.datetime.now(dt.timezone.utc)
NODES = ["n1", "n2", "n3"]


@pytest.fixture
def work(tmp_path):
    said = []
    return SimpleNamespace(
        project=SimpleNamespace(store_path=tmp_path / "state.db"),
        nodes=SimpleNamespace(source="asked"),
        note=said.append,
        said=said,
    )


def validate(work, days_ago, *failing, check="gpu-lost"):
    """Save a run that saw all nodes, of which ``failing`` fail a check."""
    seen = {}
    for node in NODES:
        key = FindingKey(node, check, "gpu3", "lost")
        found = (SeenFinding(key, "fail", "isolate", "gone"),) if node in failing else ()
        status = "fail" if found else "pass"
        seen[node] = Visit(status, boot="b", checks={check: status}, findings=found)
    with Runs(work.project.store_path) as runs:
        runs.save(RunRecord("validate", NOW - dt.timedelta(days=days_ago), 1.0, "ok", "alice", nodes=seen))


def test_failures_since_the_first_run_over_the_days_of_all_gpus(work):
    for days_ago, failing in [(100, ("n1",)), (80, ()), (60, ("n1", "n2")), (50, ()), (30, ("n2",)), (20, ()), (0, ())]:
        validate(work, days_ago, *failing)
    rate = failure_rate(work, NODES, 8)
    assert rate.per_gpu_day == pytest.approx(3 / (3 * 8 * 100), rel=1e-3)
    assert rate.source == "3 failures of 24 GPUs in 100 days, in the store"


@pytest.mark.parametrize(
    ("runs", "check"),
    [
        ([(100, ()), (60, ("n1", "n2")), (0, ())], "gpu-lost"),
        ([(100, ("n1", "n2", "n3")), (60, ()), (0, ())], "gpu-lost"),
        ([(100, ()), (60, ("n1", "n2", "n3")), (0, ())], "drift"),
        ([(100, ()), (60, ("n1", "n2")), (59.5, ()), (59, ("n1", "n2")), (0, ())], "gpu-lost"),
    ],
    ids=["two are too few", "failed from the first run on", "judged over time", "one repair that did not hold"],
)
def test_without_three_failures_the_rate_is_a_published_one(work, runs, check):
    for days_ago, failing in runs:
        validate(work, days_ago, *failing, check=check)
    assert failure_rate(work, NODES, 8) == LLAMA_3


def test_a_catalogue_and_saved_answers_have_no_record_and_a_broken_store_is_said(work):
    assert failure_rate(work, [], 8) == LLAMA_3
    work.project.store_path.write_text("something else, and long enough to be read as a header of a database" * 20)
    assert failure_rate(work, NODES, 8) == LLAMA_3
    assert "how often these nodes failed is unknown: " in work.said[0]
    work.nodes.source = "saved"
    assert failure_rate(work, NODES, 8) == LLAMA_3

"""gpuops plan on the lab: it uses what was measured, and says what a sick part costs."""

import datetime as dt
import json
import re

import pytest
from tests.program import run_gpuops

from gpuops.results.recorded import blamed_figures
from gpuops.store import Runs
from gpuops.store.records import FindingKey, RunRecord, SeenFinding, SeenLink, Visit

SIZES = "layers=32,hidden=4096,heads=32,vocab=32000"


@pytest.fixture
def gpuops(lab, tmp_path):
    """Return a function that runs a verb on the lab."""
    return lambda verb, *words: run_gpuops(verb, "-i", lab.folder / "inventory.yml", *words, cwd=tmp_path)


@pytest.fixture
def plan(gpuops):
    """Return a function that plans the same model on the same batch, and returns the document and stderr."""

    def run(*words):
        done = gpuops("plan", "--params", SIZES, "--gbs", "96", "--seq", "2048", "--json", *words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), done.stderr

    return run


@pytest.mark.long
def test_a_slow_rail_has_its_price(gpuops, plan, plant):
    gpuops("allreduce", "--scope", "rail")
    before, _ = plan()
    assert before["prices"] == []
    plant("gpu02:mlx5_3:slow-duplex=35")
    gpuops("allreduce", "--scope", "rail")
    left_out, err = plan()
    (price,) = left_out["prices"]
    assert (price["node"], price["part"], price["used"]) == ("gpu02", "mlx5_3", False)
    assert price["gb_per_s"] < 0.7 * price["expected_gb_per_s"]
    assert "excluded: gpu02: the all-reduce of " in err
    used, _ = plan("--include-unhealthy")
    (price,) = used["prices"]
    assert price["used"]
    ratio = price["gb_per_s"] / price["expected_gb_per_s"]
    assert used["cluster"]["network_gb_per_s"] == pytest.approx(ratio * before["cluster"]["network_gb_per_s"], rel=0.1)
    assert used["layouts"][0]["step_seconds"] == pytest.approx(price["step_seconds"])
    assert price["step_seconds"] > price["healthy_seconds"]


def saved(lab, *parts):
    """Save an all-reduce that found rails of 48 GB/s, and these parts of gpu02 at the GB/s with them."""
    now = dt.datetime.now(dt.timezone.utc) - dt.timedelta(days=3)
    keys = [FindingKey("gpu02", "all-reduce-bandwidth", part, "slow") for part, _ in parts]
    found = tuple(SeenFinding(key, "fail", "fail", "all-reduce: slow") for key in keys)
    figures = {
        name: value for part, rate in parts for name, value in zip(blamed_figures(part), (rate, 48.0), strict=True)
    }
    status = "fail" if found else "pass"
    sick = Visit(status, checks={"all-reduce-bandwidth": status}, findings=found, figures=figures)
    links = tuple(SeenLink("gpu01", "gpu03", rail, 48.0, 50.0) for rail in range(8))
    nodes = {"gpu02": sick, "gpu01": Visit("pass"), "gpu03": Visit("pass")}
    with Runs(lab.folder / ".gpuops" / "state.db") as runs:
        runs.save(RunRecord("allreduce", now, 60.0, "failed", "alice", nodes=nodes, links=links))


def test_the_price_is_told_while_the_part_is_sick(lab, gpuops, plan):
    saved(lab, ("mlx5_6", 31.0))
    words = ("--params", SIZES, "--gbs", "96", "--seq", "2048")
    text = " ".join(gpuops("plan", *words).stdout.split())
    assert re.search(r"gpu02 mlx5_6 at 31 of 48 GB/s is left out; it would cost this job [\d.]+ % a step", text)
    used, _ = plan("--include-unhealthy")
    assert used["cluster"]["network_gb_per_s"] == pytest.approx(31)
    assert "times what is left of gpu02 mlx5_6" in used["cluster"]["sources"]["network_gb_per_s"]
    assert used["layouts"][0]["step_seconds"] == pytest.approx(used["prices"][0]["step_seconds"])
    saved(lab)  # found well
    well, _ = plan("--include-unhealthy")
    assert (well["prices"], well["cluster"]["network_gb_per_s"]) == ([], 48)
    assert well["layouts"][0]["step_seconds"] < used["layouts"][0]["step_seconds"]


def test_nodes_that_were_validated_a_moment_ago_are_not_asked_again(gpuops, plan, plant):
    plant("gpu02:gpu2:lost")
    assert gpuops("validate").returncode == 1
    recalled, err = plan()
    assert "using run 1 of validate for 3 nodes (" in err
    assert "excluded: gpu02: fails gpu-lost" in err
    fresh, err = plan("--fresh")
    assert "using run" not in err
    assert recalled == fresh

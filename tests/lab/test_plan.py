"""gpuops plan on the lab: it uses what was measured, and says what a slow part costs."""

import datetime as dt
import json
import re
import tempfile
from pathlib import Path

import pytest
from tests.program import run_gpuops

from gpuops.results.kept import blamed_figures
from gpuops.store import Runs
from gpuops.store.records import FindingKey, RunRecord, SeenFinding, SeenLink, Visit

WORDS = ("--params", "layers=32,hidden=4096,heads=32,vocab=32000", "--gbs", "96", "--seq", "2048")


@pytest.fixture
def gpuops(lab, tmp_path):
    """Return a function that runs a verb on the lab."""
    return lambda verb, *words: run_gpuops(verb, "-i", lab.folder / "inventory.yml", *words, cwd=tmp_path)


@pytest.fixture
def plan(gpuops):
    """Return a function that plans the same model on the same batch, and returns the document and stderr."""

    def run(*words):
        done = gpuops("plan", *WORDS, "--json", *words)
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
    text = " ".join(gpuops("plan", *WORDS, "--include-unhealthy").stdout.split())
    costs = f"{100 * (price['step_seconds'] / price['healthy_seconds'] - 1):.1f} % a step"
    speeds = f"{price['gb_per_s']:.3g} of {price['expected_gb_per_s']:.3g} GB/s"
    assert f"gpu02 mlx5_3 at {speeds} costs this job {costs}" in text


def saved(lab, *parts):
    """Save an all-reduce that found rails of 48 GB/s, and these parts of gpu02 at the GB/s with them."""
    now = dt.datetime.now(dt.timezone.utc) - dt.timedelta(days=3)
    keys = [FindingKey("gpu02", "all-reduce-bandwidth", part, "slow") for part, _ in parts]
    found = tuple(SeenFinding(key, "fail", "fail", "all-reduce: slow") for key in keys)
    figures = {
        name: value for part, rate in parts for name, value in zip(blamed_figures(part), (rate, 48.0), strict=True)
    }
    status = "fail" if found else "pass"
    slow = Visit(status, checks={"all-reduce-bandwidth": status}, findings=found, figures=figures)
    links = tuple(SeenLink("gpu01", "gpu03", rail, 48.0, 50.0) for rail in range(8))
    nodes = {"gpu02": slow, "gpu01": Visit("pass"), "gpu03": Visit("pass")}
    with Runs(lab.folder / ".gpuops" / "state.db") as runs:
        runs.save(RunRecord("allreduce", now, 60.0, "failed", "alice", nodes=nodes, links=links))


def test_the_price_is_told_while_the_part_is_slow(lab, gpuops, plan):
    saved(lab, ("mlx5_6", 31.0))
    text = " ".join(gpuops("plan", *WORDS).stdout.split())
    assert re.search(r"gpu02 mlx5_6 at 31 of 48 GB/s is left out; it would cost this job [\d.]+ % a step", text)
    used, _ = plan("--include-unhealthy")
    assert used["cluster"]["network_gb_per_s"] == pytest.approx(31)
    assert "times what is left of gpu02 mlx5_6" in used["cluster"]["sources"]["network_gb_per_s"]
    assert used["layouts"][0]["step_seconds"] == pytest.approx(used["prices"][0]["step_seconds"])
    saved(lab)  # found well
    well, _ = plan("--include-unhealthy")
    assert (well["prices"], well["cluster"]["network_gb_per_s"]) == ([], 48)
    assert well["layouts"][0]["step_seconds"] < used["layouts"][0]["step_seconds"]


def blamed(lab, node, part, kind):
    """Save an all-reduce that blamed a part of which it has no bandwidth."""
    now = dt.datetime.now(dt.timezone.utc) - dt.timedelta(days=3)
    found = (SeenFinding(FindingKey(node, "all-reduce-bandwidth", part, kind), "fail", "fail", f"all-reduce: {kind}"),)
    nodes = {node: Visit("fail", checks={"all-reduce-bandwidth": "fail"}, findings=found)} if node else {}
    with Runs(lab.folder / ".gpuops" / "state.db") as runs:
        runs.save(RunRecord("allreduce", now, 60.0, "failed", "alice", nodes=nodes, fleet=() if node else found))


@pytest.mark.parametrize(
    ("node", "part", "kind", "says"),
    [
        ("gpu02", "mlx5_6", "hang", "blamed gpu02 mlx5_6 (hang) without a bandwidth, so no estimate includes"),
        ("", "leaf:L3", "slow", "blamed leaf:L3: jobs that cross it may be slow, which no estimate includes"),
    ],
    ids=["part", "leaf"],
)
def test_what_has_no_price_is_said_once_with_and_without_the_node(lab, plan, node, part, kind, says):
    blamed(lab, node, part, kind)
    for more in ((), ("--include-unhealthy",)):
        document, err = plan(*more)
        assert document["prices"] == []
        assert " ".join(err.split()).count(says) == 1, err


def test_nodes_that_were_validated_a_moment_ago_are_not_asked_again(gpuops, plan, plant):
    plant("gpu02:gpu2:lost")
    assert gpuops("validate").returncode == 1
    recalled, err = plan()
    assert "using run 1 of validate for 3 nodes (" in err
    assert "excluded: gpu02: fails gpu-lost" in err
    fresh, err = plan("--fresh")
    assert "using run" not in err
    assert recalled == fresh


SCRIPT = """
import os
gpu = os.environ["CUDA_VISIBLE_DEVICES"].split(",")[int(os.environ["LOCAL_RANK"])]
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "on GPU", gpu, flush=True)
"""


@pytest.fixture
def job():
    """Return a directory with a script that prints its seat; the user of the hosts can read it."""
    with tempfile.TemporaryDirectory(prefix="gpuops-job-") as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "train.py").write_text(SCRIPT)
        (Path(folder) / "train.py").chmod(0o644)
        yield Path(folder)


TORCHRUN = """#!/usr/bin/python3
import os, subprocess, sys
options = dict(word[2:].split("=") for word in sys.argv[1:] if word.startswith("--"))
nodes, each, node = (int(options[name]) for name in ("nnodes", "nproc-per-node", "node-rank"))
words = ["/usr/bin/python3", *(word for word in sys.argv[1:] if not word.startswith("--"))]
seat = lambda local: {"RANK": str(node * each + local), "LOCAL_RANK": str(local), "WORLD_SIZE": str(nodes * each)}
ranks = [subprocess.Popen(words, env={**os.environ, **seat(local)}) for local in range(each)]
sys.exit(max(rank.wait() for rank in ranks))
"""


@pytest.fixture
def torchrun(job):
    """Return the option with which hosts find a stand-in for torchrun, which starts the ranks of a node as it does."""
    program = job / "bin" / "torchrun"
    program.parent.mkdir()
    program.write_text(TORCHRUN)
    program.chmod(0o755)
    return ("--env", f"PATH={program.parent}:/usr/bin:/bin")


@pytest.mark.long
def test_from_the_check_to_the_job_and_again_with_a_slow_rail(gpuops, plan, plant, job, torchrun):
    """Validate, measure, plan, place, render and launch, each from what the step before left; then a rail gets slow."""
    layout = ("--layout", job / "layout.yml", "--max-age", "1h")
    assert gpuops("validate").returncode == 0
    assert gpuops("allreduce", "--scope", "rail").returncode == 0
    planned, err = plan("--save", job / "layout.yml", "--max-age", "1h")
    assert "using run 1 of validate for 3 nodes (" in err
    assert planned["cluster"]["sources"]["network_gb_per_s"] == "measured here: median of 24 pairs"
    placed = json.loads(gpuops("place", *layout, "--json").stdout)
    assert placed["layout"] == planned["layouts"][0]["layout"]
    seats = {rank["rank"]: (rank["node"], rank["gpu"]) for rank in placed["ranks"]}
    assert len(seats) == planned["cluster"]["gpus"] == 24
    groups = placed["groups"]["tp"]
    assert all(len({seats[rank][0] for rank in group}) == 1 for group in groups), "tp groups stay inside a node"
    rendered = gpuops("render", "-t", "torchrun", *layout, "-o", job / "launch", "--", job / "train.py")
    assert rendered.returncode == 0, rendered.stderr
    ran = gpuops("launch", job / "launch", "--no-preflight", *torchrun, "--logs", job / "logs")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "24 of 24 ranks confirmed" in ran.stdout
    told = "".join(log.read_text() for log in sorted((job / "logs").iterdir()))
    found = {int(rank): int(gpu) for rank, gpu in re.findall(r"rank (\d+) of 24 on GPU (\d+)", told)}
    assert found == {rank: gpu for rank, (_, gpu) in seats.items()}
    plant("gpu02:mlx5_3:slow-duplex=35")
    gpuops("allreduce", "--scope", "rail")
    slow, _ = plan("--include-unhealthy", "--max-age", "1h", "--against", planned["layouts"][0]["layout"])
    (price,) = slow["prices"]
    (same,) = slow["compared"]
    rate = price["gb_per_s"] / price["expected_gb_per_s"]
    assert slow["cluster"]["network_gb_per_s"] == pytest.approx(rate * planned["cluster"]["network_gb_per_s"], rel=0.05)
    assert same["estimate"]["step_seconds"] > planned["layouts"][0]["step_seconds"]
    without, err = plan("--max-age", "1h")
    assert "blamed mlx5_3" in err
    assert without["cluster"]["gpus"] == 16
    assert without["layouts"][0]["step_seconds"] > planned["layouts"][0]["step_seconds"]

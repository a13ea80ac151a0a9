"""Placement of a layout on the nodes of a running lab, as they are now, asked over SSH."""

import datetime as dt
import json
from dataclasses import replace

import pytest
from tests.program import run_gpuops

from gpuops.lab import cluster
from gpuops.store import Runs
from gpuops.store.records import FLEET, FindingKey, RunRecord, SeenFinding, Visit


def place(lab, *words):
    done = run_gpuops("place", "-i", lab.folder / "inventory.yml", "--json", *words)
    return done, json.loads(done.stdout) if done.returncode == 0 else None


def test_every_rank_has_the_nic_and_numa_node_beside_its_gpu(lab):
    _, document = place(lab, "--layout", "dp=3,tp=8")
    assert [(rank["node"], rank["gpu"]) for rank in document["ranks"]] == [
        (f"gpu{n:02}", gpu) for n in (1, 2, 3) for gpu in range(8)
    ]
    assert all(rank["nic"] == f"mlx5_{rank['gpu']}" for rank in document["ranks"])
    assert [rank["numa"] for rank in document["ranks"][:8]] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_a_node_with_a_lost_gpu_is_left_out_and_another_takes_its_ranks(lab, plant):
    plant("gpu02:gpu2:lost")
    done, document = place(lab, "--layout", "dp=2,tp=8")
    assert [node["name"] for node in document["nodes"]] == ["gpu01", "gpu03"]
    assert "excluded: gpu02: fails gpu-lost" in done.stderr


def test_a_node_that_runs_a_job_is_placed_on_with_a_word(lab, plant):
    done, _ = place(lab, "--layout", "dp=3,tp=8")
    assert "in use" not in done.stderr
    plant("gpu02:host:busy")
    done, document = place(lab, "--layout", "dp=3,tp=8")
    assert "warning: in use: gpu02 (gpu02: pid " in done.stderr
    assert [node["name"] for node in document["nodes"]] == ["gpu01", "gpu02", "gpu03"]
    done, _ = place(lab, "--layout", "dp=1,tp=8", "--limit", "gpu03")
    assert "in use" not in done.stderr


def test_what_the_healthy_nodes_cannot_hold_is_refused(lab, plant):
    plant("gpu02:gpu2:lost")
    done, _ = place(lab, "--layout", "dp=3,tp=8")
    assert done.returncode == 2
    assert "dp=3 · tp=8 = 24 GPUs are needed but only 16 are usable" in done.stderr


def asked(lab, work):
    """How many commands the hosts got while ``work`` ran."""
    before = [len(cluster.audit(lab.folder, name)) for name in lab.hosts]
    result = work()
    return result, sum(len(cluster.audit(lab.folder, name)) for name in lab.hosts) - sum(before)


@pytest.fixture
def validated(lab, plant):
    """A lab that was validated a moment ago, with a GPU of gpu02 lost."""
    plant("gpu02:gpu2:lost")
    assert run_gpuops("validate", "-i", lab.folder / "inventory.yml", "--skip", "driver-agrees").returncode == 1
    run_gpuops("validate", "-i", lab.folder / "inventory.yml")
    return lab


def test_nodes_that_were_validated_a_moment_ago_are_not_asked_again(validated):
    (done, document), commands = asked(validated, lambda: place(validated, "--layout", "dp=2,tp=8"))
    assert "using run 2 of validate for 3 nodes (" in done.stderr
    assert "excluded: gpu02: fails gpu-lost" in done.stderr
    assert [node["name"] for node in document["nodes"]] == ["gpu01", "gpu03"]
    fresh, all_commands = asked(validated, lambda: place(validated, "--layout", "dp=2,tp=8", "--fresh"))
    assert "as validate saw" not in fresh[0].stderr
    assert fresh[1] == document
    assert (commands, all_commands > 0) == (0, True)


def test_an_old_validation_is_not_used(validated):
    with Runs(validated.folder / ".gpuops" / "state.db") as runs:
        runs._database.execute("UPDATE records SET began = ?", ("2026-01-01T00:00:00+00:00",))
    done, _ = place(validated, "--layout", "dp=2,tp=8")
    assert "as validate saw" not in done.stderr
    assert "excluded: gpu02: fails gpu-lost" in done.stderr


def test_a_validation_that_skipped_a_check_is_not_used(lab):
    run_gpuops("validate", "-i", lab.folder / "inventory.yml", "--skip", "gpu-lost")
    done, _ = place(lab, "--layout", "dp=3,tp=8")
    assert "as validate saw" not in done.stderr


def test_a_store_that_cannot_be_read_fails_nothing(lab):
    store = lab.folder / ".gpuops" / "state.db"
    store.parent.mkdir(exist_ok=True)
    store.write_text("something else, and long enough to be read as a header of a database\n" * 20)
    done, document = place(lab, "--layout", "dp=3,tp=8")
    assert len(document["nodes"]) == 3
    assert "not a gpuops store" in done.stderr
    checked = run_gpuops("validate", "-i", lab.folder / "inventory.yml")
    assert (checked.returncode, "this run is not saved: " in checked.stderr) == (0, True)
    store.unlink()


def blame(*keys):
    now = dt.datetime.now(dt.timezone.utc) - dt.timedelta(days=3)
    nodes = {key.node: Visit("fail", checks={key.check: "fail"}) for key in keys if key.node}
    found = [SeenFinding(key, "fail", "fail", "31 of 48 GB/s") for key in keys]
    nodes = {n: replace(v, findings=tuple(f for f in found if f.key.node == n)) for n, v in nodes.items()}
    fleet = tuple(f for f in found if f.key.node == FLEET)
    return RunRecord("allreduce", now, 60.0, "failed", "alice", nodes=nodes, fleet=fleet)


def test_what_a_measurement_blamed_gets_no_rank_until_it_is_found_healthy(lab):
    slow, leaf = (
        FindingKey(node, "all-reduce-bandwidth", part, "slow")
        for node, part in (("gpu02", "mlx5_3"), (FLEET, "leaf:L3"))
    )
    path = lab.folder / ".gpuops" / "state.db"
    with Runs(path) as runs:
        runs.save(blame(slow, leaf))
    done, document = place(lab, "--layout", "dp=2,tp=8")
    assert [node["name"] for node in document["nodes"]] == ["gpu01", "gpu03"]
    assert "excluded: gpu02: the all-reduce of " in done.stderr
    assert "blamed leaf:L3: jobs that cross it may be slow" in done.stderr
    everything, document = place(lab, "--layout", "dp=3,tp=8", "--include-unhealthy")
    assert len(document["nodes"]) == 3
    assert "blamed" not in everything.stderr
    with Runs(path) as runs:
        well = Visit("pass", checks={"all-reduce-bandwidth": "pass"})
        runs.save(replace(blame(), nodes={"gpu02": well, "gpu01": well}))
    _, document = place(lab, "--layout", "dp=3,tp=8")
    assert len(document["nodes"]) == 3

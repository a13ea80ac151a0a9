"""gpuops allreduce on the lab: it names faults that only a load shows, and leaves busy nodes alone."""

import json

import pytest
from tests.program import run_gpuops

from gpuops.lab import cluster

HEAVY = ("_perf", "mpirun", "srun", "salloc", "ib_write_bw")
AGENT = "python3: Agent on a node: the part that reads its files. It is sent before ``agent.py``, as one program."


@pytest.fixture
def allreduce(lab, tmp_path):
    """Return a function that runs the command and returns its exit code, its report as data, and its stderr."""

    def run(*words):
        done = run_gpuops("allreduce", "-i", lab.folder / "inventory.yml", "--json", *words, cwd=tmp_path)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout), done.stderr

    return run


def test_healthy_lab_blames_no_part(allreduce):
    code, told, _ = allreduce("--scope", "rail")
    assert (code, told["accused"], told["engine"]["name"]) == (0, [], "nccl-tests")


def test_a_slow_hca_is_named_with_its_evidence(allreduce, plant):
    plant("gpu02:mlx5_3:slow-duplex=35")
    code, told, _ = allreduce("--scope", "rail")
    assert code == 1
    (accused,) = told["accused"]
    assert accused["part"] == "gpu02:mlx5_3"
    assert any("symbol" in sentence for sentence in accused["evidence"])


@pytest.mark.long
def test_a_validation_of_nothing_but_the_bandwidth_measures_it(lab, plant, tmp_path):
    plant("gpu02:gpu5:miscounts")
    words = ("validate", "-i", lab.folder / "inventory.yml", "--level", "standard", "--only", "all-reduce-bandwidth")
    done = run_gpuops(*words, "--json", cwd=tmp_path)
    report = json.loads(done.stdout)
    (finding,) = report["findings"]
    assert (done.returncode, finding["host"], finding["part"], finding["code"]) == (1, "gpu02", "gpu5", "wrong")


@pytest.mark.long
def test_a_nic_that_the_network_holds_back_shows_waits_and_no_errors(allreduce, plant):
    plant("gpu02:mlx5_5:held-back=35")
    code, told, _ = allreduce("--scope", "rail")
    (accused,) = told["accused"]
    assert (code, accused["part"]) == (1, "gpu02:mlx5_5")
    assert any(
        sentence.startswith("the network held its traffic back: port_xmit_wait +") for sentence in accused["evidence"]
    )
    assert not any("its link" in sentence for sentence in accused["evidence"])
    assert list(told["counters"]) == ["gpu02:mlx5_5"]
    assert told["unread_counters"] == {}


@pytest.mark.long
def test_a_link_that_goes_down_during_the_rounds_is_named_although_it_is_fast(allreduce, plant):
    plant("gpu03:mlx5_1:flaps")
    code, told, _ = allreduce("--scope", "rail")
    (accused,) = told["accused"]
    assert (code, accused["part"], accused["kind"]) == (1, "gpu03:mlx5_1", "link-down")


@pytest.mark.long
def test_a_node_with_a_job_gets_no_heavy_command(lab, allreduce, plant):
    plant("gpu03:host:busy")
    before = {name: len(cluster.audit(lab.folder, name)) for name in ("gpu01", "gpu03")}
    code, told, _ = allreduce()
    assert code == 3
    assert "busy" in told["left"]["gpu03"]
    assert told["nodes"] == ["gpu01", "gpu02"]
    free, busy = (cluster.audit(lab.folder, name)[before[name] :] for name in ("gpu01", "gpu03"))
    assert any(word in line for line in free for word in HEAVY)
    assert not [line for line in busy if any(word in line for word in HEAVY)]
    assert {line for line in busy if line.startswith("python3: ")} == {AGENT}


@pytest.mark.long
def test_a_node_with_a_job_is_measured_only_if_it_is_named(lab, allreduce, plant):
    plant("gpu03:host:busy")
    before = len(cluster.audit(lab.folder, "gpu03"))
    _, told, _ = allreduce("--scope", "rail", "--force-busy", "gpu03")
    assert "gpu03" in told["nodes"]
    assert any("all_reduce_perf" in line for line in cluster.audit(lab.folder, "gpu03")[before:])

"""gpuops preflight on a running lab: it finds injected causes and names the line to change first."""

import json
import re

import pytest
from click.testing import CliRunner

from gpuops.cli import program
from gpuops.lab import cluster

MPIRUN = "mpirun -H gpu01:8,gpu02:8 all_reduce_perf -b 1G".split()


@pytest.fixture
def preflight(lab, home, monkeypatch, tmp_path):
    """Return a function that runs the command and returns its exit code and output."""
    monkeypatch.chdir(tmp_path)

    def run(*words, options=()):
        arguments = ["preflight", "-i", str(lab.folder / "inventory.yml"), *options, "--", *words]
        done = CliRunner().invoke(program, arguments, standalone_mode=False)
        assert done.exception is None, done.exception
        return done.return_value, done.stdout

    return run


@pytest.fixture
def causes(preflight):
    """Return the causes as (test, nodes, fix)."""

    def run(*words, options=()):
        _, printed = preflight(*words, options=("--json", *options))
        return [(c["test"], c["nodes"], c["fix"]) for c in json.loads(printed)["causes"]]

    return run


def test_a_job_that_can_start_is_told_so_after_one_all_reduce(preflight):
    code, printed = preflight(*MPIRUN)
    assert code == 0
    assert printed.startswith("preflight   mpirun on gpu[01-02] ")
    assert printed.endswith("\nno problems found\n")
    assert " GB/s over 2 nodes by nccl-tests" in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_a_host_that_does_not_answer_is_unreachable_and_not_a_fault_of_the_command(preflight, plant):
    plant("gpu02:host:refuse")
    code, printed = preflight(*MPIRUN)
    assert code == 3
    assert "connection refused" in printed


@pytest.mark.long
def test_a_host_that_is_lost_on_the_way_is_in_the_way(preflight, plant):
    plant("gpu02:host:no-python")
    code, printed = preflight(*MPIRUN)
    assert code == 3
    assert "no Python 3 found on the node" in printed
    assert "bring the node back" not in printed


def test_an_interface_that_is_not_there_is_the_line_to_change(preflight):
    code, printed = preflight("mpirun", "-x", "NCCL_SOCKET_IFNAME=nothing0", *MPIRUN[1:])
    assert code == 1
    assert printed.splitlines()[-1].startswith("change this first  -x NCCL_SOCKET_IFNAME=")


def test_a_host_outside_of_the_inventory_is_named(causes):
    assert causes("mpirun", "-H", "gpu01,gpu77", "all_reduce_perf")[0] == (
        "hosts",
        [],
        "remove gpu77 from the command's hosts, or add it to the inventory",
    )


@pytest.mark.sampled
@pytest.mark.parametrize("launcher", ["torchrun", "python3 -m torch.distributed.run"])
def test_following_the_advice_on_torchrun_ends_with_a_job_that_can_start(preflight, launcher):
    """Each change goes behind the launcher, in place of the option that it names."""
    start, seen = launcher.split(), []
    words = ["--nnodes=4", "--nproc-per-node=8", "train.py"]
    for _ in range(4):
        code, printed = preflight(*start, *words, options=("--json", "-l", "gpu01,gpu02"))
        if not code:
            break
        fix = json.loads(printed)["causes"][0]["fix"]
        assert fix not in seen, seen
        seen.append(fix)
        words = [*fix.split(), *(word for word in words if not fix.startswith(word.partition("=")[0]))]
    assert code == 0
    assert [fix.partition("=")[0] for fix in seen] == ["--nnodes", "--rdzv-backend"]


def test_the_check_of_the_remaining_hosts_is_a_command_on_one_line(preflight, plant, lab):
    plant("gpu03:gpu2:lost")
    words = "torchrun --nnodes=4 --master-addr=192.0.2.1 train.py".split()
    _, printed = preflight(*words, options=("-l", "gpu[01-03]"))
    (line, same) = (line.strip() for line in printed.splitlines() if line.strip().startswith("gpuops "))
    assert line == same
    rest = "-- torchrun --nnodes=2 --master-addr=192.0.2.1 train.py"
    assert line == f"gpuops preflight --limit 'gpu[01-02]' -i {lab.folder / 'inventory.yml'} {rest}"


@pytest.mark.long
def test_nodes_offered_for_a_job_are_not_those_that_an_all_reduce_blamed(lab, preflight, plant):
    plant("gpu01:gpu3:slow=40")
    inventory = ("-i", str(lab.folder / "inventory.yml"))
    CliRunner().invoke(program, ["allreduce", *inventory], standalone_mode=False)
    _, printed = preflight("torchrun", "--nnodes=1", "train.py")
    assert "start it on gpu02 only" in " ".join(printed.split())


@pytest.mark.long
def test_a_lost_gpu_is_told_beside_the_fault_of_another_host_and_is_not_called_busy(causes, plant):
    plant("gpu02:gpu5:lost", "gpu03:host:no-python")
    words = ("torchrun", "--nnodes=2", "train.py")
    (count, gone, lost, meeting) = causes(*words)
    assert count[2].startswith("--nnodes=1, and start it on gpu01 only; to check that: gpuops preflight --limit gpu01 ")
    assert lost[:2] == ("gpus", ["gpu02"])
    assert lost[2].startswith("power-cycle the node")
    assert (meeting[0], gone[:2]) == ("meeting", ("reach", ["gpu03"]))
    assert gone[2] == "install Python 3 on gpu03, or set ansible_python_interpreter to its path"


@pytest.fixture
def without_profiles(lab, tmp_path):
    """The inventory of the lab, with no word of what its hosts should be."""
    path = tmp_path / "bare.yml"
    text, count = re.subn(r"(?m)^ *profile: .*\n", "", (lab.folder / "inventory.yml").read_text())
    assert count
    path.write_text(text)
    return path


@pytest.mark.parametrize("words", [["preflight", "--", *MPIRUN], ["validate", "--limit", "gpu02", "--format", "json"]])
def test_a_lost_gpu_needs_no_profile_to_be_told(lab, home, plant, without_profiles, words):
    plant("gpu02:gpu5:lost")
    done = CliRunner().invoke(program, [words[0], "-i", str(without_profiles), *words[1:]], standalone_mode=False)
    assert done.return_value == 1
    assert "fell off the bus" in done.stdout
    assert "power-cycle the node" in done.stdout


def test_a_job_of_another_user_is_in_the_way_and_is_not_disturbed(preflight, plant, lab):
    plant("gpu02:host:busy")
    code, printed = preflight(*MPIRUN)
    assert code == 1
    assert "busy (Slurm job 4711 train, user alice" in printed
    assert "all-reduce   skipped  a node is in use" in printed
    code, printed = preflight(*MPIRUN, options=("--force-busy", "gpu02"))
    assert code == 0
    cluster.clear(lab.folder, ["gpu02"])


def test_a_rail_that_is_down_is_reported(causes, plant):
    plant("gpu02:mlx5_3:port-down")
    (cause,) = causes(*MPIRUN)
    assert cause[:2] == ("rdma", ["gpu02"])


def test_the_step_that_fails_has_the_name_of_its_cause(preflight, plant):
    plant("gpu02:mlx5_3:port-down")
    _, printed = preflight(*MPIRUN, options=("--json",))
    steps = {step["name"]: step["state"] for step in json.loads(printed)["steps"]}
    assert (steps["rdma"], steps["network"]) == ("fail", "ok")


@pytest.mark.parametrize(
    "words",
    [
        ("--", "python", "train.py"),
        ("--", "mpirun", "--hostfile", "no-such-file", "x"),
        ("--force-busy", "gpu0[1-2]", "--", *MPIRUN),
    ],
)
def test_what_cannot_be_read_is_wrong_input(lab, home, words):
    done = CliRunner().invoke(program, ["preflight", "-i", str(lab.folder / "inventory.yml"), *words])
    assert done.exception.exit_code == 2


def test_more_processes_than_gpus_is_the_line_to_change(causes):
    words = ("torchrun", "--nnodes=2", "--nproc-per-node=9", "--master-addr=192.0.2.1", "train.py")
    named = [cause for cause in causes(*words, options=("-l", "gpu[01-02]")) if cause[0] == "gpus"]
    assert named == [("gpus", ["gpu01", "gpu02"], "--nproc-per-node=8, or take these nodes out of the job")]


def test_a_script_that_is_not_on_the_nodes_is_named(causes):
    words = ("torchrun", "--nnodes=2", "--master-addr=192.0.2.1", "/nowhere/train.py")
    named = [cause for cause in causes(*words, options=("-l", "gpu[01-02]")) if cause[0] == "environment"]
    fix = "put /nowhere/train.py on these nodes, or name one that all have"
    assert named == [("environment", ["gpu01", "gpu02"], fix)]

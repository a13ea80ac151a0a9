"""gpuops preflight of jobs that srun starts: what is told is what a step of Slurm's finds, and who has the nodes."""

import json
import sys

import pytest

pytestmark = pytest.mark.usefixtures("slurm")
NODES = ["node2", "node3", "node10"]


@pytest.fixture
def preflight(lab, tmp_path):
    """Runs the verb where srun is typed; its exit code and its JSON."""
    options = f"-o UserKnownHostsFile={lab.state}/known_hosts"
    login = {"ansible_user": "root", "ansible_ssh_private_key_file": f"{lab.state}/login"}
    hosts = {name: {"ansible_host": address} for name, address in lab.addresses.items()}
    inventory = {"all": {"vars": {**login, "ansible_ssh_common_args": options}, "hosts": hosts}}
    (tmp_path / "inventory.json").write_text(json.dumps(inventory))
    (tmp_path / "gpuops.yml").write_text("inventory: inventory.json\nscheduler: slurm\n")

    def run(command, before=""):
        done = lab.run(
            f"CUDA_VISIBLE_DEVICES= {before} {sys.executable} -m gpuops preflight --json -- {command}", tmp_path
        )
        assert done.stdout.startswith("{"), done.stdout
        return done.returncode, json.loads(done.stdout)

    return run


def test_a_step_of_slurms_is_what_is_looked_at(preflight):
    code, found = preflight(f"srun -N3 -w node[2-3],node10 {sys.executable} train.py")
    steps = {step["name"]: step for step in found["steps"]}
    assert (code, found["causes"], found["hosts"]) == (0, [], NODES), found
    assert steps["reach"]["said"] == "3 nodes by srun"
    assert "torch " in steps["environment"]["said"]


def test_what_is_set_where_srun_is_typed_counts_on_the_nodes(preflight):
    code, found = preflight(f"srun -w {','.join(NODES)} true", "NCCL_SOCKET_IFNAME=ib0")
    (cause,) = found["causes"]
    assert (code, cause["rung"], cause["change"]) == (1, "interface", "--export=ALL,NCCL_SOCKET_IFNAME=eth0")


def test_the_job_that_has_a_node_is_reported(preflight, lab):
    number = lab.run("sbatch --parsable -w node3 -J train --wrap 'sleep 600'").stdout.strip()
    try:
        running = (
            f"for try in {{1..600}}; do squeue -h -t RUNNING -j {number} | grep -q . && exit; sleep 0.1; done; exit 1"
        )
        assert lab.run(running).returncode == 0
        code, found = preflight(f"srun -w {','.join(NODES)} true")
    finally:
        lab.run(f"scancel {number}; while squeue -h -j {number} | grep -q .; do sleep 0.1; done")
    (cause,) = found["causes"]
    assert (code, cause["rung"], cause["nodes"]) == (1, "busy", ["node3"])
    assert cause["why"] == f"busy (Slurm job {number} train, user root)"


def test_a_node_where_slurm_starts_nothing_is_told_with_its_words(preflight, lab):
    lab.run("scontrol update NodeName=node2 State=DRAIN Reason=fan")
    try:
        code, found = preflight("srun -w node2,node3 true")
    finally:
        lab.run("scontrol update NodeName=node2 State=UNDRAIN")
    (cause, *_) = found["causes"]
    assert (code, cause["rung"], cause["nodes"]) == (3, "reach", ["node2", "node3"])
    assert cause["why"].startswith("srun does not start here: srun: ")


def test_a_node_that_slurm_does_not_have_is_reported(preflight):
    code, found = preflight("srun -w node2,node77 true")
    assert (code, found["causes"][0]["why"]) == (1, "the inventory has no node77")

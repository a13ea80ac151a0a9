"""Rendered files, unchanged, start a job of 4 x 2 ranks on four hosts, and every rank stands where the plan says."""

import pytest

SEAT = ("rank", "node", "local_rank", "gpu")


def assert_as_planned(plan, found):
    """Every rank left a file: the plan's seat, and in each group the ranks of the plan."""
    assert sorted(found) == list(range(8))
    for rank, seat in found.items():
        assert [seat[key] for key in SEAT] == [plan["ranks"][rank][key] for key in SEAT]
        for axis in ("tp", "pp", "dp"):
            assert [group for group in plan["groups"][axis] if rank in group] == [seat["groups"][axis]]


def test_torchrun(launch):
    plan, found = launch("torchrun", needs=["pdsh"])
    assert [node["name"] for node in plan["nodes"]] == ["node2", "node10", "node3", "node11"]  # no order of names
    assert_as_planned(plan, found)


def test_torchrun_elastic(launch):
    assert_as_planned(*launch("torchrun-elastic", needs=["pdsh"]))


@pytest.mark.parametrize("host", [None, "node11"], ids=["from-beside", "from-the-last-host"])
def test_open_mpi(launch, host):
    assert_as_planned(*launch("openmpi", needs=["mpirun.openmpi"], host=host))


def test_mpich(launch):
    assert_as_planned(*launch("mpich", needs=["mpiexec.hydra"]))


def test_accelerate(launch):
    assert_as_planned(*launch("accelerate-ddp", "dp=8", needs=["pdsh", "accelerate"]))


def test_deepspeed(launch):
    assert_as_planned(*launch("deepspeed", needs=["pdsh", "deepspeed"]))


@pytest.mark.parametrize("job", ["job.sbatch", "job-per-gpu.sbatch"])
def test_slurm(slurm, launch, job):
    ends = 'until [ -z "$(squeue --noheader)" ]; do sleep 0.2; done; cat *.out; scontrol show job $id | grep COMPLETED'
    assert_as_planned(*launch("slurm", command=f"sbatch --test-only {job} && id=$(sbatch --parsable {job}) && {ends}"))

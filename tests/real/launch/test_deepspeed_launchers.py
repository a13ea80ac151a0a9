"""DeepSpeed's launchers other than pdsh start the ranks of a layout on four hosts from its rendered files."""

import pytest


@pytest.fixture
def assert_as_planned(launch):
    """Starts a script of the target with ``mpirun`` being ``program``; every rank is where the plan has it."""

    def look(script, program="false", **rest):
        mpirun = f"mkdir mpi && printf '#!/bin/sh\\nexec {program} \"$@\"\\n' > mpi/mpirun && chmod +x mpi/mpirun"
        visible = "echo CUDA_VISIBLE_DEVICES=0,1 >> .deepspeed_env"  # Slurm says it by itself, MPI does not
        command = f"{mpirun} && {visible} && PATH=$PWD/mpi:$PATH {script}"
        plan, found = launch("deepspeed", command=command, **rest)
        assert sorted(found) == [rank["rank"] for rank in plan["ranks"]]
        for rank, seat in found.items():
            planned = {**plan["ranks"][rank], "groups": seat["groups"]}
            assert seat == {key: planned[key] for key in seat}

    return look


def test_open_mpi_from_the_last_host(assert_as_planned):
    assert_as_planned("./run-openmpi.sh", "mpirun.openmpi", needs=["mpirun.openmpi", "deepspeed"], host="node11")


def test_mpich(assert_as_planned):
    assert_as_planned("./run-mpich.sh", "mpiexec.hydra", layout="dp=4", needs=["mpiexec.hydra", "deepspeed"])


def test_slurm(slurm, assert_as_planned):
    assert_as_planned("salloc --nodes=4 --exclusive --gpus-per-node=2 ./run-slurm.sh", needs=["salloc", "deepspeed"])

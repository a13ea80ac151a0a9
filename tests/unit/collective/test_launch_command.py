import shlex

import pytest

from gpuops.collective.preflight.launch_command import read_command
from gpuops.errors import InputError

HOSTFILE = "# the pool\ngpu01 slots=8\ngpu02 slots=8   # second\n\ngpu03:8\n"


def read(line, environ=()):
    return read_command(shlex.split(line), {"hosts": HOSTFILE}.__getitem__, dict(environ))


def test_torchrun_says_where_its_ranks_meet():
    found = read("NCCL_DEBUG=INFO torchrun --nnodes=4 --nproc-per-node 8 --rdzv-endpoint=gpu01:29400 train.py --port 1")
    assert (found.launcher, found.program, found.hosts, found.count) == ("torchrun", "torchrun", (), 4)
    assert (found.master, found.port, found.environment) == ("gpu01", 29400, {"NCCL_DEBUG": "INFO"})


@pytest.mark.parametrize(
    ("words", "master", "port"),
    [
        ("--master_addr=10.0.0.1 --master_port=1234", "10.0.0.1", 1234),
        ("--master-addr 10.0.0.1", "10.0.0.1", 29500),
        ("--rdzv_endpoint 10.0.0.1", "10.0.0.1", 29500),
        ("--rdzv_endpoint=10.0.0.1:5 --nnodes 2:4", "10.0.0.1", 5),
        ("", None, 29500),
    ],
)
def test_torchrun_has_more_than_one_spelling(words, master, port):
    for program in ("/opt/conda/bin/torchrun", "python3.11 -m torch.distributed.run"):
        found = read(f"{program} {words} train.py")
        assert (found.launcher, found.master, found.port) == ("torchrun", master, port)
        assert found.program == program.split()[0]


def test_torchrun_alone_on_one_machine_is_one_host():
    assert read("torchrun --standalone train.py").count == 1
    assert read("torchrun --nnodes 2:4 train.py").count == 2


def test_deepspeed_takes_its_hosts_from_the_hostfile():
    found = read("deepspeed --hostfile hosts --master_port 6000 train.py --deepspeed ds.json")
    assert (found.hosts, found.master, found.port) == (("gpu01", "gpu02", "gpu03"), "gpu01", 6000)
    assert read("deepspeed -H hosts --include gpu02@gpu03:0,1 train.py").hosts == ("gpu02", "gpu03")
    assert read("deepspeed -H hosts --exclude gpu01@gpu02:3 train.py").hosts == ("gpu02", "gpu03")
    assert read("deepspeed -H hosts --num_nodes 2 --master_addr 10.0.0.9 train.py").hosts == ("gpu01", "gpu02")


def test_deepspeed_hands_on_what_is_set_for_nccl_where_it_is_typed():
    around = {"NCCL_SOCKET_IFNAME": "eth0", "HOME": "/root"}
    assert read("deepspeed -H hosts train.py", around).environment == {"NCCL_SOCKET_IFNAME": "eth0"}
    assert read("env NCCL_SOCKET_IFNAME=ib0 deepspeed train.py", around).environment == {"NCCL_SOCKET_IFNAME": "ib0"}
    assert read("torchrun train.py", around).environment == {}


def test_mpirun_hands_on_only_what_it_is_reported():
    found = read(
        "NCCL_ALGO=Ring mpirun -np 16 -H gpu01:8,gpu02:8 --mca btl_tcp_if_include eth2 -x NCCL_SOCKET_IFNAME=eth0 "
        "-x NCCL_IB_HCA -bind-to none ./all_reduce_perf -b 8",
        {"NCCL_IB_HCA": "mlx5_0", "NCCL_DEBUG": "INFO"},
    )
    assert (found.launcher, found.program, found.hosts) == ("mpirun", "./all_reduce_perf", ("gpu01", "gpu02"))
    assert found.environment == {"NCCL_SOCKET_IFNAME": "eth0", "NCCL_IB_HCA": "mlx5_0"}
    assert found.mpi_interface == "eth2"
    assert read("mpiexec --hostfile hosts python train.py").hosts == ("gpu01", "gpu02", "gpu03")


def test_srun_names_nodes_as_slurm_folds_them():
    found = read("srun -N3 -l --nodelist=gpu[01-02,07] --export=ALL,NCCL_DEBUG=INFO --mpi=pmix python -u train.py")
    assert (found.launcher, found.program, found.count) == ("srun", "python", 3)
    assert found.hosts == ("gpu01", "gpu02", "gpu07")
    assert found.environment == {"NCCL_DEBUG": "INFO"}


def test_torchrun_under_srun_tells_where_its_ranks_meet():
    found = read("srun --nodes=2 -w gpu01,gpu02 torchrun --nnodes=2 --rdzv-endpoint=gpu01:29500 train.py")
    assert (found.launcher, found.program, found.master, found.count) == ("srun", "torchrun", "gpu01", 2)
    assert found.hosts == ("gpu01", "gpu02")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("torchrn train.py", 'did you mean "torchrun"'),
        ("python train.py", '"python" is not a launcher'),
        ("", '"" is not a launcher'),
        ("NCCL_DEBUG=INFO", "not a launcher"),
        ("srun -N 2", "the srun command names no program to start"),
        ("mpirun -np 2", "the mpirun command names no program to start"),
    ],
)
def test_what_is_no_launch_command_is_refused(line, said):
    with pytest.raises(InputError, match=said):
        read(line)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("torchrun t.py", "NCCL_IB_GID_INDEX=3"),
        ("mpirun -np 2 t", "-x NCCL_IB_GID_INDEX=3"),
        ("srun t", "--export=ALL,NCCL_IB_GID_INDEX=3"),
    ],
)
def test_each_launcher_is_told_of_a_variable_in_its_own_way(line, words):
    assert read(line).setting("NCCL_IB_GID_INDEX", "3") == words


def test_the_place_to_meet_is_told_in_the_launchers_own_words():
    assert read("torchrun t.py").with_rendezvous("a", 5) == "--rdzv-backend=c10d --rdzv-endpoint=a:5"
    assert read("torchrun --master_addr b t.py").with_rendezvous("a", 5) == "--master-addr=a --master-port=5"
    assert read("deepspeed t.py").with_rendezvous("a", 5) == "--master_addr=a --master_port=5"
    assert read("srun t.py").with_rendezvous("a", 5) == "MASTER_ADDR=a MASTER_PORT=5"
    assert read("torchrun t.py").needs_master
    assert not read("srun t.py").needs_master


def test_the_place_to_meet_may_stand_in_the_environment():
    found = read("mpirun -x MASTER_ADDR=gpu01 -x MASTER_PORT=6000 python t.py")
    assert (found.master, found.port) == ("gpu01", 6000)
    assert read("MASTER_ADDR=gpu02 srun python t.py").master == "gpu02"


def test_a_lone_dash_of_srun_is_no_option_with_a_value():
    assert read_command(("srun", "-N2", "-", "--nodelist=n[1-2]", "python", "t.py"), None, {}).launcher == "srun"

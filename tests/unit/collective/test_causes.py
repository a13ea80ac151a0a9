import pytest

from gpuops.collective.preflight import causes
from gpuops.collective.preflight.causes import Cause, parse_name_filter
from gpuops.collective.preflight.job_environment import JobEnvironment
from gpuops.collective.preflight.launch_command import LaunchCommand, NodeCommand, read_command
from gpuops.judging import Finding, Verdict
from gpuops.probes.network.gids import Gid
from gpuops.probes.network.ib import IbPort
from gpuops.probing import PartName
from gpuops.proposal import HostOptions, proposing

TORCHRUN = LaunchCommand("torchrun", "torchrun", rendezvous="--rdzv-endpoint={master}:{port}")
MPIRUN = LaunchCommand("mpirun", "./train")
GOOD = JobEnvironment("/opt/bin/torchrun", "3.11.2", "2.9.1", "2.27.7")


@pytest.mark.parametrize(
    ("text", "used", "not_used"),
    [
        ("eth", ["eth0", "eth1"], ["ens5", "lo"]),
        ("=eth0", ["eth0"], ["eth01", "eth1"]),
        ("^lo,docker", ["eth0"], ["lo", "docker0"]),
        ("^=lo", ["lo1"], ["lo"]),
        ("mlx5_0:1,mlx5_3", ["mlx5_0", "mlx5_3"], ["mlx5_1"]),
        ("^", ["anything"], []),
    ],
)
def test_a_list_of_nccl_means_what_nccl_takes_it_for(text, used, not_used):
    assert [name for name in [*used, *not_used] if name in parse_name_filter(text)] == used


def test_hosts_that_nobody_knows_are_named():
    named = LaunchCommand("mpirun", "x", hosts=("a", "c"))
    (cause,) = causes.hosts(named, {"a", "b"})
    assert cause.why == "the inventory has no c"
    assert not list(causes.hosts(named, {"a", "c"}))


EIGHT = tuple(f"gpu{number:02}" for number in range(1, 9))
SIX = tuple(name for name in EIGHT if name not in ("gpu02", "gpu05"))
CHECK = "only; to check that: gpuops preflight --limit"


def only_six(count):
    return f"start it on gpu[01,03-04,06-08] {CHECK} 'gpu[01,03-04,06-08]' -i p.yml -- torchrun --nnodes={count} a.py"


@pytest.mark.parametrize(
    ("wanted", "usable", "fix"),
    [
        (10, EIGHT, "--nnodes=8"),
        (10, SIX, f"--nnodes=6, and {only_six(6)}"),
        (7, SIX, f"--nnodes=6, and {only_six(6)}"),
        (6, SIX, only_six(6)),
        (2, SIX, f"start it on gpu[01,03] {CHECK} 'gpu[01,03]' -i p.yml -- torchrun --nnodes=2 a.py"),
        (4, (), "fix the nodes first: none of them can take part"),
    ],
)
def test_a_wrong_count_is_told_with_the_nodes_that_can_take_part(wanted, usable, fix):
    command = read_command(("torchrun", f"--nnodes={wanted}", "a.py"), pytest.fail, {})
    with proposing(HostOptions("p.yml")):
        (cause,) = causes.count(command, EIGHT, usable)
    broken = f", of which {len(usable) or 'none'} can take part" if len(usable) < 8 else ""
    why = f"the command needs {wanted} nodes, but 8 are selected{broken}"
    assert cause == Cause("hosts", (), why, fix)


def test_srun_chooses_nodes_by_an_option_of_its_own():
    typed = "env A=b /usr/bin/srun --nodelist=gpu[01-08] -N 7 -l torchrun --nnodes=7 x"
    command = read_command(tuple(typed.split()), pytest.fail, {})
    with proposing(HostOptions("p.yml")):
        (cause,) = causes.count(command, EIGHT, SIX)
    words = "env A=b /usr/bin/srun '--nodelist=gpu[01,03-04,06-08]' -N 6 -l torchrun --nnodes=6 x"
    check = f"to check that: gpuops preflight -i p.yml -- {words}"
    assert cause.fix == f"--nodes=6, and start it on gpu[01,03-04,06-08] only; {check}"


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        ("torchrun --nnodes 8 x --nnodes=3", "torchrun --nnodes 2 x --nnodes=3"),
        ("torchrun --nnodes=8:9 x", "torchrun --nnodes=2 x"),
        ("srun -N8 x", "srun -N2 x"),
        ("deepspeed --num_nodes=8 x", "deepspeed --num_nodes=2 x"),
    ],
)
def test_the_number_of_nodes_is_changed_as_the_command_spells_it(words, changed):
    command = read_command(tuple(words.split()), pytest.fail, {})
    assert command.for_nodes(2) == tuple(changed.split())


def test_one_node_is_told_in_the_singular():
    (cause,) = causes.count(LaunchCommand("torchrun", "torchrun", count=1), EIGHT, SIX)
    assert cause.why == "the command needs 1 node, but 8 are selected, of which 6 can take part"
    (cause,) = causes.count(LaunchCommand("torchrun", "torchrun", count=2), ["a"], ["a"])
    assert cause.why == "the command needs 2 nodes, but 1 is selected"


def test_the_right_count_is_not_in_the_way():
    assert not list(causes.count(LaunchCommand("torchrun", "torchrun", count=8), EIGHT, SIX))
    assert not list(causes.count(LaunchCommand("mpirun", "x"), EIGHT, SIX))


def test_gpus_that_programs_cannot_use_are_told_with_their_part():
    lost = Finding("fell off the bus", part=PartName("gpu5", "GPU 5"), host="b", severity="isolate", fix="reseat it")
    mild = Finding("a damaged infoROM", host="b", severity="warn", fix="reset it")
    verdicts = [Verdict("gpu-lost", "a", "pass"), Verdict("gpu-lost", "b", "fail", (lost, mild))]
    fix = "reseat it; until then leave this node out of the job"
    assert list(causes.gpus(verdicts)) == [Cause("gpus", ("b",), "GPU 5: fell off the bus", fix)]


HERE = {"a": {"lo": "127.0.0.1", "ens5": "10.0.0.1"}, "b": {"lo": "127.0.0.1", "ens5": "10.0.0.2"}}
OWN = {"a": "ens5", "b": "ens5"}


def test_an_interface_that_is_not_there_is_told_with_one_that_is():
    settings = {"a": {"NCCL_SOCKET_IFNAME": "eth0"}, "b": {}}
    (cause,) = causes.interfaces(TORCHRUN, settings, HERE, OWN, {})
    assert cause.nodes == ("a",)
    assert "eth0" in cause.why
    assert cause.fix == "NCCL_SOCKET_IFNAME=ens5"
    assert not list(causes.interfaces(TORCHRUN, {"a": {"NCCL_SOCKET_IFNAME": "^lo"}}, HERE, OWN, {}))


def test_mpirun_has_an_interface_of_its_own():
    wrong = LaunchCommand("mpirun", "x", mpi_interface="eth0")
    (cause,) = causes.interfaces(wrong, {}, HERE, OWN, {})
    assert (cause.nodes, cause.fix) == (("a", "b"), "--mca btl_tcp_if_include ens5")
    assert not list(causes.interfaces(LaunchCommand("mpirun", "x", mpi_interface="10.0.0.0/24"), {}, HERE, OWN, {}))
    assert not list(causes.interfaces(LaunchCommand("mpirun", "x", mpi_interface="ens5,eth9"), {}, HERE, OWN, {}))


def port(device="mlx5_0", state="Active", layer="Ethernet"):
    return IbPort(device, 1, state, "LinkUp", 400.0, layer)


def entry(index, kind="RoCE v2", device="mlx5_0"):
    return Gid(device, 1, index, f"0000:0000:0000:0000:0000:ffff:0a00:000{index}", kind, "eth2")


def test_hcas_that_are_not_up_are_reported():
    (cause,) = causes.rails(
        TORCHRUN, {"a": {"NCCL_IB_HCA": "mlx5_1"}, "b": {}}, {"a": [port(), port("mlx5_1", "Down")]}
    )
    assert (cause.nodes, cause.fix) == (("a",), "remove NCCL_IB_HCA=mlx5_1")
    assert not list(causes.rails(TORCHRUN, {"a": {"NCCL_IB_HCA": "=mlx5_0:1"}}, {"a": [port()]}))


def gid(settings, tables, ports=None):
    return list(causes.gid(TORCHRUN, settings, ports or {key: [port()] for key in tables}, tables))


def test_a_gid_index_that_is_no_roce_v2_is_told_with_one_that_is_everywhere():
    tables = {"a": [entry(1, "IB/RoCE v1"), entry(3), entry(5)], "b": [entry(2), entry(5)]}
    (cause,) = gid({"a": {"NCCL_IB_GID_INDEX": "3"}, "b": {"NCCL_IB_GID_INDEX": "3"}}, tables)
    assert cause == Cause("gid", ("b",), "mlx5_0 has nothing at GID index 3", "NCCL_IB_GID_INDEX=5")
    (cause,) = gid({"a": {"NCCL_IB_GID_INDEX": "1"}}, tables)
    assert "IB/RoCE v1 at GID index 1" in cause.why


def test_where_no_index_is_good_everywhere_none_is_to_be_set():
    tables = {"a": [entry(3)], "b": [entry(5)]}
    (cause,) = gid({key: {"NCCL_IB_GID_INDEX": "3"} for key in tables}, tables)
    assert cause.fix.startswith("unset NCCL_IB_GID_INDEX")


def test_a_gid_index_matters_only_on_ethernet_ports_that_are_used():
    setting = {"a": {"NCCL_IB_GID_INDEX": "3"}}
    assert not gid(setting, {"a": []}, {"a": [port(layer="InfiniBand"), port(state="Down")]})
    assert not gid({"a": {"NCCL_IB_GID_INDEX": "3", "NCCL_IB_HCA": "mlx5_1"}}, {"a": []})
    assert not gid({"a": {}}, {"a": []})


def test_several_nodes_need_one_place_to_meet():
    assert "sets no rendezvous" in causes.rendezvous(TORCHRUN, ["a", "b"])
    assert not causes.rendezvous(TORCHRUN, ["a"])
    assert not causes.rendezvous(MPIRUN, ["a", "b"])


@pytest.mark.parametrize("master", ["localhost", "127.0.0.1", "::1"])
def test_a_place_that_is_every_node_itself_is_none(master):
    command = LaunchCommand("deepspeed", "deepspeed", master=master, rendezvous="--master_addr={master}")
    assert "each node itself" in causes.rendezvous(command, ["a", "b"])
    assert not causes.rendezvous(command, ["a"])


def test_an_interface_that_is_down_is_set_up():
    settings = {name: {"GLOO_SOCKET_IFNAME": "ens5"} for name in HERE}
    (cause,) = causes.interfaces(TORCHRUN, settings, HERE, OWN, {"b": ["ens5"], "a": ["lo"]})
    assert (cause.nodes, cause.fix) == (("b",), "ip link set ens5 up   on these nodes; else look at its cable")
    prefix = {name: {"NCCL_SOCKET_IFNAME": "e"} for name in HERE}
    both = {name: {**own, "eth9": "10.1.0.1"} for name, own in HERE.items()}
    assert not list(causes.interfaces(TORCHRUN, prefix, both, OWN, {"b": ["ens5"]}))  # NCCL takes the other one


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("NCCL_SOCKET_IFNAME", "--env NCCL_SOCKET_IFNAME=ens5,eth1"),
        ("GLOO_SOCKET_IFNAME", "--env GLOO_SOCKET_IFNAME="),
    ],
)
def test_a_name_that_not_all_nodes_have_is_not_proposed(name, fix):
    command = LaunchCommand("launch", "python3", words=("gpuops", "launch"))
    addresses = {"a": {"ens5": "10.0.0.1"}, "b": {"eth1": "10.0.0.2"}}
    own = {"a": "ens5", "b": "eth1"}
    (cause,) = causes.interfaces(command, {n: {name: "ens5"} for n in "ab"}, addresses, own, {})
    assert (cause.nodes, cause.fix) == (("b",), fix)


LOOPBACK = {"a": ("a", ["127.0.1.1"]), "b": ("b", ["127.0.1.1"])}
CPU = LaunchCommand("launch", "python3", environment={"CUDA_VISIBLE_DEVICES": ""}, words=("gpuops", "launch"))


def test_names_that_mean_their_own_machine_are_in_the_way_of_gloo():
    (cause,) = causes.host_names(CPU, {}, LOOPBACK, OWN)
    assert (cause.nodes, cause.fix) == (("a", "b"), "--env GLOO_SOCKET_IFNAME=ens5")
    assert "resolves to 127.0.1.1" in cause.why
    (cause,) = causes.host_names(CPU, {}, {"a": ("a", []), "b": ("b", [])}, {"a": "ens5", "b": "eth1"})
    assert "does not resolve" in cause.why
    assert cause.fix == "give the name of each of these nodes its address in /etc/hosts"


def test_a_name_that_means_its_own_machine_is_no_matter_alone_or_without_gloo():
    assert not list(causes.host_names(CPU, {}, {**LOOPBACK, "a": ("a", ["10.0.0.1"])}, OWN))
    assert not list(causes.host_names(CPU, {"b": {"GLOO_SOCKET_IFNAME": "ens5"}}, LOOPBACK, OWN))
    assert not list(causes.host_names(TORCHRUN, {}, LOOPBACK, OWN))  # a job with GPUs may use NCCL alone
    mpi = LaunchCommand("mpirun", "x", environment=CPU.environment)
    assert not list(causes.host_names(mpi, {}, LOOPBACK, OWN))


def test_a_job_without_gpus_says_so_where_its_scripts_name_them():
    places = {name: {"CUDA_VISIBLE_DEVICES": "static-@.sh:3: "} for name in "ab"}
    command = LaunchCommand(
        "torchrun",
        "torchrun",
        words=("gpuops", "launch"),
        by_node={name: NodeCommand(places=own) for name, own in places.items()},
    )
    (cause,) = causes.no_gpu(command, ["a", "b"])
    assert cause.fix == "use nodes with GPUs; for a job that uses none: static-@.sh:3: CUDA_VISIBLE_DEVICES="
    (cause,) = causes.no_gpu(CPU, ["a"])
    assert cause.fix.endswith(": --env CUDA_VISIBLE_DEVICES=")

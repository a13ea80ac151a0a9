import dataclasses

import pytest

from gpuops.lab.collective.launch import Member, read_launch
from gpuops.lab.collective.log import printed
from gpuops.lab.collective.speed import Place, speed
from gpuops.lab.faults.catalogue import faulted
from gpuops.probes.nvidia.nccl_log import parse_nccl_log
from gpuops.probes.nvidia.nccl_tests import parse_nccl_tests

LARGE = ("-b", "8G", "-e", "8G")


def place(host="a", *faults, machine="hgx-h100", gpus=range(8), **environment):
    node = faulted(machine, faults)
    return Place(host, node, tuple(node.gpus[index] for index in gpus), environment)


def rate(*places):
    return speed(places).gb_per_s


def rail(host, *faults, index=3):
    return place(host, *faults, gpus=[index], NCCL_IB_HCA=f"=mlx5_{index}:1")


@pytest.mark.parametrize(
    ("one", "low", "high"),
    [
        (place(), 470, 485),
        (place(NCCL_NVLS_ENABLE="0"), 355, 375),
        (place(gpus=range(4)), 355, 375),
        (place(machine="dgx-a100"), 225, 235),
        (place(machine="titan-rtx-2x", gpus=range(2)), 35, 45),
        (place(machine="titan-rtx-2x", gpus=range(2), NCCL_P2P_DISABLE="1"), 5, 9),
    ],
)
def test_within_a_node_the_model_is_near_what_was_published(one, low, high):
    assert low < rate(one) < high


def test_between_nodes_the_model_is_near_what_was_published():
    assert 460 < rate(place("a"), place("b")) < 485
    assert 380 < rate(*map(place, "abcdefgh")) < 395
    assert rate(rail("a"), rail("b")) == pytest.approx(48.0)


def test_a_link_that_is_down_costs_its_share_with_every_algorithm():
    for settings in ({}, {"NCCL_NVLS_ENABLE": "0"}):
        whole, less = place("a", **settings), place("a", "gpu2:nvlink-down=7", **settings)
        assert rate(less) == pytest.approx(rate(whole) * 17 / 18)


def test_a_slow_gpu_is_slow_over_nvlink_alone():
    assert rate(place("a", "gpu2:slow=20")) == pytest.approx(rate(place("a")) * 0.8)
    assert rate(rail("a", "gpu3:slow=20"), rail("b")) == rate(rail("a"), rail("b"))


def test_a_slow_nic_shows_on_its_rail_and_hides_in_a_pair_of_whole_nodes():
    assert rate(rail("a", "mlx5_3:slow=20"), rail("b")) == pytest.approx(rate(rail("a"), rail("b")) * 0.8)
    assert rate(rail("a", "mlx5_4:slow=20"), rail("b")) == rate(rail("a"), rail("b"))
    assert rate(place("a", "mlx5_3:slow=20"), place("b")) == rate(place("a"), place("b"))
    others = [place(name) for name in "bcdefgh"]
    assert rate(place("a", "mlx5_3:slow=20"), *others) == pytest.approx(rate(place("a"), *others) * 0.8)


def test_a_nic_that_is_slow_both_ways_is_slow_in_an_all_reduce():
    slow = rail("a", "mlx5_3:slow-duplex=20")
    assert rate(slow, rail("b")) == pytest.approx(rate(rail("a"), rail("b")) * 0.8)
    assert slow.nics[0].gb_per_s == 50.0


def test_a_port_at_another_rate_is_as_slow_as_that():
    assert rate(rail("a", "mlx5_3:rate=200"), rail("b")) == pytest.approx(24.0)


def test_without_an_rdma_port_nccl_takes_sockets():
    found = speed([rail("a", "mlx5_3:port-down"), rail("b")])
    assert found.network == "Socket"
    assert found.gb_per_s < 2


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ("=mlx5_1:1", ["mlx5_1"]),
        ("=mlx5_1,mlx5_2", ["mlx5_1", "mlx5_2"]),
        ("mlx5", [f"mlx5_{index}" for index in range(9)]),
        ("^mlx5_8,mlx5_7", [f"mlx5_{index}" for index in range(7)]),
        ("^=mlx5_8", [f"mlx5_{index}" for index in range(8)]),
    ],
)
def test_hcas_are_chosen_as_nccl_does(wanted, names):
    assert [nic.name for nic in place(NCCL_IB_HCA=wanted).nics] == names


def test_mpirun_places_processes_by_its_hosts():
    words = "--allow-run-as-root --mca pml ob1 --host b:8,c:8 -np 12 --timeout 40 env A=1 /opt/x/all_reduce_perf -b 1G"
    launch = read_launch("mpirun", words.split(), "a", {"HOME": "/h"})
    env = {"HOME": "/h", "A": "1"}
    assert launch.members == (Member("b", 8, env), Member("c", 4, env))
    assert (launch.program, launch.words, launch.timeout_seconds) == ("all_reduce_perf", ("-b", "1G"), 40.0)


def test_each_context_of_mpirun_has_an_environment_of_its_own():
    words = "-np 1 --host a:1 -x D=0 env A=1 all_reduce_perf -b 1G : -np 1 --host b:1 env A=2 all_reduce_perf -b 1G"
    launch = read_launch("mpirun", words.split(), "a", {})
    assert launch.members == (Member("a", 1, {"D": "0", "A": "1"}), Member("b", 1, {"A": "2"}))


def test_srun_places_processes_by_its_nodes():
    words = "--nodes=2 -w a,b --ntasks-per-node 8 setpriv --pdeathsig KILL env A=1 all_reduce_perf"
    assert read_launch("srun", words.split(), "z", {}).members == (
        Member("a", 8, {"A": "1"}),
        Member("b", 8, {"A": "1"}),
    )


def test_a_file_of_hosts_is_refused():
    with pytest.raises(ValueError, match="--host"):
        read_launch("mpirun", ["--hostfile", "hosts", "all_reduce_perf"], "a", {})


def test_a_launcher_without_a_program_says_so():
    with pytest.raises(ValueError, match="no executable"):
        read_launch("mpirun", ["-np", "2"], "a", {})


def test_what_is_printed_is_what_nccl_tests_would():
    places = [place("a", NCCL_DEBUG="INFO"), place("b", NCCL_DEBUG="INFO")]
    launch = read_launch("mpirun", ["--host", "a:8,b:8", "all_reduce_perf", *LARGE], "a", {})
    text = printed(launch, places, speed(places), 1)
    (run,) = parse_nccl_tests(text)
    assert len(run.ranks) == 16
    assert run.complete
    assert run.largest.out_of_place.busbw_gb_per_s == pytest.approx(speed(places).gb_per_s, rel=0.02)
    log = parse_nccl_log(text)
    assert (log.network_transports, log.gpu_direct, log.algorithm) == (("NET/IB",), True, "NVLS_TREE")
    assert log.ready == {"a": 8, "b": 8}


def test_noise_differs_between_repeats_and_not_between_labs():
    launch = read_launch("all_reduce_perf", LARGE, "a", {})
    texts = [printed(launch, [place()], speed([place()]), repeat) for repeat in (1, 2, 1)]
    assert texts[0] == texts[2] != texts[1]


def test_every_operation_has_its_own_bus_bandwidth():
    for program in ("all_reduce_perf", "all_gather_perf", "reduce_scatter_perf", "alltoall_perf", "sendrecv_perf"):
        launch = dataclasses.replace(read_launch("all_reduce_perf", LARGE, "a", {}), program=program)
        (run,) = parse_nccl_tests(printed(launch, [place()], speed([place()]), 1))
        assert run.largest.out_of_place.busbw_gb_per_s == pytest.approx(480, rel=0.03), program

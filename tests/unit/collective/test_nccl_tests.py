import dataclasses

import pytest
from tests.recorded import HERE

from gpuops.collective.engines import Sweep
from gpuops.collective.engines.nccl_tests.outcome import NcclTestsLaunch, curve_of, figure_of
from gpuops.isolation.rounds import RankGroup
from gpuops.shell import Command, Completed

PAIR = RankGroup(("gpu01", "gpu02"), rail=3)
TASK = NcclTestsLaunch(PAIR, 2, {"gpu01": "10.0.0.1", "gpu02": "10.0.0.2"}, rdma=True)
HEAD = """\
# Using devices
#  Rank  0 Group  0 Pid    901 on gpu01 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid    902 on gpu02 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
"""
ROW = "  1073741824   268435456   float   sum   -1    22000   48.80   48.80      0    22220   48.32   48.32      0\n"
END = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 48.56\n"
INFO = """\
NCCL version 2.28.9+cuda13.0
gpu01:901:933 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA
gpu02:902:934 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/IB/0/GDRDMA
gpu01:901:933 [0] NCCL INFO AllReduce: 1073741824 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..3}
"""
GOOD = HEAD + INFO + ROW + END
READY = "{0}:901:933 [0] NCCL INFO ncclCommInitRank comm 0x55d0 rank 0 nranks 2 cudaDev 0 - Init COMPLETE\n"


def figure(out="", err="", task=TASK, **how):
    return figure_of(task, Completed("gpu01", Command(("mpirun",)), how.pop("exit", 0), out, err, **how))


def test_a_good_run_is_a_figure_with_its_spread_and_how_nccl_went_about_it():
    found = figure(GOOD)
    assert (found.gb_per_s, found.trouble, found.absent) == (48.8, "", ())
    assert found.spread == pytest.approx(0.0099, abs=1e-4)
    assert found.detail == "NCCL 2.28.9, RING/SIMPLE over NET/IB with GDRDMA"


def test_wrong_sums_are_no_figure():
    found = figure(GOOD.replace("      0    22220", "   4096    22220"))
    assert (found.gb_per_s, found.trouble) == (None, "wrong")
    assert "48.8 GB/s" in found.detail


def test_a_run_that_was_cut_is_no_figure():
    found = figure(HEAD + INFO + ROW)
    assert (found.gb_per_s, found.trouble) == (None, "error")


@pytest.mark.parametrize(
    "how",
    [
        {"exit": 137, "timed_out": True, "seconds": 40.0},
        {"exit": 110, "err": "The user-provided time limit for job execution has been reached:\n", "seconds": 40.0},
    ],
)
def test_a_hang_names_who_came_less_far(how):
    assert figure(HEAD, **how).absent == ()
    found = figure(READY.format("gpu01"), **how)
    assert (found.gb_per_s, found.trouble, found.absent) == (None, "hang", ("gpu02",))
    assert "40 s" in found.detail
    said = "gpu02.site:902:934 [0] NCCL INFO Bootstrap : Using eth0\n".replace(".site", "")
    assert figure(READY.format("gpu01") + said, **how).absent == ("gpu02",)
    assert figure(said, **how).absent == ("gpu01",)


def test_a_hang_after_some_rows_is_a_hang():
    found = figure(HEAD + INFO + ROW, exit=137, timed_out=True, seconds=40.0)
    assert (found.gb_per_s, found.trouble) == (None, "hang")


def test_tcp_where_there_is_rdma_is_said_and_not_judged():
    slow = GOOD.replace("NET/IB/0/GDRDMA", "NET/Socket/0").replace("48.80", " 1.10")
    found = figure(slow)
    assert (found.gb_per_s, found.trouble) == (None, "socket")
    assert "1.1 GB/s" in found.detail
    late = figure(HEAD + INFO.replace("IB/0/GDRDMA", "Socket/0"), exit=137, timed_out=True)
    assert late.trouble == "socket"


def test_tcp_where_there_is_nothing_else_is_a_figure():
    slow = GOOD.replace("NET/IB/0/GDRDMA", "NET/Socket/0").replace("48.80", " 1.10")
    assert figure(slow, task=dataclasses.replace(TASK, rdma=False)).gb_per_s == 1.1


COPIED = GOOD.replace("/GDRDMA", "")
NO_MODULE = "gpu01:901:933 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_3'\n"


def test_rdma_through_host_memory_is_a_trouble_of_its_own():
    result = figure(COPIED)
    assert (result.gb_per_s, result.trouble, result.absent) == (None, "no-gpudirect", ())
    assert "GPUDirect (48.8 GB/s)" in result.detail
    assert figure(NO_MODULE + COPIED).detail.endswith("; GPU Direct RDMA Disabled for HCA 0 'mlx5_3'")


def test_a_card_without_gpudirect_blames_nothing():
    for name in ("NVIDIA GeForce RTX 4090", "NVIDIA TITAN RTX", "NVIDIA GB10"):
        assert figure(COPIED.replace("NVIDIA H100 80GB HBM3", name)).gb_per_s == 48.8
    assert figure(COPIED.replace("NVIDIA H100 80GB HBM3", "NVIDIA GB100")).trouble == "no-gpudirect"
    assert figure(COPIED, task=dataclasses.replace(TASK, rdma=False)).gb_per_s == 48.8


def test_sending_through_host_memory_is_the_choice_of_nccl_before_ampere():
    receive = "gpu02:902:934 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0{}\n"
    assert figure(receive.format("/GDRDMA") + COPIED).gb_per_s == 48.8
    assert figure(receive.format("") + COPIED).trouble == "no-gpudirect"


def test_gpu_memory_that_the_nic_cannot_register_is_no_gpudirect():
    warning = "gpu01:901:950 [0] misc/ibvwrap.cc:195 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Bad address"
    assert figure(f"{HEAD}{warning}\n", exit=3).trouble == "no-gpudirect"
    assert figure(f"{HEAD}{warning}\n", exit=3, task=dataclasses.replace(TASK, rdma=False)).trouble == "error"
    locked = warning.replace("Bad address", "Cannot allocate memory")
    assert figure(f"{HEAD}{locked}\n", exit=3).trouble == "error"


@pytest.mark.parametrize("host", ["gpu1", "gpu01", "a-host-name-of-more-than-ten-characters"])
def test_a_build_without_mpi_is_noticed_whatever_the_length_of_its_host_names(host):
    """Each process measures alone, as rank 0 of one: its bus bandwidth is zero."""
    alone = "".join(line for line in HEAD.splitlines(keepends=True) if "Rank  1" not in line)
    alone = alone.replace("on gpu01 device", f"on {host:>10} device") + ROW.replace("48.80", " 0.00") + END
    result = figure(alone + alone)
    assert (result.gb_per_s, result.trouble) == (None, "error")
    assert "only 1 of 2 ranks found each other; build nccl-tests with MPI=1" in result.detail


def test_ranks_that_are_not_listed_are_no_group():
    unlisted = "".join(line for line in GOOD.splitlines(keepends=True) if "Rank" not in line)
    assert (figure(unlisted).gb_per_s, figure(unlisted).trouble) == (None, "error")


def test_ranks_that_all_ran_on_one_host_are_no_group():
    result = figure(GOOD.replace("on gpu02 device  0", "on gpu01 device  1"))
    assert (result.gb_per_s, result.trouble) == (None, "error")
    assert "the ranks ran on 1 of 2 hosts: gpu01" in result.detail


def test_zero_is_no_figure():
    result = figure(GOOD.replace("48.80   48.80", " 0.00    0.00"))
    assert (result.gb_per_s, result.trouble, result.detail) == (None, "error", "nccl-tests printed 0 GB/s")


def test_a_row_that_nccl_interrupts_is_a_figure():
    """NCCL 2.20 and newer report each operation of rank 0, in the middle of the row that nccl-tests prints."""
    info = INFO.splitlines(keepends=True)[-1]
    broken = ROW.replace("-1 ", f"-1{info}{info} ").replace("48.80      0 ", f"48.80      0{info} ")
    assert figure(HEAD + INFO + broken + END) == figure(GOOD)


def test_a_half_that_was_not_measured_leaves_the_other_one():
    numbers = ROW.split()
    lead = " ".join(numbers[:5])
    in_place = figure(f"{HEAD}{INFO}{lead}{'':32}  {'  '.join(numbers[9:])}\n{END}")
    assert (in_place.gb_per_s, in_place.spread) == (48.32, 0.0)
    out_of_place = figure(f"{HEAD}{INFO}{lead}  {'  '.join(numbers[5:9])}\n{END}")
    assert (out_of_place.gb_per_s, out_of_place.spread) == (48.8, 0.0)
    assert figure(f"{HEAD}{INFO}{lead}  {'  '.join(numbers[5:9])}{'':32}\n{END}") == out_of_place


def test_a_list_of_ranks_that_did_not_fit_is_no_trouble_within_a_node():
    """One process with many GPUs cuts its list after 2047 characters."""
    task = NcclTestsLaunch(RankGroup(("gpu01",)), 3, {"gpu01": "10.0.0.1"}, rdma=False)
    one = GOOD.replace("on gpu02 device  0", "on gpu01 device  1")
    assert figure(one, task=task).trouble == "error"
    listed = one.replace("#       size", "#  Rank  2 Group  0 Pid    90...\n#       size")
    assert figure(listed, task=task).gb_per_s == 48.8


@pytest.mark.parametrize(
    ("err", "absent"),
    [
        ("ssh: connect to host 10.0.0.2 port 22: Connection refused\n", ("gpu02",)),
        ("ssh: connect to host gpu02 port 22: No route to host\n", ("gpu02",)),
        ("ssh: Could not resolve hostname gpu02: Name or service not known\n", ("gpu02",)),
        ("Host key verification failed.\n", ()),
    ],
)
def test_who_cannot_be_reached_between_nodes_is_named(err, absent):
    found = figure(err=f"{err}ORTE was unable to reliably start one or more daemons.\n", exit=255)
    assert (found.trouble, found.absent) == ("unreachable", absent)
    assert found.detail == err.strip()


def test_a_connection_that_nccl_could_not_make_is_unreachable():
    warn = "\ngpu01:901:933 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.0.0.2<4321> failed : "
    found = figure(HEAD + warn + "Connection refused\n", exit=3)
    assert (found.trouble, found.absent) == ("unreachable", ())
    assert "Connection refused" in found.detail


@pytest.mark.parametrize(
    ("err", "says"),
    [
        ("gpu02: Test CUDA failure common.cu:1022 'invalid device ordinal'\n", "invalid device ordinal"),
        ("-----\nmpirun was unable to find the specified executable file\n-----\n", "unable to find"),
        ("all_reduce_perf: error while loading shared libraries: libnccl.so.2\n-----\nmpirun det\n", "libnccl.so.2"),
        ("", "no output"),
    ],
)
def test_another_failure_says_what_failed(err, says):
    found = figure(err=err, exit=1)
    assert (found.gb_per_s, found.trouble) == (None, "error")
    assert says in found.detail


def test_ranks_that_each_ran_by_themselves_are_no_group():
    alone = GOOD.replace(GOOD.splitlines(keepends=True)[2], "")
    assert "MPI=1" in figure(alone).detail
    assert figure(alone + alone).trouble == "error"


@pytest.mark.parametrize("cut", range(0, len(GOOD), 7))
def test_no_part_of_a_log_gives_another_figure(cut):
    found = figure(GOOD[:cut])
    assert found.gb_per_s in (None, 48.8)
    assert found.gb_per_s is None or cut > GOOD.index("# Avg")


def recorded(name):
    return (HERE / "specimens" / "outputs" / "nccl" / name).read_bytes().decode()


NO_DRIVER = "'CUDA driver version is insufficient for CUDA runtime version'"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("2.13.0-no-driver.log", f"gpu01: Test CUDA failure common.cu:846 {NO_DRIVER}"),
        ("2.19.6-no-driver.log", f"gpu01: Test CUDA failure util.cu:674 {NO_DRIVER}"),
        ("2.19.6-no-driver-mpi.log", f"gpu01: Test CUDA failure util.cu:674 {NO_DRIVER}"),
        ("2.19.6-too-few-gpus.log", "Invalid number of GPUs: 2 requested but only 1 were found."),
        ("2.19.6-nccl-failure.log",
         "gpu01: Test NCCL failure all_reduce.cu:507 'remote process exited or there was a network error / '"),
    ],
)  # fmt: skip
def test_a_recorded_failure_has_the_words_of_the_test(name, words):
    result = figure(recorded(name), exit=2)
    assert (result.gb_per_s, result.trouble, result.detail) == (None, "error", words)


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("2.19.6-mpi.log", 210.96),
        ("2.19.6-rows-that-nccl-interrupts.log", 58.01),
        ("kubectl-timestamps-colours.log", 210.96),
        ("in-place-only.log", 214.12),
        ("out-of-place-only.log", 210.96),
    ],
)
def test_a_recorded_run_of_two_nodes_is_a_figure(name, rate):
    result = figure(recorded(name))
    assert (result.gb_per_s, result.trouble) == (rate, "")


def test_a_recorded_run_without_mpi_is_no_figure():
    result = figure(recorded("2.13.0-without-mpi.log"))
    assert (result.gb_per_s, result.trouble) == (None, "error")
    assert "build nccl-tests with MPI=1" in result.detail


def test_a_timeout_of_the_test_is_a_hang():
    result = figure(f"{HEAD}gpu02: Test timeout (30s) common.cu:523\n", exit=3, seconds=31.0)
    assert (result.trouble, result.gb_per_s) == ("hang", None)


def test_the_failure_and_the_warning_of_nccl_are_both_named():
    failure = "gpu01: Test NCCL failure common.cu:1000 'unhandled system error / '\n"
    warning = "\ngpu01:901:950 [0] transport/shm.cc:590 NCCL WARN Cuda failure 2 'out of memory'\n"
    detail = figure(f"{HEAD}{warning}{failure}", exit=3).detail
    assert detail == f"{failure.strip()}; Cuda failure 2 'out of memory'"


ROWS = """\
        1024         256   float   sum   -1gpu01:901:901 [0] NCCL INFO AllReduce: 1024 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}
    20.00    0.05    0.05      0    20.50    0.05    0.05      0
     1048576      262144   float   sum   -1    64.00   16.38   16.38      0    65.00   16.13   16.13      0
gpu01:901:901 [0] NCCL INFO AllReduce: 1073741824 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..3}
  1073741824   268435456   float   sum   -1    22000   48.80   48.80      0    22220   48.32   48.32      0
"""  # noqa: E501 - NCCL writes into the row


def curve(out="", *, operation="all_reduce", task=TASK, **how):
    answer = Completed("gpu01", Command(("mpirun",)), how.pop("exit", 0), out, **how)
    return curve_of(Sweep(PAIR, (1024, 1 << 20, 1 << 30)), task, answer, operation)


def test_curve_has_a_point_for_each_row():
    found = curve(HEAD + INFO + ROWS + END)
    assert (found.trouble, [point.size_bytes for point in found.points]) == ("", [1024, 1 << 20, 1 << 30])
    assert [point.algorithm for point in found.points] == ["RING/LL", "", "RING/SIMPLE"]
    small, _, large = found.points
    # the time has more digits than the printed bandwidth of 0.05
    assert small.gb_per_s == pytest.approx(1024 / 20e-6 / 1e9)
    assert large.gb_per_s == pytest.approx(48.806, abs=1e-3)
    assert large.spread == pytest.approx(0.0099, abs=1e-4)


def test_bus_bandwidth_of_a_point_has_the_factor_of_its_operation():
    eight = dataclasses.replace(TASK, ranks=8)
    halves = HEAD.replace("Rank  1", "Rank  7")
    for operation, factor in (("all_reduce", 1.75), ("all_gather", 0.875), ("send_recv", 1.0)):
        found = curve(halves + INFO + ROWS, operation=operation, task=eight, exit=137, timed_out=True)
        assert found.points[0].gb_per_s == pytest.approx(factor * found.points[0].algbw_gb_per_s)


def test_curve_that_hangs_keeps_the_sizes_before():
    rows = "".join(ROWS.splitlines(keepends=True)[:3])
    found = curve(HEAD + INFO + rows, exit=137, timed_out=True, seconds=40.0)
    assert (found.trouble, [point.size_bytes for point in found.points]) == ("hang", [1024, 1 << 20])


def test_curve_on_a_wrong_path_has_no_points():
    slow = (HEAD + INFO + ROWS + END).replace("NET/IB/0/GDRDMA", "NET/Socket/0")
    assert (curve(slow).trouble, curve(slow).points) == ("socket", ())


def test_curve_without_time_or_of_nothing_has_only_the_points_that_moved_data():
    in_place = HEAD + ROWS.replace("    20.00    0.05    0.05      0 ", "      N/A     N/A     N/A    N/A ") + END
    assert curve(INFO + in_place).points[0].seconds == pytest.approx(20.5e-6)
    empty = (
        "           0           0   float   sum   -1     0.10    0.00    0.00      0     0.10    0.00    0.00      0\n"
    )
    assert [point.size_bytes for point in curve(HEAD + INFO + empty + ROW + END).points] == [1 << 30]

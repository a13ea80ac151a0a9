"""The real engine and the real scripts on the node, with stand-ins for libcuda and libnccl."""

import ctypes
import os
import pathlib
import shutil
import signal
import socket
import threading
import time

import pytest

from gpuops.collective.engines import Load, Sweep
from gpuops.isolation.fabric import Fabric, FabricNic, FabricNode
from gpuops.isolation.rounds import RankGroup, Round

MIB = 1 << 20
PAIR = RankGroup(("a", "b"))


def only(figures):
    (figure,) = figures
    return figure


def pair_of(engine):
    return only(engine.measure(Round("pair", (PAIR,))))


def goes_well(figure):
    assert figure.trouble == "", figure
    assert figure.gb_per_s > 0
    return True


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"])
@pytest.mark.parametrize("jit", ["on the GPU", "copied back"])
def test_every_operation_is_timed_and_its_result_is_right(an_engine, operation, jit):
    load = Load(operation, size_bytes=3 * MIB + 4, iterations=5, warmups=1)  # no multiple of anything
    environment = {"STUB_NO_JIT": "1"} if jit == "copied back" else {}
    figure = pair_of(an_engine("a", "b", load=load, **environment))
    assert figure.trouble == ""
    assert figure.gb_per_s > 0
    assert figure.spread > 0


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "all_to_all"])
def test_sweep_moves_and_checks_every_size_in_one_communicator(an_engine, all_pids, operation):
    engine = an_engine("a", "b", load=Load(operation, iterations=5, warmups=1))
    sizes = tuple(1 << power for power in (4, 10, 14, 20))
    (curve,) = engine.sweep([Sweep(PAIR, sizes)])
    assert (curve.trouble, [point.size_bytes for point in curve.points]) == ("", list(sizes))
    assert all(point.seconds > 0 for point in curve.points)
    before = all_pids(engine)
    (again,) = engine.sweep([Sweep(PAIR, sizes)])
    assert (again.trouble, all_pids(engine)) == ("", before)


def test_setting_of_a_sweep_reaches_its_ranks_alone(an_engine, process):
    engine = an_engine("a", "b")
    for setting in ({"NCCL_COLLNET_ENABLE": "1"}, {}):
        (curve,) = engine.sweep([Sweep(PAIR, (1024,), setting)])
        assert curve.trouble == ""
        environments = [process.environment(pid) for node in "ab" for pid in engine.pids[node][1:]]
        assert [("NCCL_COLLNET_ENABLE" in seen) for seen in environments] == [bool(setting)] * 4


def test_wrong_sum_is_seen_at_any_size(an_engine):
    (curve,) = an_engine("a", "b", STUB_FAULT="adds-wrong:3:7").sweep([Sweep(PAIR, (1024, 1 << 20))])
    assert (curve.trouble, curve.points) == ("wrong", ())


def test_ids_are_made_where_rank_0_is_and_arrive_whole_on_every_node(an_engine):
    engine = an_engine("a", "b", "c")
    groups = (RankGroup(("b", "c")), RankGroup(("a",)))
    for _ in range(4):  # every id is another 128 bytes, with NULs among them
        assert [figure.trouble for figure in engine.measure(Round("group", groups))] == ["", ""]
    assert goes_well(pair_of(engine))


def test_processes_stay_from_round_to_round_as_long_as_their_environment_fits(an_engine, process, all_pids):
    engine = an_engine("a", "b")
    pair_of(engine)
    before = all_pids(engine)
    assert len(before) == 2 + 4
    pair_of(engine)
    assert all_pids(engine) == before
    assert only(engine.measure(Round("node", (RankGroup(("a",), variant="ring"),)))).trouble == ""
    assert len(set(all_pids(engine)) & set(before)) == 2 + 2
    assert process.gone(set(before) - set(all_pids(engine)))
    engine.close()
    assert process.gone(before)


def test_a_rank_gets_its_whole_environment_and_nothing_by_chance(an_engine, process, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("NCCL_IB_GID_INDEX", "3")
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    engine = an_engine("a", "b", NCCL_ALGO="Ring")
    engine.measure(Round("node", (RankGroup(("a",), variant="no-p2p"),)))
    supervisor, *ranks = engine.pids["a"]
    seen = process.environment(ranks[0])
    assert "CUDA_VISIBLE_DEVICES" not in seen
    assert {"NCCL_IB_GID_INDEX=3", "NCCL_ALGO=Ring"} <= set(engine.settings["a"])
    assert seen["NCCL_IB_GID_INDEX"] == engine.surveys["a"].environment["NCCL_IB_GID_INDEX"] == "3"
    assert (seen["NCCL_DEBUG"], seen["CUDA_DEVICE_ORDER"]) == ("INFO", "PCI_BUS_ID")
    assert (seen["NCCL_P2P_DISABLE"], seen["NCCL_ALGO"]) == ("1", "Ring")
    assert process.environment(supervisor)["CUDA_VISIBLE_DEVICES"] == "1"


def test_a_rail_pins_one_gpu_of_each_node_to_one_nic(an_engine, process):
    nics = (FabricNic("lo", 0, 1.0), FabricNic("eth9", 1, 1.0))  # plain interfaces: there is no RDMA on this machine
    engine = an_engine("a", "b", fabric=Fabric({name: FabricNode(name, (0, 1), nics) for name in "ab"}))
    groups = (RankGroup(("a", "b"), rail=0), RankGroup(("a", "b"), rail=1))
    assert [figure.trouble for figure in engine.measure(Round("rail", groups))] == ["", ""]
    seen = [process.environment(pid) for pid in engine.pids["b"][1:]]
    assert sorted(one["NCCL_SOCKET_IFNAME"] for one in seen) == ["=eth9", "=lo"]
    assert {one["NCCL_IB_DISABLE"] for one in seen} == {"1"}
    absent = only(engine.measure(Round("rail", (RankGroup(("a", "b"), rail=5),))))
    assert (absent.trouble, absent.detail) == ("error", "a has no NIC and GPU on rail 5")


def test_a_wrong_sum_is_seen_whatever_looks_at_it(an_engine):
    for environment in ({}, {"STUB_NO_JIT": "1"}):
        figure = pair_of(an_engine("a", "b", STUB_FAULT="adds-wrong:3:7", **environment))
        assert (figure.trouble, figure.gb_per_s) == ("wrong", None)
        assert "1 of 262144 elements at b:gpu1" in figure.detail


@pytest.mark.parametrize(
    ("fault", "trouble", "absent", "told"),
    [
        ("dies-at-init:2", "error", ("b:gpu0",), "making the communicator: b:gpu0: its process ended by signal 6"),
        ("dies:1:4", "error", ("a:gpu1",), "timed runs: a:gpu1: its process ended by signal 6"),
        (
            "refuses:3",
            "unreachable",
            (),
            "unhandled system error: told by the stub; Connect to 10.0.0.9<4242> failed : Connection refused",
        ),
        ("breaks:0", "error", ("a:gpu0",), "first runs: a:gpu0: NCCL failed: unhandled system error: told by the stub"),
        ("takes-another-gpu:2", "error", ("b:gpu0",), "b:gpu0: NCCL uses GPU 1 instead of GPU 0"),
        ("sleeps-at-init:3", "hang", (), "making the communicator: not finished in time: 4 ranks as a:gpu0 at join"),
        ("sleeps-at-launch:2:4", "hang", ("b:gpu0",), "b:gpu0 at launch, 3 ranks as a:gpu0 at run"),
        ("sleeps-on-gpu:1:4", "hang", (), "timed runs: not finished in time: 4 ranks as a:gpu0 at run 2"),
        ("sleeps-at-leaving:1", "hang", ("a:gpu1",), "a:gpu1 at leave"),
    ],
)
def test_what_goes_wrong_is_told_apart_and_nothing_of_it_stays(
    an_engine, process, all_pids, fault, trouble, absent, told
):
    engine = an_engine("a", "b", STUB_FAULT=fault, patient=False)
    figure = pair_of(engine)
    assert (figure.trouble, figure.absent, figure.gb_per_s) == (trouble, absent, None)
    assert told in figure.detail
    supervisors = {of_node[0] for of_node in engine.pids.values()}
    assert process.gone(set(all_pids(engine)) - supervisors)
    assert process.alive(supervisors) == sorted(supervisors, key=list(supervisors).index)


def test_nobody_waits_for_a_group_of_which_one_rank_died(an_engine):
    engine = an_engine("a", "b", "c", STUB_FAULT="dies-at-init:3")
    began = time.monotonic()
    figures = engine.measure(Round("pair", (PAIR, RankGroup(("c",)))))
    assert [(figure.trouble, figure.absent) for figure in figures] == [("error", ("b:gpu1",)), ("", ())]
    assert time.monotonic() - began < 20  # and not the 30 s that a communicator may take


def test_a_hang_of_one_group_is_no_matter_of_the_others_and_the_next_round_goes_well(an_engine):
    engine = an_engine("a", "b", "c", "d", STUB_FAULT="sleeps-at-launch:3:2", patient=False)
    halves = (RankGroup(("a", "b")), RankGroup(("c",)), RankGroup(("d",)))
    hung, *well = engine.measure(Round("group", halves))
    assert (hung.trouble, hung.absent) == ("hang", ("b:gpu1",))
    assert [figure.trouble for figure in well] == ["", ""]
    again = engine.measure(Round("node", (RankGroup(("a",)), RankGroup(("b",)))))
    assert [figure.trouble for figure in again] == ["", ""]


def test_a_stopped_rank_is_the_one_that_did_not_arrive(an_engine, process):
    engine = an_engine("a", "b", patient=False)
    pair_of(engine)
    victim = engine.pids["b"][2]
    os.kill(victim, signal.SIGSTOP)
    figure = pair_of(engine)
    assert (figure.trouble, figure.absent) == ("hang", ("b:gpu1",))
    assert "in state T" in figure.detail
    assert process.gone([victim])
    assert goes_well(pair_of(engine))


def test_a_stopped_node_is_the_one_that_did_not_arrive(an_engine, process):
    engine = an_engine("a", "b", patient=False)
    pair_of(engine)
    of_b = engine.pids["b"]
    os.kill(of_b[0], signal.SIGSTOP)
    figure = pair_of(engine)
    assert (figure.trouble, figure.absent) == ("hang", ("b",))
    assert goes_well(pair_of(engine))
    assert process.gone(of_b)


def test_killed_ranks_and_killed_supervisors_take_all_of_theirs_along(an_engine, process, all_pids):
    engine = an_engine("a", "b")
    pair_of(engine)
    supervisor, *ranks = engine.pids["a"]
    os.kill(supervisor, signal.SIGKILL)
    assert process.gone([supervisor, *ranks])
    figure = pair_of(engine)
    assert (figure.trouble, figure.absent) == ("error", ("a",))
    assert "a: the worker ended by signal 9" in figure.detail
    assert goes_well(pair_of(engine))
    victim = engine.pids["b"][1]
    os.kill(victim, signal.SIGKILL)
    assert process.gone([victim])
    time.sleep(0.2)  # its streams close with its last thread
    assert goes_well(pair_of(engine))
    assert victim not in all_pids(engine)


def test_rank_killed_in_mid_round_is_the_error_of_each_of_its_groups(an_engine):
    engine = an_engine("a", "b", "c", STUB_FAULT="sleeps-on-gpu:1:4")

    def kill():
        while len(engine.pids["b"]) < 3:
            time.sleep(0.05)
        os.kill(engine.pids["b"][2], signal.SIGKILL)

    for group in (RankGroup(("b", "a")), RankGroup(("b", "c")), RankGroup(("b",))):
        killer = threading.Thread(target=kill)
        killer.start()
        figure = only(engine.measure(Round("pair", (group,))))
        killer.join()
        assert (figure.trouble, figure.absent, figure.gb_per_s) == ("error", ("b:gpu1",), None)
        assert "b:gpu1: its process ended by signal 9" in figure.detail


def test_closing_ends_everything_even_in_the_middle_of_a_hang(an_engine, process, all_pids):
    engine = an_engine("a", "b", STUB_FAULT="sleeps-on-gpu:1:0")
    measuring = threading.Thread(target=pair_of, args=(engine,))
    measuring.start()
    ends = time.monotonic() + 20
    while len(pids := all_pids(engine)) < 6 and time.monotonic() < ends:
        time.sleep(0.1)
    assert len(process.alive(pids)) == 6
    engine.close()
    assert process.gone(pids)
    measuring.join(20)
    assert not measuring.is_alive()


def test_a_gpu_whose_context_cannot_be_had_is_named(an_engine):
    engine = an_engine(
        "a",
        "b",
        STUB_SLEEPS_AT_LOAD="1",
        patient=False,
        fabric=Fabric({"a": FabricNode("a", (0, 1), ()), "b": FabricNode("b", (0,), ())}),
    )
    figure = pair_of(engine)
    assert (figure.trouble, figure.absent) == ("hang", ("a:gpu1",))
    assert figure.detail.startswith("loading CUDA and NCCL: not finished in time")


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"STUB_DRIVER": "11080"}, "NCCL 2.21.5 for CUDA 12.4 is too new for its driver (CUDA 11.8)"),
        ({"STUB_CUDA_STATUS": "100"}, "CUDA does not start: cuInit: CUDA_ERROR_NO_DEVICE"),
        ({"STUB_GPUS": "1"}, "CUDA reports 1 GPUs, but GPU 1 is needed"),
        ({"STUB_COMPUTE_MODE": "2"}, "the compute mode of gpu0 is prohibited"),
        ({"STUB_NAME": "NVIDIA A100 MIG 1g.5gb"}, "gpu0 is partitioned by MIG"),
    ],
)
def test_a_node_that_cannot_take_part_says_why_before_anything_starts(an_engine, environment, told):
    engine = an_engine("a", **environment)
    assert told in engine.refused["a"].why
    assert len(engine.pids["a"]) == 1


def test_an_exclusive_gpu_takes_part_since_it_has_one_process_only(an_engine):
    assert an_engine("a", "b", STUB_COMPUTE_MODE="3").refused == {}


def test_tcp_where_there_is_rdma_is_the_finding_and_no_speed(an_engine, monkeypatch):
    fabric = Fabric({name: FabricNode(name, (0, 1), (FabricNic("lo", 0, 1.0),)) for name in "ab"})
    for network, trouble in (("NET/Socket/0", "socket"), ("NET/IB/0", "no-gpudirect"), ("NET/IB/0/GDRDMA", "")):
        engine = an_engine("a", "b", STUB_NETWORK=network, fabric=fabric)
        for name in "ab":
            object.__setattr__(engine.surveys[name], "rdma_devices", ("lo",))  # as if it were an HCA
        figure = pair_of(engine)
        assert figure.trouble == trouble, network
        assert (figure.gb_per_s is None) == bool(trouble)


def test_one_library_is_spread_into_memory_and_is_gone_afterwards(
    an_engine, process, build, stub_environment, tmp_path
):
    newer = build('-DVERSION="2.30.7"', "-DCODE=23007", '-DFOR="13.1"')
    engine = an_engine("a", "b", library=newer / "libnccl.so.2")
    assert engine.refused == {}
    assert {str(library) for library in engine.libraries.values()} == {"NCCL 2.30.7 for CUDA 13.1"}
    assert "is sent to 2 nodes" in engine.cost
    path = pathlib.Path(engine.libraries["a"].path)
    assert goes_well(pair_of(engine))
    assert "(deleted)" in str(path.readlink())  # no file system knows it
    engine.close()
    assert process.gone([int(path.parts[2])])
    assert not path.exists()


def test_the_library_inside_a_wheel_is_found_without_python_s_help(an_engine, build, tmp_path, monkeypatch):
    made = build()
    for folder in (
        ".local/lib/python3.9/site-packages/nvidia/nccl/lib",
        "work/.venv/lib/python3.12/site-packages/torch/lib",
    ):
        (tmp_path / folder).mkdir(parents=True)
        shutil.copy(made / "libnccl.so.2", tmp_path / folder)
    (made / "libnccl.so.2").unlink()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "work" / ".venv"))
    engine = an_engine("a", "b", LD_LIBRARY_PATH=str(made))
    found = [library for library in engine.surveys["a"].libraries if library.path.startswith(str(tmp_path))]
    assert [(library.version, library.cuda) for library in found] == [((2, 21, 5), (12, 4))] * 2


def test_a_library_that_no_driver_there_can_run_is_not_even_sent(an_engine, build):
    newer = build('-DVERSION="2.30.7"', "-DCODE=23007", '-DFOR="14.0"')
    engine = an_engine("a", "b", library=newer / "libnccl.so.2")
    assert all(
        "NCCL 2.30.7 for CUDA 14.0 is too new for its driver" in reason.why for reason in engine.refused.values()
    )
    assert engine.libraries == {}


def test_a_library_that_is_not_what_it_says_is_not_used(an_engine, build):
    liar = build('-DVERSION="2.19.3"', "-DCODE=21803", '-DFOR="12.2"')
    figure = pair_of(an_engine("a", "b", library=liar / "libnccl.so.2"))
    assert figure.trouble == "error"
    assert "is NCCL 21803, expected 21903" in figure.detail


def test_ras_is_asked_on_a_hang_and_names_the_rank(an_engine):
    server = socket.create_server(("127.0.0.1", 0))

    def answer():
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            with peer:
                assert peer.recv(100) == b"VERBOSE STATUS\n"
                pid = engine.pids["b"][1]
                peer.sendall(f"Errors\n\n  Rank 2 -- GPU 0 managed by process {pid} on node 10.0.0.2\n".encode())

    threading.Thread(target=answer, daemon=True).start()
    address = f"127.0.0.1:{server.getsockname()[1]}"
    engine = an_engine("a", "b", STUB_FAULT="sleeps-on-gpu:2:4", NCCL_RAS_ADDR=address, patient=False)
    figure = pair_of(engine)
    server.close()
    assert (figure.trouble, figure.absent) == ("hang", ("b:gpu0",))


def test_the_stand_in_tells_a_cut_id_from_a_whole_one(libraries, tmp_path, monkeypatch):
    monkeypatch.setenv("STUB_MEETS", str(tmp_path))
    nccl = ctypes.CDLL(str(libraries / "libnccl.so.2"))

    class Id(ctypes.Structure):
        _fields_ = (("internal", ctypes.c_byte * 128),)

    nccl.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, Id, ctypes.c_int]
    made, communicator = Id(), ctypes.c_void_p()
    assert nccl.ncclGetUniqueId(ctypes.byref(made)) == 0
    assert nccl.ncclCommInitRank(ctypes.byref(communicator), 2, made, 2) == 4
    cut = Id.from_buffer_copy(bytes(made).split(b"\0")[0].ljust(128, b"\0"))
    assert nccl.ncclCommInitRank(ctypes.byref(communicator), 1, cut, 0) == 4

import pytest

from gpuops.collective.engines.nccl.slots import RankSlot
from gpuops.collective.engines.nccl.verdict import ExpectedPath, TimedRun, absent, failure, reply_of, success
from gpuops.errors import ConnectError, EndedError, HostKeyError, LostError, NodeError
from gpuops.isolation.rounds import RankGroup

PAIR = RankGroup(("a", "b"))
SEATS = tuple(
    RankSlot(rank, node, gpu, (), {}) for rank, (node, gpu) in enumerate([("a", 0), ("a", 1), ("b", 0), ("b", 1)])
)
LATE = {"late": True, "stage": "run", "done": 4, "silent_seconds": 0.1, "state": "S"}
GIB = 1 << 30


def replies(*told):
    return [reply_of(seat, what) for seat, what in zip(SEATS, told, strict=True)]


def late(**more):
    return {**LATE, **more}


def test_a_group_whose_ranks_all_answered_did_not_fail():
    assert failure(PAIR, replies(*[{"answer": {}}] * 4), "x") is None


@pytest.mark.parametrize(
    ("told", "trouble", "named"),
    [
        ([{"answer": {}}, late(), late(), EndedError("b", "it is gone")], "error", ("b",)),
        ([{"answer": {}}, late(), late(), LostError("b", "the connection broke")], "unreachable", ("b",)),
        ([late(), late(), late(), HostKeyError("b", "host key changed")], "unreachable", ("b",)),
        ([{"answer": {}}, {"answer": {}}, {"stage": "run"}, {"answer": {}}], "error", ("b:gpu0",)),
        ([late(), late(), NodeError("b", "no answer"), NodeError("b", "no answer")], "hang", ("b",)),
        ([late(), late(), ConnectError("b", "refused"), ConnectError("b", "refused")], "unreachable", ("b",)),
        ([late(), {"ended": "ended by signal 9"}, late(), late()], "error", ("a:gpu1",)),
        ([late(), {"error": "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY"}, late(), late()], "error", ("a:gpu1",)),
        ([late(), {"error": "remote process exited or there was a network error"}, late(), late(stage="join")],
         "hang", ("b:gpu1",)),
        ([{"error": "x: remote process exited"}] * 4, "error", ()),
        ([late(), late(), late(), {"error": "system error", "log": ["WARN Connect to 10.0.0.9: No route to host"]}],
         "unreachable", ()),
        ([late()] * 4, "hang", ()),
    ],
)  # fmt: skip
def test_the_cause_is_told_apart_from_those_who_wait_for_it(told, trouble, named):
    figure = failure(PAIR, replies(*told), "timed runs")
    assert (figure.trouble, figure.absent, figure.gb_per_s) == (trouble, named, None)
    assert figure.detail.startswith("timed runs: ")


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ({"state": "T"}, "stopped"),
        ({"state": "D"}, "in a driver call"),
        ({"silent_seconds": 9.0}, "silent while the others wait aloud"),
        ({"stage": "launch"}, "still about to start"),
        ({"done": 3}, "an iteration behind"),
        ({"stage": "load"}, "not even loaded"),
    ],
)
def test_the_late_one_that_stands_out_did_not_arrive(odd, why):
    told = [late(), late(), late(**odd), late()]
    assert [reply.seat.name for reply in absent(replies(*told))] == ["b:gpu0"], why


def test_a_stopped_one_is_named_though_others_came_less_far():
    told = [late(done=2), late(state="T", done=3), late(), late()]
    assert [reply.seat.name for reply in absent(replies(*told))] == ["a:gpu1"]


def test_who_is_late_where_others_are_done_did_not_arrive():
    told = [{"answer": {}}, late(), late(), {"answer": {}}]
    assert [reply.seat.name for reply in absent(replies(*told))] == ["a:gpu1", "b:gpu0"]


@pytest.mark.parametrize(
    ("ras", "named"),
    [
        ("  Rank 3 -- GPU 1 managed by process 103 on node 10.0.0.2", ["b:gpu1"]),
        ("  Rank 3 has launched up to operation 9 -- GPU 1 managed by process 103 on node 10.0.0.2", ["b:gpu1"]),
        ("  Rank 3 -- GPU 1 managed by process 999 on node 10.0.0.9", []),
        ("\n".join(f"  Rank {k} -- GPU 0 managed by process {100 + k} on node x" for k in range(4)), []),
        ("garbage", []),
    ],
)
def test_ras_names_the_one_that_did_not_arrive_unless_it_names_all_or_others(ras, named):
    told = [late(pid=100 + rank, ras=ras) for rank in range(4)]
    assert [reply.seat.name for reply in absent(replies(*told))] == named


def test_a_process_that_outlives_its_kill_is_told_of():
    figure = failure(PAIR, replies(late(), late(state="D", survives=True), late(), late()), "x")
    assert figure.absent == ("a:gpu1",)
    assert "a:gpu1 at run 4, in state D and cannot be killed" in figure.detail


def answers(*seconds, wrong=0):
    ranks = [{"answer": {"seconds": list(seconds), "wrong": 0, "elements": 100}} for _ in SEATS]
    ranks[2]["answer"]["wrong"] = wrong
    return replies(*ranks)


def judged(told, lines=(), operation="all_reduce", *, rdma=True, gdr=True, group=PAIR):
    return success(group, told, TimedRun(operation, GIB, 1), lines, ExpectedPath(rdma, gdr))


@pytest.mark.parametrize(
    ("operation", "factor"),
    [("all_reduce", 1.5), ("all_gather", 0.75), ("reduce_scatter", 0.75), ("all_to_all", 0.75), ("send_recv", 1.0)],
)
def test_bus_bandwidth_is_that_of_nccl_tests_without_the_first_runs(operation, factor):
    figure = judged(answers(9.0, 0.01, 0.02, 0.03), operation=operation)
    assert figure.gb_per_s == pytest.approx(factor * GIB / 0.02 / 1e9)
    assert figure.spread == pytest.approx(0.00816 / 0.02, rel=1e-3)
    assert figure.trouble == ""


def test_wrong_sums_have_no_speed():
    figure = judged(answers(0.1, 0.1, wrong=3))
    assert (figure.trouble, figure.gb_per_s) == ("wrong", None)
    assert "3 of 100 elements at b:gpu0" in figure.detail


@pytest.mark.parametrize(
    ("line", "known", "trouble"),
    [
        ("0[0] -> 1[0] [send] via NET/Socket/0", {}, "socket"),
        ("0[0] -> 1[0] [send] via NET/Socket/0", {"rdma": False}, ""),
        ("0[0] -> 1[0] [send] via NET/Socket/0", {"group": RankGroup(("a",))}, ""),
        ("0[0] -> 1[0] [send] via NET/IB/0", {}, "no-gpudirect"),
        ("0[0] -> 1[0] [receive] via NET/AWS Libfabric/0", {}, "no-gpudirect"),
        ("0[0] -> 1[0] [send] via NET/IB/0", {"group": RankGroup(("a",))}, ""),
        ("0[0] -> 1[0] [send] via NET/IB/0", {"gdr": False}, ""),  # these cards cannot
        ("0[0] -> 1[0] [send] via NET/IB/0/GDRDMA", {}, ""),
        ("", {}, ""),
    ],
)
def test_a_way_that_is_not_the_fabric_s_is_the_finding_and_no_speed(line, known, trouble):
    figure = judged(answers(0.1, 0.1), [line], **known)
    assert figure.trouble == trouble
    assert (figure.gb_per_s is None) == bool(trouble)


def test_missing_gpudirect_is_named_with_the_words_of_nccl():
    lines = [
        "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'",
        "0[0] -> 1[0] [receive] via NET/IB/0",
        "0[0] -> 1[0] [send] via NET/IB/1/GDRDMA",
    ]
    figure = judged(answers(0.1, 0.1), lines)
    assert figure.trouble == "no-gpudirect"
    assert "(NET/IB without GDRDMA); GPU Direct RDMA Disabled for HCA 0 'mlx5_0'" in figure.detail


def test_sockets_are_no_missing_gpudirect():
    lines = ["0[0] -> 1[0] [send] via NET/Socket/0", "0[0] -> 1[0] [receive] via NET/IB/0"]
    assert judged(answers(0.1, 0.1), lines).trouble == "socket"


def test_error_of_a_rank_comes_with_the_warning_of_nccl():
    failed = {"error": "ncclAllReduce: unhandled cuda error", "log": ["init.cc:99 NCCL WARN Cuda failure 719"]}
    figure = failure(PAIR, replies({"answer": {}}, failed, {"answer": {}}, {"answer": {}}), "timed runs")
    assert figure.absent == ("a:gpu1",)
    assert figure.detail == "timed runs: a:gpu1: ncclAllReduce: unhandled cuda error; Cuda failure 719"

import os
import pathlib
import signal
import socket
import sys
import threading
import time
import zlib

import pytest

import gpuops
from gpuops.collective.engines import Load, Sweep, tcp
from gpuops.collective.engines.tcp import TcpEngine, trouble_of
from gpuops.errors import ConnectError, EndedError, LostError, NodeError
from gpuops.isolation.fabric import FabricNic
from gpuops.isolation.rounds import RankGroup, Round
from gpuops.reasons import Excluded
from gpuops.transport import agent

NODE = pathlib.Path(gpuops.__file__).parent / "node"
PAIR = RankGroup(("n0", "n1"))
RING = RankGroup(("n0", "n1", "n2"))


@pytest.fixture
def engine(hosts, opener, monkeypatch):
    """Opens engines on names of this machine, and ends them."""
    monkeypatch.setattr(tcp, "_PATIENCE_SECONDS", 2.0)
    opened = []

    def open_one(load=None, these=hosts, **more):
        engine = TcpEngine(these, opener, load or Load(seconds=0.05), **more)
        opened.append(engine)
        assert engine.open() == {}
        return engine

    yield open_one
    for engine in opened:
        engine.close()


@pytest.fixture
def hosts(a_host):
    return [a_host(f"n{number}", address="127.0.0.1", connection="local") for number in range(4)]


def round_of(*groups, scope="pair"):
    return Round(scope, groups)


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"])
@pytest.mark.parametrize("group", [PAIR, RING, RankGroup(("n3", "n1", "n2", "n0"))])
def test_every_operation_gives_a_figure(engine, operation, group):
    (figure,) = engine(Load(operation, seconds=0.05)).measure(round_of(group))
    assert (figure.group, figure.trouble, figure.detail) == (group, "", "")
    assert 0.001 < figure.gb_per_s < 100
    assert figure.spread >= 0


def test_groups_run_at_the_same_time_and_keep_their_order(engine, monkeypatch):
    running, asked = engine(), []
    ask = running._crew.ask
    monkeypatch.setattr(
        running._crew, "ask", lambda messages, *more: asked.append(set(messages)) or ask(messages, *more)
    )
    groups = [RankGroup(("n3", "n2")), PAIR]
    figures = running.measure(round_of(*groups))
    assert asked == [{"n0", "n1", "n2", "n3"}]
    assert [figure.group for figure in figures] == groups
    assert all(figure.gb_per_s for figure in figures)


def test_a_ring_runs_over_ipv6(engine, a_host):
    hosts = [a_host(name, address="::1", connection="local") for name in PAIR.nodes]
    running = engine(these=hosts)
    assert running.measure(round_of(PAIR))[0].gb_per_s
    assert running.fabric().nodes["n0"].nics[0].name == "lo"
    assert running.settings == dict.fromkeys(PAIR.nodes, ("through lo",))


def test_a_worker_serves_round_after_round(engine):
    running = engine()
    before = running.pids
    assert all(running.measure(round_of(RING))[0].gb_per_s for _ in range(3))
    assert running.pids == before
    assert set(before) == {"n0", "n1", "n2", "n3"}


def test_nothing_is_measured_within_a_node(engine):
    figures = engine().measure(Round("node", (RankGroup(("n0",)), PAIR)))
    assert figures[0].gb_per_s is None
    assert figures[0].detail == "tcp measures between nodes only"
    assert figures[1].gb_per_s


def test_the_fabric_is_one_interface_a_node(engine):
    fabric = engine().fabric()
    assert list(fabric.nodes) == ["n0", "n1", "n2", "n3"]
    assert fabric.nodes["n2"].nics == (FabricNic("lo", 0, 0.0),)


def test_an_interface_that_a_node_lacks_is_said(hosts, opener):
    engine = TcpEngine(hosts, opener, interface="rail9")
    why = "interface rail9 does not exist or has no address"
    assert engine.open() == {h.name: Excluded(h.name, "unsupported", why) for h in hosts}
    (figure,) = engine.measure(round_of(PAIR))
    assert (figure.trouble, figure.absent) == ("unreachable", ("n0", "n1"))
    engine.close()


def test_an_interface_gives_the_address(engine):
    running = engine(interface="lo")
    assert running.fabric().nodes["n0"].nics[0].name == "lo"
    assert running.measure(round_of(PAIR))[0].gb_per_s


def packed(text):
    data = zlib.compress(text.encode())
    return b"%d\n%b" % (len(data), data)


def test_a_wrong_sum_is_no_figure(engine, monkeypatch):
    texts = [(NODE / f"{name}.py").read_text() for name in ("peers", "sums", "ring")]
    right = "\n".join(texts)
    wrong = right.replace("+ piece.own)", "+ piece.own + 1)")
    assert wrong != right
    programs = {agent.AGENT: agent._program(*agent.AGENT), ("peers", "sums", "ring"): packed(wrong)}
    monkeypatch.setattr(agent, "_program", lambda *names: programs[names])
    (figure,) = engine().measure(round_of(PAIR))
    assert (figure.trouble, figure.gb_per_s) == ("wrong", None)
    assert figure.detail == "wrong sums on n0, n1"


def in_mid_run(running, *groups, do):
    """The figures of a round in which ``do`` happened while it was measured."""
    threading.Timer(0.7, do).start()
    return running.measure(round_of(*groups))


def test_a_stopped_process_is_named_as_hanging_and_the_other_group_has_its_figure(engine):
    running = engine(Load(seconds=1.5))
    (stopped,) = running.pids["n1"]
    figures = in_mid_run(running, PAIR, RankGroup(("n2", "n3")), do=lambda: os.kill(stopped, signal.SIGSTOP))
    assert (figures[0].trouble, figures[0].absent, figures[0].gb_per_s) == ("hang", ("n1",), None)
    assert figures[1].gb_per_s
    again, others = running.measure(round_of(PAIR, RankGroup(("n2", "n3"))))
    assert (again.trouble, again.absent, again.detail) == ("hang", ("n1",), figures[0].detail)
    assert others.gb_per_s
    running.close()
    assert not pathlib.Path(f"/proc/{stopped}").exists()


def test_a_killed_process_is_named_at_once(engine):
    running = engine(Load(seconds=3))
    began = time.monotonic()
    (figure,) = in_mid_run(running, RING, do=lambda: os.kill(*running.pids["n2"], signal.SIGKILL))
    assert (figure.trouble, figure.absent) == ("error", ("n2",))
    assert figure.detail.startswith("n2: the worker ended by signal 9; ")
    assert time.monotonic() - began < 4
    assert running.measure(round_of(RING))[0].gb_per_s


def test_strangers_are_turned_away(engine):
    running = engine(Load(seconds=1))
    place = running._places["n1"]
    strangers = []

    def knock():
        for data in (b"", b"GET / HTTP/1.0\r\n\r\n", bytes(36), b"x" * 5000):
            strangers.append(socket.create_connection((place["address"], place["port"]), timeout=5))
            strangers[-1].sendall(data)

    knock()
    (figure,) = in_mid_run(running, RING, do=knock)
    assert figure.gb_per_s
    for stranger in strangers:
        stranger.close()
    assert running.measure(round_of(PAIR))[0].gb_per_s


def test_closing_leaves_no_process_even_in_mid_run(engine):
    running = engine(Load(seconds=5))
    pids = [pid for pids in running.pids.values() for pid in pids]
    (figure,) = in_mid_run(running, PAIR, do=running.close)
    assert figure.gb_per_s is None
    ends = time.monotonic() + 2
    while any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < ends:
        time.sleep(0.02)
    assert not any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids)


def interpreters():
    places = [pathlib.Path("/usr/bin"), *pathlib.Path("~/.pyenv/versions").expanduser().glob("*/bin")]
    found = [place / f"python3.{minor}" for place in places for minor in range(6, 20)]
    return [str(path) for path in found if path.exists()][:9] or [sys.executable]


def test_ranks_of_every_python_of_this_machine_work_together(engine, a_host):
    pythons = interpreters()
    hosts = [a_host(f"n{n}", address="127.0.0.1", connection="local", python=p) for n, p in enumerate(pythons * 2)]
    (figure,) = engine(these=hosts).measure(round_of(RankGroup(tuple(host.name for host in hosts))))
    assert figure.gb_per_s, figure


STALLED = {"trouble": "no data sent or received for 5 s", "unreached": [], "link": True}
LATE = NodeError("b", "no answer within 8.0 s")
ENDED = EndedError("b", "the worker ended by signal 9")
BROKEN = LostError("b", "the connection broke in the middle of the answer")
FINE = {"seconds": [0.1], "wrong": 0}


@pytest.mark.parametrize(
    ("answers", "trouble", "absent"),
    [
        # a pair
        ({"a": STALLED, "b": LATE}, "hang", "b"),
        ({"a": {**STALLED, "unreached": [1]}, "b": LATE}, "unreachable", "b"),
        ({"a": {**STALLED, "unreached": [1]}, "b": {**STALLED, "unreached": [0], "link": False}}, "unreachable", "b"),
        ({"a": {**STALLED, "unreached": [1]}, "b": {**STALLED, "unreached": [0]}}, "unreachable", "ab"),
        ({"a": STALLED, "b": STALLED}, "hang", ""),
        ({"a": {**STALLED, "refused": [1]}, "b": ENDED}, "error", "b"),
        ({"a": {**STALLED, "unreached": [1]}, "b": ENDED}, "unreachable", "b"),
        ({"a": {**STALLED, "refused": [1]}, "b": STALLED}, "unreachable", "b"),
        ({"a": LATE, "b": LATE}, "hang", "ab"),
        ({"a": STALLED, "b": BROKEN}, "unreachable", "b"),
        ({"a": STALLED, "b": ConnectError("b", "timed out")}, "unreachable", "b"),
        ({"a": BROKEN, "b": ENDED}, "error", "b"),
        # a ring of four, in which c is cut off
        (
            {
                "a": STALLED,
                "b": {**STALLED, "unreached": [2]},
                "c": {**STALLED, "unreached": [1, 3]},
                "d": {**STALLED, "unreached": [2]},
            },
            "unreachable",
            "c",
        ),
        ({"a": STALLED, "b": {**STALLED, "unreached": [2]}, "c": LATE, "d": STALLED}, "hang", "c"),
        ({"a": FINE, "b": STALLED, "c": LATE, "d": STALLED}, "hang", "c"),
    ],
)
def test_who_is_absent_follows_from_what_the_ranks_say(answers, trouble, absent):
    figure = trouble_of(RankGroup(tuple(answers)), answers)
    assert (figure.gb_per_s, figure.trouble, "".join(figure.absent)) == (None, trouble, absent)
    assert figure.detail


def test_sweep_has_a_point_for_each_size(engine):
    sizes = (1 << 10, 1 << 14, 1 << 18)
    pair, ring = engine().sweep([Sweep(PAIR, sizes), Sweep(RankGroup(("n2", "n3")), sizes[:2])])
    assert [point.size_bytes for point in pair.points] == list(sizes)
    assert [point.size_bytes for point in ring.points] == list(sizes[:2])
    assert pair.points[0].seconds < pair.points[-1].seconds
    assert all(point.gb_per_s == pytest.approx(point.algbw_gb_per_s) for point in pair.points)  # 2·(n-1)/n is 1


def test_sweep_ends_where_a_worker_was_killed(engine):
    running = engine()
    measured = running._measured

    def killing(sizes):
        if set(sizes.values()) == {1 << 14}:
            os.kill(running.pids["n1"][0], signal.SIGKILL)
        return measured(sizes)

    running._measured = killing
    (curve,) = running.sweep([Sweep(PAIR, (1 << 10, 1 << 14, 1 << 18))])
    assert (curve.trouble, curve.absent) == ("error", ("n1",))
    assert [point.size_bytes for point in curve.points] == [1 << 10]

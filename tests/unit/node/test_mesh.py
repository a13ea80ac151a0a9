import ast
import os
import pathlib
import signal
import socket
import time

import pytest

HERE = "127.0.0.1"
NODE = pathlib.Path(__file__).parents[3] / "src" / "gpuops" / "node"


@pytest.fixture
def start(open_node):
    """Starts the script on this machine; returns a function that says one thing to it and hears the answer."""

    def begin():
        worker = open_node().start("peers", "mesh")

        def ask(do, **message):
            worker.send({"do": do, **message})
            return worker.receive(20)

        ask.worker = worker
        return ask

    return begin


@pytest.fixture
def two(start):
    """Two of them: the second listens with the token ``two``; its place as another must be told it."""
    one, other = start(), start()
    told = other("listen", token="two", address=HERE)
    return one, other, told


@pytest.mark.parametrize("name", ["peers", "mesh"])
def test_it_is_written_in_the_grammar_of_python_3_6(name):
    ast.parse((NODE / f"{name}.py").read_text(), feature_version=(3, 6))


def test_it_says_when_it_listens_and_what_time_it_is(two):
    told = two[2]
    assert 1024 <= told["port"] < 65536
    assert abs(told["unix_seconds"] - time.time()) < 5


def test_it_listens_on_the_interface_that_is_asked_for(start):
    ask = start()
    assert ask("listen", token="x", address="192.0.2.1", interface="lo")["address"] == HERE
    told = ask("listen", token="x", address=HERE, interface="none0")
    assert told == {"error": "interface none0 does not exist or has no address"}
    assert ask("listen", token="x", address="192.0.2.1")["error"] == "Cannot assign requested address"


def test_it_listens_where_ssh_came_in(open_node):
    worker = open_node(before=["env", "SSH_CONNECTION=192.0.2.9 5555 127.0.0.1 22"]).start("peers", "mesh")
    worker.send({"do": "listen", "token": "x", "address": "192.0.2.1"})
    assert worker.receive(10)["address"] == HERE


def test_its_interfaces_are_told_with_the_one_that_peers_use(start):
    told = start()("interfaces", address="localhost")
    assert told["interfaces"]["lo"] == HERE
    assert told["own"] == "lo"


def test_who_is_reached_is_not_told_and_who_is_not_is_told_why(two):
    one, _, told = two
    with socket.socket() as closed, socket.socket() as silent:
        for each in (closed, silent):
            each.bind((HERE, 0))
        silent.listen(1)
        began = time.monotonic()
        failed = one(
            "connect",
            to={
                "good": [HERE, told["port"], "two"],
                "closed": [HERE, closed.getsockname()[1], "x"],
                "silent": [HERE, silent.getsockname()[1], "x"],
                "stranger": [HERE, told["port"], "three"],
            },
            seconds=1,
        )["failed"]
    assert failed == {
        "closed": "Connection refused",
        "silent": "no answer (packets dropped?)",
        "stranger": "another process answers at this address",
    }
    assert time.monotonic() - began < 3


def test_two_that_try_each_other_at_the_same_time_reach_each_other(two):
    one, other, told = two
    back = one("listen", token="one", address=HERE)["port"]
    one.worker.send({"do": "connect", "to": {"other": [HERE, told["port"], "two"]}, "seconds": 5})
    other.worker.send({"do": "connect", "to": {"one": [HERE, back, "one"]}, "seconds": 5})
    assert one.worker.receive(10) == other.worker.receive(10) == {"failed": {}}


def test_many_connections_at_once(two):
    one, _, told = two
    places = {f"n{number}": [HERE, told["port"], "two"] for number in range(250)}
    assert one("connect", to=places, seconds=10)["failed"] == {}


def test_whole_packets_arrive_at_whoever_listens(two):
    one, _, told = two
    with socket.socket(type=socket.SOCK_DGRAM) as deaf:
        deaf.bind((HERE, 0))
        packets = one(
            "packets", to={"good": [HERE, told["datagrams"], "two"], "deaf": [HERE, deaf.getsockname()[1], "x"]}
        )["packets"]
    mtu = min(65535, int(pathlib.Path("/sys/class/net/lo/mtu").read_text()))  # what an IP packet can be
    assert packets["good"] == {"device": "lo", "mtu": mtu, "path_mtu": mtu, "small": True, "whole": True}
    assert packets["deaf"] == {"device": "lo", "mtu": mtu, "path_mtu": mtu, "small": False, "whole": False}


def test_names_are_looked_up_where_it_runs(start):
    names = start()("resolve", names=["localhost", HERE, "no-such-name.invalid"], seconds=10)["names"]
    assert HERE in names["localhost"]["addresses"] or "::1" in names["localhost"]["addresses"]
    assert names[HERE]["addresses"] == [HERE]
    assert names["no-such-name.invalid"]["error"]


def test_it_can_listen_anew_and_on_a_given_port(two):
    one, other, told = two
    refused = one("listen", token="x", address=HERE, port=told["port"])
    assert refused["error"] == "Address already in use"
    assert "python" in refused["by"]
    again = other("listen", token="new", address=HERE, port=told["port"])
    assert again["port"] == told["port"]
    assert one("connect", to={"n": [HERE, told["port"], "new"]}, seconds=5)["failed"] == {}


def ended(pid):
    """Whether a process is gone, or only waits for its parent to notice."""
    try:
        status = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return status.rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, None])
def test_it_ends_when_it_is_told_to_or_nobody_is_there(start, number):
    ask = start()
    ask("listen", token="x", address=HERE)
    pid = ask.worker.first_message["pid"]
    if number is None:
        ask.worker.close()
    else:
        os.kill(pid, number)
    ends = time.monotonic() + 3
    while not ended(pid) and time.monotonic() < ends:
        time.sleep(0.02)
    assert ended(pid)


def test_it_knows_its_interfaces_which_of_them_are_down_and_what_its_own_name_means(start):
    told = start()("interfaces", address=HERE)
    assert told["interfaces"]["lo"] == HERE
    assert "lo" not in told["down"]
    assert HERE in told["local"]
    assert told["host_name"] == socket.gethostname()
    try:
        expected = sorted({entry[4][0] for entry in socket.getaddrinfo(socket.gethostname(), None)})
    except OSError:
        expected = []
    assert told["host_addresses"] == expected

"""gpuops preflight on a real network: what is wrong with it is told, and the first line to change is the right one."""

import importlib.util
import json
import sys

import pytest

NAMES = ("n1", "n2", "n3", "n4")
TORCHRUN = "torchrun --nnodes=4 --nproc-per-node=1 --rdzv-endpoint=n1:29500 train.py"
MPIRUN = f"mpirun -H {','.join(NAMES)}"


@pytest.fixture
def preflight(links):
    """Runs the verb beside the hosts; its exit code and its JSON."""

    def run(command):
        words = f"preflight -i {links.inventory(*NAMES)} --json -- {command}"
        done = links.network.run(f"{sys.executable} -m gpuops {words}", links.folder)
        assert done.stdout.startswith("{"), done.stdout
        return done.returncode, json.loads(done.stdout)

    return run


@pytest.fixture
def first(preflight):
    """The cause that is told first."""

    def run(command):
        code, found = preflight(command)
        assert code == 1, found
        return found["causes"][0]

    return run


@pytest.fixture
def change(links):
    """Changes hosts, and takes it back."""
    undone = []

    def do(command, back):
        undone.append(back)
        links.run(command)

    yield do
    for command in reversed(undone):
        links.run(command)


def test_a_job_that_can_start_is_told_so(preflight, links):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("there is no torch here, which is the extra gpuops[launch]")
    code, found = preflight(f"CUDA_VISIBLE_DEVICES= {TORCHRUN}")
    assert (code, found["causes"]) == (0, []), found
    steps = {step["name"]: step for step in found["steps"]}
    assert "torch " in steps["environment"]["said"]
    assert "over 4 nodes by tcp" in steps["all-reduce"]["said"]
    assert not links.processes()
    code, found = preflight(TORCHRUN)
    assert (code, [cause["test"] for cause in found["causes"]]) == (3, ["no-gpu"]), found


def test_a_port_that_is_taken_is_told_with_one_that_is_free(first, links):
    listen = 'import socket, time; s = socket.create_server(("", 29500)); time.sleep(60)'
    links.network.run(f"(nohup python3 -c '{listen}' >/dev/null 2>&1 </dev/null &); sleep 0.5", host="n1")
    try:
        cause = first(f"{MPIRUN} -x MASTER_ADDR=n1 -x MASTER_PORT=29500 true")
    finally:
        links.network.run("pkill -f '[c]reate_server'", host="n1")
    assert (cause["rung"], cause["nodes"]) == ("meeting", ["n1"]), cause
    assert cause["why"].startswith("cannot listen on port 29500: Address already in use: python3 -c import socket, ")
    assert cause["change"] == "MASTER_ADDR=n1 MASTER_PORT=29501"


def test_a_master_that_is_every_node_itself_is_reported(first):
    cause = first(f"{MPIRUN} -x MASTER_ADDR=localhost true")
    assert (cause["rung"], cause["change"]) == ("meeting", "MASTER_ADDR=n1 MASTER_PORT=29500")


def test_an_interface_that_no_host_has_is_told_with_the_one_they_have(first):
    cause = first(f"{MPIRUN} -x NCCL_SOCKET_IFNAME=ib0 true")
    assert (cause["rung"], cause["nodes"]) == ("interface", list(NAMES))
    assert cause["change"] == "-x NCCL_SOCKET_IFNAME=eth0"


def test_two_hosts_that_do_not_reach_each_other_are_told_as_a_pair(first, links, change):
    place = links.network.addresses["n4"]
    change(f"ip -n n2 route add unreachable {place}/32", f"ip -n n2 route del unreachable {place}/32")
    cause = first(f"{MPIRUN} true")
    assert (cause["rung"], sorted(cause["nodes"])) == ("tcp", ["n2", "n4"])


def test_a_host_that_reaches_no_other_is_told_itself(first, links, change):
    for name in ("n1", "n2", "n4"):
        place = links.network.addresses[name]
        change(f"ip -n n3 route add unreachable {place}/32", f"ip -n n3 route del unreachable {place}/32")
    cause = first(f"{MPIRUN} true")
    assert (cause["rung"], cause["nodes"]) == ("tcp", ["n3"])
    assert "3 of 3 nodes" in cause["why"]


def test_a_host_with_another_mtu_is_reported(first, change):
    change("ip -n n2 link set eth0 mtu 1400", "ip -n n2 link set eth0 mtu 1500")
    cause = first(f"{MPIRUN} true")
    assert (cause["rung"], cause["nodes"]) == ("mtu", ["n2"])
    assert cause["why"] == "its MTU is 1400, but 1500 on the others"


def test_a_switch_that_swallows_whole_packets_is_reported(first, change):
    change("ip link set port-n3 mtu 1400", "ip link set port-n3 mtu 1500")
    cause = first(f"{MPIRUN} true")
    assert (cause["rung"], cause["nodes"]) == ("mtu", ["n3"])
    assert "packets of 1500 bytes do not arrive" in cause["why"]


def test_a_program_that_is_on_no_host_is_reported(first):
    assert first(f"{MPIRUN} ./no-such-program")["change"].endswith("or name a path that they have")

"""Where the ranks of a job meet: what is proposed is what the other nodes reach, so that nobody is sent in circles."""

from types import SimpleNamespace

import pytest

from gpuops.collective.preflight.launch_command import LaunchCommand
from gpuops.collective.preflight.rendezvous import Rendezvous

TORCHRUN = LaunchCommand("torchrun", "torchrun", rendezvous="--rdzv-endpoint={master}:{port}")
LO = {"lo": "127.0.0.1"}


class Network:
    """Nodes that answer as `mesh` does: interfaces, names that each of them resolves, and ports that are taken."""

    def __init__(self, interfaces, own="eth0", names=None, taken=()):
        self.interfaces, self.own, self.names, self.taken = interfaces, own, names or {}, taken
        self.more = {}

    def __call__(self, messages):
        return {
            node: getattr(self, message["do"].replace("interfaces", "look"))(node, message)
            for node, message in messages.items()
        }

    def look(self, node, _message):
        return {"interfaces": self.interfaces[node], "own": self.own, "local": self.more.get(node, [])}

    def resolve(self, _node, message):
        unknown = {"error": "Name or service not known"}
        literal = {name: {"addresses": [name]} for name in message["names"] if name[0].isdigit()}
        found = {name: {"addresses": [self.names[name]]} for name in message["names"] if name in self.names}
        return {"names": {name: (literal | found).get(name, unknown) for name in message["names"]}}

    def listen(self, _node, message):
        return {"error": "Address already in use"} if message["port"] in self.taken else {"port": message["port"]}

    def connect(self, _node, _message):
        return {"failed": {}}


def place(network, master=None):
    pool = SimpleNamespace(hosts={name: SimpleNamespace(address=name) for name in network.interfaces})
    command = LaunchCommand("torchrun", "torchrun", master=master, rendezvous=TORCHRUN.rendezvous)
    return list(Rendezvous(pool, command, network).place())


TWO = {"a": {**LO, "eth0": "10.0.0.1"}, "b": {**LO, "eth0": "10.0.0.2"}}
ONE_MACHINE = {"a": {**LO, "eth0": "10.0.0.9"}, "b": {**LO, "eth0": "10.0.0.9"}}
BRIDGE = {name: {**LO, "docker0": "172.17.0.1", **own} for name, own in TWO.items()}


@pytest.mark.parametrize(
    ("network", "proposed"),
    [
        (Network(TWO, names={"a": "10.0.0.1"}), "a"),
        (Network(TWO), "10.0.0.1"),
        (Network(TWO, names={"a": "127.0.1.1"}), "10.0.0.1"),
        (Network(TWO, names={"a": "10.0.0.77"}), "10.0.0.1"),
        (Network(ONE_MACHINE, own="lo"), "10.0.0.9"),
        (Network(BRIDGE, own="lo"), "10.0.0.1"),
        (Network({"a": {}, "b": {}}, own=""), "a"),
    ],
)
@pytest.mark.parametrize("master", [None, "localhost", "127.0.0.1", "unknown-name"])
def test_what_is_proposed_is_what_the_others_reach_and_following_it_ends(network, proposed, master):
    first = place(network, master)[0]
    assert first.fix == f"--rdzv-endpoint={proposed}:29500"
    if network.interfaces["a"]:
        assert place(network, proposed) == []


class OneMachine(Network):
    """Nodes that ssh reaches at ports of this machine; each is the machine itself, or a container of its own."""

    def connect(self, node, message):
        return {"failed": {name: "refused" for name in message["to"] if self.own == "container" and name != node}}


@pytest.mark.parametrize(("own", "fix"), [("lo", None), ("container", "--rdzv-endpoint=10.0.0.9:29500")])
def test_loopback_is_a_rendezvous_if_the_nodes_are_found_to_be_one_machine(own, fix):
    network = OneMachine(ONE_MACHINE, own=own)
    pool = SimpleNamespace(hosts={name: SimpleNamespace(address="127.0.0.1") for name in "ab"})
    command = LaunchCommand("torchrun", "torchrun", master="127.0.0.1", rendezvous=TORCHRUN.rendezvous)
    found = list(Rendezvous(pool, command, network).place())
    assert [cause.fix for cause in found] == ([fix] if fix else [])


def test_nodes_that_have_loopback_alone_are_told_why_nothing_can_be_proposed():
    (cause,) = place(Network({"a": LO, "b": LO}, own="lo"))
    assert cause.fix == "name an address of a that the other nodes reach: it has only that of loopback"


def test_where_no_port_is_free_the_one_of_the_command_is_to_be_freed():
    taken = Network(TWO, taken=range(29500, 29600))
    (cause,) = place(taken, "10.0.0.1")
    assert (cause.nodes, cause.fix) == (("a",), "free TCP port 29500: ss -ltnp")
    (cause,) = place(Network(TWO, taken=[29500]), "10.0.0.1")
    assert cause.fix == "--rdzv-endpoint=10.0.0.1:29501"


class Fenced(Network):
    """Nodes that cannot connect to the addresses of ``closed``, each for its reason."""

    def __init__(self, closed, **more):
        super().__init__(TWO, names={"a": "10.0.0.1"}, **more)
        self.closed = closed

    def connect(self, node, message):
        places = {name: place[0] for name, place in message["to"].items() if node != "a" or self.closed.get("a")}
        return {"failed": {name: self.closed[place] for name, place in places.items() if place in self.closed}}

    def listen(self, node, message):
        answer = super().listen(node, message)
        return {**answer, "by": "python3 train.py (PID 7)"} if "error" in answer else answer


FAR = {**TWO, "a": {**TWO["a"], "ib0": "192.168.9.1"}}
DROPPED = "no answer (packets dropped?)"


def fenced(closed, master, chains=None, interfaces=TWO, **more):
    network = Fenced(closed, **more)
    network.interfaces = interfaces
    pool = SimpleNamespace(hosts={name: SimpleNamespace(address=name) for name in interfaces})
    command = LaunchCommand("torchrun", "torchrun", master=master, rendezvous=TORCHRUN.rendezvous)
    return list(Rendezvous(pool, command, network, chains).place())


def test_an_address_that_only_some_reach_is_replaced_by_one_that_all_reach():
    (cause,) = fenced({"192.168.9.1": "Network is unreachable"}, "192.168.9.1", interfaces=FAR)
    assert (cause.nodes, cause.fix) == (("b",), "--rdzv-endpoint=a:29500")


@pytest.mark.parametrize(
    ("why", "chains", "fix"),
    [
        (
            DROPPED,
            {"a": ["ip t i"]},
            "nft insert rule ip t i ip saddr 10.0.0.2 tcp dport 29500 accept   on a; then ",
        ),
        (DROPPED, {}, "open TCP port 29500 on a for b: nft list ruleset"),
        ("No route to host", {"a": ["ip t i"]}, "ip route get 10.0.0.1   on b; then correct that route, or the "),
    ],
)
def test_a_way_that_is_closed_is_opened_by_its_reason(why, chains, fix):
    (cause,) = fenced({"10.0.0.1": why}, "10.0.0.1", chains)
    assert cause.nodes == ("b",)
    assert cause.fix.startswith(fix)


def test_who_has_the_port_is_named():
    (cause,) = fenced({}, "10.0.0.1", taken=[29500])
    assert cause.why.endswith("Address already in use: python3 train.py (PID 7) listens there")


def test_a_second_address_of_an_interface_is_a_rendezvous_too():
    network = Network(TWO, names={"a": "10.0.0.1"})
    assert "is not one of the job's nodes" in place(network, "192.168.9.1")[0].why
    network.more = {"a": ["10.0.0.1", "192.168.9.1"]}
    assert place(network, "192.168.9.1") == []


def test_a_firewall_that_keeps_out_all_nodes_keeps_out_the_ranks_of_the_first_one_too():
    (cause,) = fenced({"10.0.0.1": DROPPED, "a": "itself"}, "10.0.0.1", {"a": ["ip t i"]})
    assert cause.nodes == ("a", "b")
    assert "ip saddr '{ 10.0.0.1, 10.0.0.2 }' tcp dport 29500 accept" in cause.fix

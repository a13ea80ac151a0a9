"""Gates at which nodes are tested together: who is ready goes on, and nobody is held up for long."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from gpuops.cancellation import CancelToken
from gpuops.errors import CancelledError
from gpuops.lifecycle import joint_gates
from gpuops.lifecycle.joint_gates import JointGates
from gpuops.reasons import Objection


class Clock:
    """A clock that moves only when it is told to; those who wait look at it often."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(joint_gates, "_WAKE_SECONDS", 0.005)


class Nodes:
    """The nodes a, b and c in threads of their own, and the groups that came to an attempt."""

    def __init__(self, clock):
        self.cancel = CancelToken()
        self.gates = JointGates("abc", self.cancel, lambda *told: self.waits.append(told), clock)
        self.waits = []
        self.threads = ThreadPoolExecutor(8)
        self.groups = []

    def arrive(self, host, gate="burn-in", objections=()):
        def attempt(hosts):
            self.groups.append("".join(sorted(each.name for each in hosts)))
            return {name: Objection(f"{name} is slow") for name in objections}

        self.gates.passed(host.name, {"burn-in": "second-pass", "validate": "burn-in"}[gate])
        return self.threads.submit(lambda: self.gates.joined(gate, attempt)([host]))


@pytest.fixture
def nodes(clock):
    nodes = Nodes(clock)
    yield nodes
    nodes.cancel.cancel()
    nodes.threads.shutdown()


def settle():
    time.sleep(0.05)


def test_those_who_come_together_are_tested_together_and_each_gets_its_own_objection(nodes, a_host):
    arrived = [nodes.arrive(a_host(name), objections="b") for name in "abc"]
    assert [each.result(5) for each in arrived] == [{}, {"b": Objection("b is slow")}, {}]
    assert nodes.groups == ["abc"]


def test_one_that_is_late_is_waited_for_at_most_a_fifth_of_the_time(nodes, a_host, clock):
    clock.now = 100.0
    first = [nodes.arrive(a_host(name)) for name in "ab"]
    settle()
    assert nodes.waits[-1][1] == ["c"]
    clock.now = 119.0
    settle()
    assert nodes.groups == []
    clock.now = 121.0
    assert [each.result(5) for each in first] == [{}, {}]
    assert nodes.groups == ["ab"]
    for name in "ab":
        nodes.gates.passed(name, "burn-in")
    nodes.arrive(a_host("c")).result(5)
    assert nodes.groups == ["ab", "c"]


def test_time_that_was_spent_waiting_is_not_spent_again_but_companions_stay_together(nodes, a_host, clock):
    clock.now = 100.0
    burnt = [nodes.arrive(a_host(name)) for name in "ab"]
    settle()
    clock.now = 121.0
    assert [each.result(5) for each in burnt] == [{}, {}]
    first = nodes.arrive(a_host("a"), "validate")
    settle()
    second = nodes.arrive(a_host("b"), "validate")
    settle()
    clock.now = 124.0  # two seconds, not twenty
    assert [first.result(5), second.result(5)] == [{}, {}]
    assert nodes.groups == ["ab", "ab"]


def test_nobody_waits_for_a_node_that_left_or_that_is_past_the_gate(nodes, a_host):
    nodes.gates.leave("c")
    nodes.gates.passed("b", "validate")
    assert nodes.arrive(a_host("a")).result(5) == {}
    assert nodes.groups == ["a"]


def test_an_attempt_that_raises_ends_the_gate_of_all(nodes, a_host):
    def attempt(_hosts):
        raise CancelledError("interrupted")

    def arrive(host):
        return nodes.threads.submit(lambda: nodes.gates.joined("pair", attempt)([host]))

    for name in "abc":
        nodes.gates.passed(name, "validate")
    errors = [each.exception(5) for each in [arrive(a_host(name)) for name in "abc"]]
    assert all(isinstance(error, CancelledError) for error in errors)
    assert sum("interrupted" in str(error) for error in errors) == 1


def test_a_cancellation_ends_the_wait(nodes, a_host):
    waiting = nodes.arrive(a_host("a"))
    settle()
    nodes.cancel.cancel()
    assert isinstance(waiting.exception(5), CancelledError)
    assert nodes.groups == []


def test_the_end_of_every_node_can_be_waited_for(nodes):
    began = time.monotonic()
    nodes.gates.wait_until_left(0.05)
    assert time.monotonic() - began >= 0.05
    threading.Timer(0.05, lambda: [nodes.gates.leave(name) for name in "abc"]).start()
    nodes.gates.wait_until_left(5)
    assert time.monotonic() - began < 4

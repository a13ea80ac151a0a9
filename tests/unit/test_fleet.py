import resource
import signal
import threading
import time

import pytest

from gpuops import fleet
from gpuops.cancellation import CancelToken
from gpuops.errors import AbandonedError, CancelledError, ConnectError, NodeError


@pytest.fixture
def hosts(a_host):
    return [a_host(f"n{number:02}") for number in range(64)]


@pytest.fixture
def released():
    """An event that is set at the end, so that no worker waits for ever."""
    event = threading.Event()
    yield event
    event.set()


def test_outcomes_come_in_the_order_of_the_hosts(hosts):
    def work(host):
        time.sleep(0.02 if host.name == "n00" else 0)
        return host.name.upper()

    outcomes = fleet.each(hosts, work)
    assert [(o.node, o.value, o.error) for o in outcomes] == [(h.name, h.name.upper(), None) for h in hosts]
    assert outcomes[0].seconds >= 0.02


def test_every_host_has_an_outcome_whatever_happens_there(hosts):
    def work(host):
        number = int(host.name[1:])
        if number % 8 == 1:
            raise ConnectError(host.name, "refused")
        if number % 8 == 2:
            raise ZeroDivisionError("oh")
        return number

    outcomes = fleet.each(hosts, work, fanout=5)
    assert len(outcomes) == 64
    assert isinstance(outcomes[1].error, ConnectError)
    surprise = outcomes[2].error
    assert isinstance(surprise, NodeError)
    assert "a bug in gpuops: ZeroDivisionError: oh" in str(surprise)
    assert isinstance(surprise.__cause__, ZeroDivisionError)
    assert sum(o.error is None for o in outcomes) == 48


@pytest.mark.parametrize("fanout", [1, 5, 32])
def test_no_more_than_the_fanout_run_at_a_time(hosts, fanout):
    lock, running, most = threading.Lock(), [0], [0]

    def work(_):
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.005)
        with lock:
            running[0] -= 1

    fleet.each(hosts, work, fanout=fanout)
    assert most[0] <= fanout
    if fanout < 32:
        assert most[0] == fanout


def test_each_outcome_is_watched_once_in_the_calling_thread(hosts):
    heard = []
    fleet.each(hosts, lambda host: host.name, watch=lambda o: heard.append((o.node, threading.current_thread())))
    assert sorted(node for node, _ in heard) == [host.name for host in hosts]
    assert {thread for _, thread in heard} == {threading.current_thread()}


def test_after_the_total_time_the_rest_is_given_up_and_stopped(hosts, released):
    began = time.monotonic()
    outcomes = fleet.each(
        hosts,
        lambda host: released.wait(30) if host.name in ("n03", "n05") else "ok",
        total_seconds=0.5,
        stop=released.set,
    )
    assert time.monotonic() - began < 8
    assert [o.value for o in outcomes if o.node not in ("n03", "n05")] == ["ok"] * 62
    late = [o for o in outcomes if o.error is not None]
    assert not outcomes.interrupted
    assert {o.error.kind for o in late} <= {"timeout"}
    assert all("no answer within the run's 0.5 s" in str(o.error) for o in late)
    assert {o.node for o in late} <= {"n03", "n05"}
    assert released.is_set()


def test_a_worker_that_cannot_be_stopped_does_not_keep_the_run(hosts, released, monkeypatch):
    monkeypatch.setattr(fleet, "_STOPPING_SECONDS", 0.3)
    began = time.monotonic()
    outcomes = fleet.each(hosts[:2], lambda _: released.wait(30), total_seconds=0.2)
    assert time.monotonic() - began < 8
    assert [(type(o.error), o.error.kind) for o in outcomes] == [(AbandonedError, "timeout")] * 2


def test_an_interrupt_stops_what_runs_and_starts_nothing_more(hosts, released):
    started, stopped = [], []

    def work(host):
        started.append(host.name)
        if host.name != "n00":
            released.wait(30)
        return "ok"

    def watch(_):
        raise KeyboardInterrupt

    outcomes = fleet.each(hosts, work, fanout=4, watch=watch, stop=lambda: (stopped.append(1), released.set()))
    assert stopped == [1]
    assert outcomes.interrupted
    assert len(outcomes) == 64
    assert outcomes[0].value == "ok"
    assert len(started) <= 8
    never = [o for o in outcomes if o.node not in started]
    assert len(never) >= 56
    assert all(isinstance(o.error, CancelledError) for o in never)


def test_an_interrupt_is_heard_though_every_host_still_comes_to_an_end(hosts):
    ended = threading.Event()

    def interrupt(_outcome):
        raise KeyboardInterrupt

    def work(host):
        assert host.name == "n00" or ended.wait(30)
        return host.name

    outcomes = fleet.each(hosts, work, watch=interrupt, stop=ended.set, fanout=len(hosts))
    assert [o.value for o in outcomes] == [host.name for host in hosts]
    assert outcomes.interrupted
    with pytest.raises(CancelledError) as caught:
        fleet.uninterrupted(outcomes)
    assert caught.value.partial is outcomes


def test_an_interrupt_at_the_last_answer_is_heard(hosts):
    def interrupt(outcome):
        if outcome.node == "n00":
            raise KeyboardInterrupt

    outcomes = fleet.each(hosts[:1], lambda host: host.name, watch=interrupt)
    assert [o.value for o in outcomes] == ["n00"]
    assert outcomes.interrupted


def test_what_was_not_interrupted_is_passed_on(hosts):
    outcomes = fleet.each(hosts[:2], lambda host: host.name)
    assert fleet.uninterrupted(outcomes) is outcomes


def test_a_second_interrupt_ends_at_once(hosts, released):
    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fleet.each(hosts[:3], lambda host: host.name == "n00" or released.wait(30), watch=interrupt, stop=interrupt)


def test_a_watcher_that_fails_does_not_leave_nodes_running(hosts, released):
    def watch(_):
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        fleet.each(
            hosts, lambda host: host.name == "n00" or released.wait(30), fanout=3, watch=watch, stop=released.set
        )
    assert released.is_set()


def test_without_hosts_there_are_no_outcomes():
    assert fleet.each([], lambda _: 1) == []


class TestCancel:
    def test_hosts_without_an_answer_are_cancelled_and_the_rest_never_starts(self, hosts, released):
        token, started, stopped = CancelToken(), [], []

        def work(host):
            started.append(host.name)
            return host.name if host.name == "n00" else released.wait(30)

        def cancel_when_busy():
            while len(started) < 5:
                time.sleep(0.005)
            token.cancel()
            token.cancel()

        threading.Thread(target=cancel_when_busy).start()
        began = time.monotonic()
        outcomes = fleet.each(
            hosts, work, fanout=4, cancel=token, stop=lambda: (stopped.append(1), time.sleep(0.05), released.set())
        )
        assert time.monotonic() - began < 5
        assert (stopped, outcomes.interrupted, outcomes[0].value) == ([1], True, "n00")
        assert len(started) <= 8
        never = [o for o in outcomes if o.node not in started]
        assert {(type(o.error), str(o.error)) for o in never} == {(CancelledError, "cancelled before it answered")}

    def test_a_token_that_was_cancelled_before_starts_nothing(self, hosts):
        token, started = CancelToken(), []
        token.cancel()
        outcomes = fleet.each(hosts, lambda host: started.append(host.name), cancel=token)
        assert started == []
        assert outcomes.interrupted
        assert {type(o.error) for o in outcomes} == {CancelledError}

    def test_one_token_ends_many_at_once_and_another_none(self, hosts, released):
        token, other = CancelToken(), CancelToken()
        results = {}

        def fan_out(name, cancel):
            results[name] = fleet.each(hosts[:3], lambda _: released.wait(0.5), cancel=cancel, stop=lambda: None)

        pairs = [("a", token), ("b", token), ("c", other), ("d", None)]
        threads = [threading.Thread(target=fan_out, args=pair) for pair in pairs]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
        token.cancel()
        for thread in threads:
            thread.join(10)
        assert {name: outcomes.interrupted for name, outcomes in results.items()} == {
            "a": True,
            "b": True,
            "c": False,
            "d": False,
        }

    def test_a_token_forgets_what_came_to_its_end(self, hosts):
        token = CancelToken()
        assert not fleet.each(hosts[:2], lambda _: 1, cancel=token).interrupted
        assert token._callbacks == []
        token.cancel()
        assert token.cancelled


def test_the_stack_size_of_other_threads_is_left_alone(hosts):
    before = threading.stack_size()
    fleet.each(hosts[:2], lambda _: 1)
    assert threading.stack_size() == before


def test_the_stack_size_is_left_alone_also_by_fan_outs_side_by_side(hosts):
    before = threading.stack_size()

    def again_and_again():
        for _ in range(50):
            fleet.each(hosts[:4], lambda _: 1)

    threads = [threading.Thread(target=again_and_again) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert threading.stack_size() == before


@pytest.mark.parametrize(
    ("forks", "soft_limit", "fits"),
    [
        (64, 1024, 64),
        (1000, 1024, 240),
        (240, 1024, 240),
        (241, 1024, 240),
        (64, 320, 64),
        (64, 319, 63),
        (5, 68, 1),
        (5, 3, 1),
        (5, 0, 1),
        (1, 1024, 1),
        (4096, resource.RLIM_INFINITY, 4096),
    ],
)
def test_as_many_hosts_are_asked_at_a_time_as_files_may_be_open(forks, soft_limit, fits):
    assert fleet.fitting(forks, soft_limit) == fits
    if fits > 1:
        assert fleet.fitting(forks, fleet.files_for(forks)) == forks


def test_ctrl_c_that_does_not_wake_the_wait_is_noticed_soon(hosts, ctrl_c):
    ctrl_c(60)  # its handler raises; the signal below reaches a worker's thread, so the main thread sleeps on
    released = threading.Event()

    def work(_host):
        time.sleep(0.1)
        signal.pthread_kill(threading.get_ident(), signal.SIGALRM)
        released.wait(20)

    began = time.monotonic()
    outcomes = fleet.each(hosts[:1], work, stop=released.set)
    assert outcomes.interrupted
    assert time.monotonic() - began < 10


def test_what_work_says_that_it_left_undone_is_kept_after_an_interrupt(hosts, released):
    def work(host):
        if host.name == "n00":
            return "ok"
        released.wait(30)
        if host.name == "n01":
            raise CancelledError("it reboots")
        raise NodeError(host.name, "connection closed")

    def watch(_):
        raise KeyboardInterrupt

    outcomes = fleet.each(hosts[:3], work, watch=watch, stop=released.set)
    assert [str(outcome.error) for outcome in outcomes[1:]] == ["it reboots", "interrupted before it answered"]


def test_time_to_end_after_an_interrupt_is_as_long_as_asked(hosts, released):
    def watch(_):
        raise KeyboardInterrupt

    def work(host):
        if host.name != "n00":
            released.wait(0.5)
        return "ok"

    outcomes = fleet.each(hosts[:2], work, watch=watch, stopping_seconds=30.0)
    assert [outcome.value for outcome in outcomes] == ["ok", "ok"]
    assert [outcome.value for outcome in fleet.each(hosts[:2], work, watch=watch, stopping_seconds=0.05)] == [
        "ok",
        None,
    ]

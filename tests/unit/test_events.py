"""Events reach a listener one at a time, and an exception in the listener does not end an operation."""

import logging
import threading
import time

import pytest

from gpuops.cluster import Cluster
from gpuops.errors import InUseError
from gpuops.events import Emitter, Event, Note, Progress
from gpuops.requests import PingRequest


def test_events_without_a_listener_are_dropped():
    emit = Emitter()
    emit(Note("ping-1", "hello"))
    assert not emit.is_speaking


def test_events_of_many_threads_come_one_at_a_time():
    inside, most, seen = [], [], []

    def listener(event):
        inside.append(event)
        most.append(len(inside))
        time.sleep(0.001)
        seen.append(event.done)
        inside.pop()

    emit = Emitter(listener)
    threads = [threading.Thread(target=emit, args=(Progress("ping-1", "x", n, 20),)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(most) == {1}
    assert sorted(seen) == list(range(20))


def test_failing_listener_is_logged_once_and_ends_no_operation(caplog):
    seen = []

    def listener(event):
        seen.append(event)
        raise ZeroDivisionError("oh")

    emit = Emitter(listener)
    with caplog.at_level(logging.WARNING, "gpuops"):
        for _ in range(3):
            emit(Event("ping-1"))
    assert len(seen) == 3
    assert [record.getMessage() for record in caplog.records] == ["the event listener failed: ZeroDivisionError: oh"]
    assert not emit.is_speaking


def test_ctrl_c_inside_a_listener_propagates():
    def listener(_):
        raise KeyboardInterrupt

    emit = Emitter(listener)
    with pytest.raises(KeyboardInterrupt):
        emit(Event("ping-1"))
    assert not emit.is_speaking


def test_is_speaking_only_in_the_thread_of_the_listener():
    speaking = []

    def listener(_):
        speaking.append(emit.is_speaking)
        thread = threading.Thread(target=lambda: speaking.append(emit.is_speaking))
        thread.start()
        thread.join()

    emit = Emitter(listener)
    emit(Event("ping-1"))
    assert speaking == [True, False]


def test_a_listener_cannot_start_an_operation(a_host):
    refused = []

    def listener(_):
        try:
            cluster.ask(PingRequest())
        except InUseError as error:
            refused.append(error)

    with Cluster.of([a_host(connection="local")], events=listener) as cluster:
        answers = cluster.ping()
    assert list(answers.values) == ["n1"]
    assert "an event listener cannot start an operation" in str(refused[0])


def test_event_names_its_call(a_host):
    events = []
    with Cluster.of([a_host(connection="local")], events=events.append) as cluster:
        cluster.ping()
        cluster.ping()
    assert list(dict.fromkeys(event.operation for event in events)) == ["ping-1", "ping-2"]

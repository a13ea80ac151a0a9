import os
import pathlib
import re
import signal
import threading
import time

import pytest

from gpuops.cancellation import CancelToken
from gpuops.collective.crew import Crew
from gpuops.errors import CancelledError, LostError, NodeError


def alive(pid):
    stat = pathlib.Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def gone(pids, seconds=3.0):
    ends = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < ends:
        time.sleep(0.02)
    return not any(map(alive, pids))


@pytest.fixture
def crew(hosts, opener, echo):
    crew = Crew(hosts, opener, "echo")
    crew.open()
    yield crew
    crew.close()


def pid(crew, node):
    return crew.workers[node].first_message["pid"]


def test_each_node_is_told_its_own_message_and_all_answer(crew):
    told = {name: {"to": name} for name in ("n2", "n0", "n1")}
    answers = crew.ask(told, 10)
    assert {name: answer["echo"] for name, answer in answers.items()} == told
    assert list(answers) == ["n2", "n0", "n1"]
    assert not crew.lost


def test_workers_stay_between_messages(crew):
    pids = [crew.ask({"n0": {}}, 10)["n0"]["pid"] for _ in range(3)]
    assert pids == [pid(crew, "n0")] * 3


def test_all_work_at_the_same_time(crew):
    began = time.monotonic()
    crew.ask({name: {"sleep": 1} for name in crew.workers}, 10)
    assert time.monotonic() - began < 2


def test_one_that_is_late_is_lost_and_the_others_are_heard(crew):
    late = pid(crew, "n1")
    answers = crew.ask({"n0": {}, "n1": {"sleep": 60}, "n2": {"sleep": 0.5}}, 2)
    assert re.fullmatch(r"n1: no answer within 2\.\d s", str(answers["n1"]))
    assert answers["n2"]["echo"] == {"sleep": 0.5}
    assert list(crew.lost) == ["n1"]
    assert crew.ask({"n1": {}}, 2)["n1"] is crew.lost["n1"]
    crew.open()
    assert not crew.lost
    assert crew.ask({"n1": {}}, 2)["n1"]["pid"] != late
    assert gone([late])


def test_one_that_ends_is_lost_at_once_with_its_last_words(crew):
    began = time.monotonic()
    answer = crew.ask({"n0": {"raise": "out of luck"}}, 30)["n0"]
    assert isinstance(answer, LostError)
    assert "ValueError: out of luck" in str(answer)
    assert time.monotonic() - began < 5


def test_a_stopped_process_is_late_and_is_killed(crew):
    stopped = pid(crew, "n2")
    os.kill(stopped, signal.SIGSTOP)
    assert isinstance(crew.ask({"n2": {}}, 0.5)["n2"], NodeError)
    crew.close()
    assert gone([stopped])


def test_close_leaves_no_process(crew):
    pids = [pid(crew, name) for name in crew.workers]
    assert all(map(alive, pids))
    crew.close()
    crew.close()
    assert gone(pids)


def test_a_host_that_cannot_be_reached_is_lost_with_the_reason_and_the_others_work(hosts, opener, echo):
    crew = Crew(hosts, opener, "echo")
    crew._transports["n1"].close()
    crew.open()
    assert {name: str(error) for name, error in crew.lost.items()} == {"n1": "n1: gpuops closed the connection"}
    assert set(crew.ask({"n0": {}, "n2": {}}, 5)["n0"]) == {"pid", "echo"}
    crew.close()


def test_ctrl_c_ends_a_conversation_and_all_that_it_was_about(hosts, opener, echo, ctrl_c):
    crew = Crew(hosts, opener, "echo")
    crew.open()
    pids = list(crew.pids.values())
    began = time.monotonic()
    ctrl_c(0.3)
    with pytest.raises(CancelledError):
        crew.ask({name: {"sleep": 60} for name in crew.workers}, 100)
    crew.close()
    assert time.monotonic() - began < 5
    assert gone(pids)


def test_cancelling_from_another_thread_ends_a_conversation_in_the_same_way(hosts, connections, echo):
    token = CancelToken()
    crew = Crew(hosts, connections.group(token), "echo")
    crew.open()
    pids = list(crew.pids.values())
    began = time.monotonic()
    threading.Timer(0.3, token.cancel).start()
    with pytest.raises(CancelledError):
        crew.ask({name: {"sleep": 60} for name in crew.workers}, 100)
    crew.close()
    assert time.monotonic() - began < 5
    assert gone(pids)

import re

import pytest

from gpuops.errors import EndedError, LostError
from gpuops.transport.agent import AgentTransport

HELLO = b'noise\nMARK {"hello": {"pid": 7}}\n'


def test_a_script_says_what_it_is_and_answers_line_by_line(scripted):
    node = scripted([HELLO, b'MARK {"a": 1}\nMARK {"b"', b": 2}\nmotd\n"])
    worker = node.start("agent")
    worker.send({"do": "x"})
    assert worker.first_message == {"pid": 7}
    assert worker.receive(1) == {"a": 1}
    assert worker.receive(1) == {"b": 2}
    assert node.streams[0].written.endswith(b'{"do": "x"}\n')


def test_it_runs_beside_the_agent_on_a_stream_of_its_own(scripted):
    node = scripted([HELLO, b'MARK {"a": 1}\n'], [HELLO, b'MARK {"a": 2}\n'])
    workers = [node.start("agent"), node.start("agent")]
    assert [worker.receive(1) for worker in workers] == [{"a": 1}, {"a": 2}]
    node.close()
    assert all(stream.closed for stream in node.streams)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ([], "n1: the worker ended$"),
        ([b"x\nValueError: no such thing\n"], "the worker ended: ValueError: no such thing"),
        ([b"MARK none\n"], "n1: no Python 3 found on the node"),
        ([b'MARK {"a": }\n'], "sent an unreadable message"),
        ([b"y\n" * 600_000], "more than 1 MiB"),
    ],
)
def test_what_is_no_answer_is_lost(scripted, said, told):
    worker = scripted([HELLO, *said]).start("agent")
    with pytest.raises(LostError, match=told):
        worker.receive(1)


def test_worker_says_how_its_script_ended(scripted):
    worker = scripted([HELLO]).start("agent")
    worker._stream.stream.write(b"Killed")
    with pytest.raises(EndedError, match=r"n1: the worker ended by signal 9$"):
        worker.receive(1)


def test_a_script_that_does_not_start_is_lost(scripted):
    with pytest.raises(LostError, match="no answer within 30 s"):
        scripted([None]).start("agent")
    with pytest.raises(LostError, match="no Python 3"):
        scripted([b"MARK none\n"]).start("agent")


def test_silence_is_no_loss_and_what_comes_later_is_heard(scripted):
    worker = scripted([HELLO, None, b'MARK {"a": 1}\n']).start("agent")
    with pytest.raises(TimeoutError):
        worker.receive(1)
    assert worker.receive(1) == {"a": 1}


def test_a_worker_that_starts_while_we_hang_up_is_closed_again(scripted):
    node = scripted([HELLO])
    start = node._open_stream

    def slow_start(line):
        stream = start(line)
        node.close()
        return stream

    node._open_stream = slow_start
    with pytest.raises(LostError, match="gpuops closed the connection"):
        node.start("agent")
    assert node.streams[0].closed
    assert not node.streams[0].written


def test_a_shell_that_ended_before_the_program_was_sent_is_still_heard():
    class Ended:
        def __init__(self, line):
            mark = re.search(r"echo (\S+) none", line)[1]
            self.said = [f"{mark} none\n".encode()]

        def write(self, data):
            raise LostError("n1", "the connection broke while the request was sent")

        def read(self, seconds):
            return self.said.pop() if self.said else b""

        def close(self):
            pass

    with pytest.raises(LostError, match="no Python"):
        AgentTransport("n1", Ended).start("ring")

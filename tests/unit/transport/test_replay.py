import pytest

from gpuops import facts
from gpuops.errors import NodeError
from gpuops.probing import Probe
from gpuops.shell import Command, Completed, Files
from gpuops.transport import Transport
from gpuops.transport.replay import ReplayTransport

UPTIME, LIMITS = Command(("uptime",)), Files(("/proc/self/limits",))
ANSWERS = [Completed("n1", UPTIME, 0, "up\n"), Completed("n1", LIMITS, 0, "/proc/self/limits\0\0")]


def test_recorded_answers_are_given_in_the_order_of_the_questions():
    replay = ReplayTransport("n7", ANSWERS)
    assert [a.out for a in replay.batch([LIMITS, UPTIME])] == ["/proc/self/limits\0\0", "up\n"]
    assert replay.run(Command(("uptime",), timeout_seconds=3)) == Completed("n7", UPTIME, 0, "up\n")
    assert replay.asked == [LIMITS, UPTIME, UPTIME]


def test_a_question_that_was_not_scripted_raises():
    with pytest.raises(NodeError, match="n1: the recording has no answer to: reboot"):
        ReplayTransport("n1", {UPTIME: ANSWERS[0]}).run(Command(("reboot",)))


def test_saved_facts_can_be_gathered_again():
    probe = Probe("uptime", UPTIME, parse=lambda answer: answer.out.strip())
    first = facts.gather("n1", ReplayTransport("n1", ANSWERS).batch, [probe], keep_answers=True)
    assert facts.gather("n1", ReplayTransport("n1", first.answers).batch, [probe])[probe] == "up"


def test_files_are_what_was_put():
    replay: Transport = ReplayTransport("n1", {}, files={"/etc/hostname": b"n1\n"})
    replay.put(b"x", "/etc/new", 0o640)
    assert (replay.get("/etc/hostname"), replay.get("/etc/new")) == (b"n1\n", b"x")
    assert replay.modes == {"/etc/new": 0o640}
    with pytest.raises(NodeError, match="no such file"):
        replay.get("/etc/other")
    replay.close()

import pytest

from gpuops.errors import ConnectError, LostError
from gpuops.playbook import journal
from gpuops.playbook.journal import read

RUNNING = "ActiveState=active\nSubState=running"


def test_a_long_step_outlives_a_lost_connection(world, steps):
    gone = [LostError("n1", "the connection broke"), ConnectError("n1", "nobody answers")]
    world.node.unit_story = [RUNNING, *gone, RUNNING]
    record = world.run(steps("put: {key: a, value: '1', detach: true}"))
    assert world.statuses(record) == [("put", "changed")]
    assert world.node.done == ["put a 1"]
    assert world.node.units == {}
    assert len(world.slept) == 4


@pytest.mark.parametrize("script", ["systemd-run", "systemctl stop"])
def test_a_connection_that_is_lost_as_the_unit_is_started_or_taken_away_loses_nothing(
    world, monkeypatch, script, steps
):
    answer = world.node._sh
    lost = iter([LostError("n1", "the connection broke")])

    def sh(command):
        answered = answer(command)
        if script in command.words[2]:
            for error in lost:
                raise error
        return answered

    monkeypatch.setattr(world.node, "_sh", sh, raising=False)
    (result,) = world.run(steps("put: {key: a, value: '1', detach: true}")).results
    assert (result.status, result.why, world.node.done) == ("changed", "", ["put a 1"])


@pytest.mark.parametrize(
    ("story", "status", "said"),
    [
        (["ActiveState=failed\nExecMainStatus=3"], "failed", "a = 1: ended with 3: the last line of its log"),
        (["ActiveState=failed\nResult=timeout\nExecMainStatus=15"], "failed", "a = 1: killed after"),
        ([RUNNING] * 500, "failed", "-1.service still runs after 10 s; see /var/log/gpuops/gpuops-"),
        ([ConnectError("n1", "nobody answers")] * 500, "unreachable", "nobody answers"),
        (["LoadState=not-found"], "failed", "vanished; check whether the node was rebooted"),
    ],
)
def test_how_a_long_step_can_end(world, story, status, said, steps):
    world.node.unit_story = story
    (result,) = world.run(steps("put: {key: a, value: '1', detach: true}")).results
    assert result.status == status
    assert said in result.why


@pytest.mark.parametrize("system", ["offline", ""])
def test_where_no_systemd_runs_a_long_step_is_done_plainly_and_that_is_noted_once(world, system, steps):
    world.node.system = system
    record = world.run(steps("put: {key: a, value: '1', detach: true}", "put: {key: b, value: '1', detach: true}"))
    assert world.statuses(record) == [("put", "changed"), ("put", "changed")]
    assert world.node.done == ["put a 1", "put b 1"]
    lines = list(read(journal.find(world.folder / "runs", world.last.run_id)))
    assert [line["detach"] for line in lines if line["event"] == "change"] == [False, False]
    assert [line["what"] for line in lines if line["event"] == "note"] == [
        "no systemd: long commands end with the connection"
    ]


def test_what_an_earlier_run_left_at_work_is_waited_for_before_anything_is_looked_at(world, steps):
    left = "gpuops-20261120-101500-123456-1.service"
    world.node.units[left] = (0,)
    world.node.unit_story = [RUNNING, RUNNING]

    def sleep(seconds):
        world.slept.append(seconds)
        world.node.settings["a"] = "1"  # what the unit is about

    made = world.prepare(steps("put: {key: a, value: '1'}"))
    for session in made._sessions.values():
        session.sleep = sleep
    assert world.statuses(made.run()) == [("put", "ok")]
    assert (len(world.slept), world.node.units, world.node.done) == (2, {}, [])

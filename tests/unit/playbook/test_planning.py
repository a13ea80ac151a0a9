from dataclasses import dataclass

import pytest

from gpuops import Change, Command, Completed, Failed, Files, Later, NeedsOperator, Probe, use
from gpuops.playbook.planning import plan
from gpuops.playbook.task import Machine, Task, task
from gpuops.transport.replay import ReplayTransport


@dataclass(frozen=True)
class Params:
    wanted: str = "1"


LOOK = Command(("cat", "value"))
OTHER = Files(("/other",))
PROBE = Probe("number", LOOK, lambda answer: int(answer.out))
NODE = Machine("n1", groups=("h100",))


class Tasks(dict):
    """A library of tasks that a test made."""

    def __init__(self, *tasks: Task):
        super().__init__((t.name, t) for t in tasks)


def planned(made, params=None, library=None, value="0"):
    transport = ReplayTransport("n1", [Completed("n1", LOOK, 0, value), Completed("n1", OTHER, 0, "/other\0x\0")])
    found = plan(made, params or made.params(), NODE, transport.batch, library or Tasks())
    return found, transport.asked


def change(what):
    return Change(what, Command(("set", what)))


@task
def setting(params: Params):
    """A value."""
    found = yield LOOK
    if found.out != params.wanted:
        yield change(params.wanted)
    return found.out


def test_a_task_that_finds_what_it_wants_plans_nothing():
    found, asked = planned(setting, value="1")
    assert (found.changes, found.later, found.stop, found.value) == ([], [], None, "1")
    assert asked == [LOOK]


def test_changes_are_collected_and_never_done():
    found, asked = planned(setting, Params("7"))
    assert found.changes == [change("7")]
    assert asked == [LOOK]


def test_the_same_change_is_made_once_and_an_image_after_all_that_it_holds():
    def image(kind):
        return Change("image", Command(("image",)), kind=kind)

    @task
    def twice(params: Params):
        """Two files and what is made of them."""
        for file in ("a", "b", "a"):
            yield change(file)
            yield image("rebuild")
            yield image("act")

    found, _ = planned(twice)
    assert found.changes == [change("a"), image("act"), change("b"), image("rebuild")]


def test_a_probe_gives_its_value_and_a_tuple_all_its_answers_in_one_round_trip():
    seen = []

    @task
    def looking(params: Params):
        number = yield PROBE
        both = yield (PROBE, OTHER)
        seen.extend([number, both[0], both[1].out])

    planned(looking, value="5")
    assert seen == [5, 5, "/other\0x\0"]


def test_a_task_uses_another_and_gets_what_it_returns():
    @task
    def composed(params: Params):
        yield change("before")
        seen = yield from use("setting", wanted="3")
        yield change(f"after {seen}")

    found, _ = planned(composed, library=Tasks(setting))
    assert [c.what for c in found.changes] == ["before", "3", "after 0"]


@pytest.mark.parametrize("end", [NeedsOperator("confirm the key"), Failed("no such package")])
def test_what_stops_a_task_stops_those_that_use_it(end):
    @task
    def stopping(params: Params):
        yield change("first")
        yield end
        yield change("never")

    @task
    def outer(params: Params):
        yield from use("stopping")
        yield change("never either")

    found, _ = planned(outer, library=Tasks(stopping))
    assert (found.stop, found.changes) == (end, [change("first")])


def test_what_cannot_be_planned_yet_is_told_beside_what_can():
    @task
    def waiting(params: Params):
        yield change("repository")
        yield Later("the repository is not there yet")

    found, _ = planned(waiting)
    assert (found.changes, found.later) == ([change("repository")], [Later("the repository is not there yet")])


def test_a_task_that_wants_it_gets_the_node_of_the_inventory():
    @task
    def named(params: Params, node: Machine):
        yield change(node.name + node.groups[0])

    found, _ = planned(named)
    assert found.changes == [change("n1h100")]


def test_what_is_no_question_is_a_fault_of_the_task():
    @task
    def wrong(params: Params):
        yield "ls"

    with pytest.raises(TypeError, match="a task yielded 'ls'") as raised:
        planned(wrong)
    assert "wrong" in [entry.name for entry in raised.traceback]

import itertools

import pytest

from gpuops.errors import DocumentError
from gpuops.playbook import applying, binding
from gpuops.playbook.task import TaskRegistry
from gpuops.probing import Probe, Unknown
from gpuops.shell import Files, read_files


def test_a_change_is_made_once_and_the_second_run_finds_everything_well(world, steps):
    first = world.run(steps("put: {key: a, value: '1'}"))
    assert world.statuses(first) == [("put", "changed")]
    assert world.node.settings == {"a": "1"}
    second = world.run()
    assert world.statuses(second) == [("put", "ok")]
    assert world.node.done == ["put a 1"]
    assert (first.exit_code(check=False), second.exit_code(check=False)) == (0, 0)


def test_check_mode_shows_what_apply_then_does_and_touches_nothing(world, steps):
    text = steps("put: {key: a, value: '1'}", "both: {first: b, second: c}", "put: {key: d, value: x, after: c}")
    checked = world.run(text, check=True)
    assert world.statuses(checked) == [("put", "would_change"), ("both", "would_change"), ("put", "later")]
    assert checked.results[1].later == ("b is not there yet",)
    assert checked.results[2].why == 'c is not there yet; depends on step 1.1 "put" or 1.2 "both"'
    assert checked.exit_code(check=True) == 1
    assert (world.node.done, world.node.lock, list(world.folder.glob("runs"))) == ([], "", [])
    applied = world.run(text)
    shown = [change.what for result in checked.results for change in result.changes]
    made = [change.what for result in applied.results for change in result.changes]
    assert made == ["a = 1", "b = 1", "c = 1", "d = x"]
    assert [what for what in made if what in shown] == shown
    assert world.run(check=True).exit_code(check=True) == 0


def test_what_fails_in_check_mode_may_be_mended_by_what_was_not_done_before_it(world, steps):
    text = steps("put: {key: a, value: '1'}", "stop: {failed: not built}")
    checked = world.run(text, check=True)
    assert [(r.status, r.why) for r in checked.results] == [
        ("would_change", ""),
        ("later", 'not built; depends on step 1.1 "put"'),
    ]
    assert [r.status for r in world.run(text).results] == ["changed", "failed"]
    assert [r.status for r in world.run(text, check=True).results] == ["ok", "failed"]


def test_what_cannot_be_told_although_nothing_is_to_be_changed_before_it_is_a_failure(world, steps):
    text = steps("put: {key: d, value: x, after: c}")
    for check in (True, False):
        record = world.run(text, check=check)
        assert [(r.status, r.why) for r in record.results] == [("failed", "c is not there yet")]
        assert record.exit_code(check=check) == 1


def test_a_change_that_does_not_hold_is_a_failure(world, steps):
    world.node.forget.add("a")
    (result,) = world.run(steps("put: {key: a, value: '1'}")).results
    assert (result.status, result.why) == ("failed", "did not take effect: a = 1")
    assert world.node.done == ["put a 1"]


def test_a_command_that_is_refused_ends_the_node_and_not_the_others(cluster, steps):
    world = cluster("n1", "n2", "n3")
    world.nodes["n2"].refuse.add("put a 1")
    record = world.run(steps("put: {key: a, value: '1'}", "put: {key: b, value: '1'}"))
    assert [(r.node, r.status) for r in record.results] == [
        ("n1", "changed"), ("n2", "failed"), ("n3", "changed"), ("n1", "changed"), ("n3", "changed"),
    ]  # fmt: skip
    assert record.results[1].why == "a = 1: ended with 1: refused"
    assert record.exit_code(check=False) == 1


FETCH = "E: Failed to fetch http://lab/Packages  Could not resolve 'lab'"
KEY = "W: GPG error: http://lab ./ InRelease: NO_PUBKEY 0123456789ABCDEF"
DISK = "dpkg: error processing archive /a.deb (--unpack):\n cannot copy extracted data: No space left on device"
FULL = "dpkg: error processing archive /a.deb (--unpack): cannot copy extracted data: No space left on device"


@pytest.mark.parametrize(
    ("out", "err", "told"),
    [
        ("Reading package lists...\n", f"{FETCH}\nE: Some index files failed to download.\n", FETCH),
        ("", f"{KEY}\nE: The repository 'http://lab ./ InRelease' is not signed.\n", KEY),
        (f"Unpacking a\n{DISK}\nErrors:\n a\n", "E: Sub-process /usr/bin/dpkg returned an error code (1)\n", FULL),
    ],
)
def test_the_cause_that_a_package_manager_tells_is_told_and_not_its_last_words(world, out, err, told, steps):
    world.node.do = lambda words: (100, out, err)
    (result,) = world.run(steps("put: {key: a, value: '1'}")).results
    assert result.why.endswith(f": {told}")


@pytest.mark.parametrize(
    ("step", "status", "code"),
    [
        ("stop: {operator: enrol the key at the console}", "needs_operator", 3),
        ("stop: {failed: no such package}", "failed", 1),
        ("stop: {bug: true}", "failed", 1),
    ],
)
def test_how_a_task_can_end(world, step, status, code, steps):
    record = world.run(steps(step, "put: {key: a, value: '1'}"))
    assert world.statuses(record) == [("stop", status)]
    assert record.exit_code(check=False) == code


def test_a_bug_of_a_task_is_told_with_its_file_and_line(world, steps):
    record = world.run(steps("stop: {bug: true}"))
    path = world.folder / "playbooks" / "tasks" / "stop.py"
    line = 1 + path.read_text().splitlines().index('        raise KeyError("a bug of the task")')
    assert record.results[0].why == f"{path}:{line}: KeyError: 'a bug of the task'"


def test_a_fabric_function_is_called_once_a_run_with_the_connection(world, steps):
    record = world.run(steps("call: {words: act deploy}", "put: {key: a, value: '1'}"))
    assert world.statuses(record) == [("call", "changed"), ("put", "changed")]
    assert world.node.done == ["act deploy", "put a 1"]
    assert [change.what for change in record.results[0].changes] == ["call(words='act deploy', bug=False)"]


def test_check_mode_never_calls_a_function_and_says_that_nobody_can_tell(world, steps):
    record = world.run(steps("call: {words: act deploy}", "put: {key: a, value: '1'}"), check=True)
    assert world.statuses(record) == [("call", "later"), ("put", "would_change")]
    assert record.results[0].why.endswith("a function's effect is not known in advance")
    assert world.node.done == []
    assert record.exit_code(check=True) == 1


def test_a_function_fails_with_the_command_that_failed_in_it_or_with_its_own_line(world, steps):
    world.node.refuse.add("act deploy")
    record = world.run(steps("call: {words: act deploy}"))
    assert [(r.status, r.why) for r in record.results] == [
        ("failed", "call(words='act deploy', bug=False): ended with 1: refused")
    ]
    (result,) = world.run(steps("call: {words: x, bug: true}")).results
    assert (result.status, result.why) == (
        "failed", f"{world.folder / 'playbooks' / 'tasks' / 'call.py'}:6: KeyError: 'a bug of the function'"
    )  # fmt: skip


def test_a_function_is_not_called_where_there_is_no_fabric_connection(world, monkeypatch, steps):
    monkeypatch.setattr(type(world.node), "connection", None)
    (result,) = world.run(steps("call: {words: act deploy}")).results
    assert result.status == "failed"
    assert "the node is not reached through Fabric" in result.why
    assert world.node.done == []


def test_a_function_of_which_nobody_knows_whether_it_ended_is_not_called_again(world, steps):
    world.node.lose = "after"
    record = world.run(steps("call: {words: act deploy}"))
    assert record.results[0].status == "unreachable"
    record = world.run(resume=next((world.folder / "runs").iterdir()).name)
    assert (record.results[0].status, world.node.done) == ("needs_operator", ["act deploy"])
    assert "unknown whether this was done before the run was interrupted: call(" in record.results[0].why


def test_a_node_out_of_reach_is_left_out_and_told(cluster, steps):
    world = cluster("n1", "n2")
    world.nodes["n2"].unreachable = True
    record = world.run(steps("put: {key: a, value: '1'}"))
    assert [(r.node, r.status) for r in record.results] == [("n2", "unreachable"), ("n1", "changed")]
    assert record.exit_code(check=False) == 3


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_connection_that_is_lost_in_a_change_leaves_the_node_and_a_second_run_heals_it(world, when, steps):
    world.node.lose = when
    record = world.run(steps("put: {key: a, value: '1'}", "put: {key: b, value: '1'}"))
    assert world.statuses(record) == [("put", "unreachable")]
    assert record.exit_code(check=False) == 3
    assert world.run().exit_code(check=False) == 0
    assert world.node.settings == {"a": "1", "b": "1"}
    assert world.node.done == ["put a 1", "put b 1"]


@pytest.fixture
def facts(monkeypatch):
    """Two probes: one reads a setting of the node, the other cannot read anything."""
    colour = Probe("colour", Files(("/colour",)), lambda answer: {"name": read_files(answer.out)["/colour"]})
    dark = Probe("dark", Files(("/dark",)), lambda _: Unknown("it is dark"))
    for module in (binding, applying):
        monkeypatch.setattr(module, "every_probe", lambda: {"colour": colour, "dark": dark})


def test_conditions_read_fresh_facts_variables_and_earlier_results(world, facts, steps):
    text = steps(
        "{put: {key: colour, value: red}, register: first}",
        "{put: {key: b, value: '1'}, when: first.changed}",
        "{put: {key: c, value: '1'}, when: not first.changed}",
        "{put: {key: d, value: '1'}, when: [facts.colour.name == 'red', node.name == 'n1']}",
    )
    record = world.run(text)
    assert [r.status for r in record.results] == ["changed", "changed", "skipped", "changed"]
    assert record.results[2].why == "not: not first.changed"


def test_a_fact_that_nobody_could_read_decides_nothing(world, facts, steps):
    text = steps("{put: {key: a, value: '1'}, when: facts.dark == 'x'}")
    (result,) = world.run(text).results
    assert result.status == "failed"
    assert "'x'\": it is dark" in result.why
    later = world.run(steps("put: {key: b, value: '1'}", "{put: {key: a, value: '1'}, when: facts.dark}"), check=True)
    assert [r.status for r in later.results] == ["would_change", "later"]


def test_errors_may_be_ignored(world, steps):
    record = world.run(steps("{stop: {failed: broken}, ignore_errors: true}", "put: {key: a, value: '1'}"))
    assert [(r.status, r.ignored) for r in record.results] == [("failed", True), ("changed", False)]
    assert record.exit_code(check=False) == 0


def test_a_step_is_tried_again_as_often_as_it_says(world, steps):
    world.node.refuse.add("put a 1")
    record = world.run(steps("{put: {key: a, value: '1'}, retries: 2, delay: 30}"))
    assert (record.results[0].attempts, record.results[0].status) == (3, "failed")
    assert world.slept == [30, 30]


def test_until_waits_for_the_world_outside(world, facts, steps):
    def sleep(seconds):
        world.slept.append(seconds)
        world.node.settings["colour"] = "green" if len(world.slept) > 1 else "yellow"

    world.node.settings["colour"] = "red"
    made = world.prepare(steps("{put: {key: a, value: '1'}, until: facts.colour.name == 'green', retries: 5}"))
    for session in made._sessions.values():
        session.sleep = sleep
    (result,) = made.run().results
    assert (result.status, result.attempts) == ("changed", 3)
    (result,) = world.run(steps("{put: {key: a, value: '1'}, until: facts.colour.name == 'blue', retries: 2}")).results
    assert (result.status, result.why, result.attempts) == ("failed", "not yet: facts.colour.name == 'blue'", 3)


def test_the_time_of_a_step_is_limited(world, steps):
    world.node.stays_away = True
    (result,) = world.run(steps("{reboot: {reason: x}, timeout: 5}")).results
    assert result.status == "unreachable"
    assert "not back" in result.why
    assert sum(world.slept) < 30


def test_a_secret_is_in_no_journal(world, steps):
    world.run(steps("put: {key: a, value: hunter2x}"))
    assert b"hunter2x" in b"".join(p.read_bytes() for p in world.folder.glob("runs/*/journal.jsonl"))
    from gpuops.secret import Secret

    Secret("hunter3")
    world.run(steps("put: {key: b, value: hunter3}"))
    assert b"hunter3" not in b"".join(p.read_bytes() for p in world.folder.glob("runs/*/journal.jsonl"))


KEEP = """
from dataclasses import dataclass
from typing import Any
from gpuops import Change, Command, Secret, task, use

@dataclass(frozen=True)
class Params:
    token: {kind}

@task
def {name}(params: Params):
    {body}
"""


@pytest.mark.parametrize("verb", ["keep", "login"], ids=["its own parameter", "a parameter of a task that it uses"])
def test_a_secret_comes_from_the_environment_of_the_run_alone(world, monkeypatch, steps, verb):
    tasks = world.folder / "playbooks" / "tasks"
    change = 'yield Change("token", Command(("put", "token", params.token.reveal()), become="always"), kind="act")'
    (tasks / "keep.py").write_text(KEEP.format(kind="Secret", name="keep", body=change))
    login = KEEP.format(kind="Any", name="login", body='yield from use("keep", token=params.token)')
    (tasks / "login.py").write_text(login)
    world.library = TaskRegistry(world.folder)
    world.run(steps(f"{verb}: {{token: !env TOKEN}}"), environment={"TOKEN": "hunter2"})
    assert world.node.done == ["put token hunter2"]
    assert "hunter2" not in repr(world.last._options)
    monkeypatch.setenv("TOKEN", "hunter3")
    try:
        why = world.run(steps(f"{verb}: {{token: !env TOKEN}}")).results[0].why
    except DocumentError as error:
        why = str(error)
    assert "token: TOKEN is not set in the environment" in why
    assert world.node.done == ["put token hunter2"]


def test_a_plan_is_data_so_any_order_of_independent_steps_comes_to_the_same(cluster, steps):
    ends = []
    for order in itertools.permutations("abc"):
        world = cluster("n1") if not ends else ends[0][0]
        world.nodes["n1"].settings = {}
        world.run(steps(*(f"put: {{key: {key}, value: '1'}}" for key in order)))
        ends.append((world, dict(world.nodes["n1"].settings)))
    assert all(end == {"a": "1", "b": "1", "c": "1"} for _, end in ends)


def test_a_task_that_gives_another_wrong_parameters_fails_and_says_where(world, steps):
    path = world.folder / "playbooks" / "tasks" / "wrong.py"
    path.write_text(
        "from dataclasses import dataclass\nfrom gpuops import Plan, task, use\n"
        "@dataclass(frozen=True)\nclass Params:\n    pass\n"
        "@task\ndef wrong(params: Params) -> Plan:\n    yield from use('put', kye='a')\n"
    )
    from gpuops.playbook.task import TaskRegistry

    world.library = TaskRegistry(world.folder)
    record = world.run(steps("wrong: {}"))
    assert record.results[0].status == "failed"
    assert 'unknown key "kye" under "put"; did you mean "key"' in record.results[0].why
    with pytest.raises(DocumentError):
        world.run(steps("wrong: {x: 1}"))

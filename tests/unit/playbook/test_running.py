import itertools
import socket

import pytest

from gpuops.errors import ConnectError, DocumentError, Interrupted, LostError
from gpuops.fleet import Outcome
from gpuops.playbook import applying, binding, journal, locking, rebooting, running
from gpuops.playbook.journal import read
from gpuops.probing import Probe, Unknown
from gpuops.shell import Files, read_files

PUT = "- hosts: all\n  tasks:\n    - put: {key: a, value: '1'}\n"


def steps(*lines, handlers=()):
    text = "- hosts: all\n  tasks:\n" + "".join(f"    - {line}\n" for line in lines)
    return text + ("  handlers:\n" + "".join(f"    - {line}\n" for line in handlers) if handlers else "")


def test_a_change_is_made_once_and_the_second_run_finds_everything_well(world):
    first = world.run(PUT)
    assert world.statuses(first) == [("put", "changed")]
    assert world.node.settings == {"a": "1"}
    second = world.run()
    assert world.statuses(second) == [("put", "ok")]
    assert world.node.done == ["put a 1"]
    assert (first.exit_code(check=False), second.exit_code(check=False)) == (0, 0)


def test_check_mode_shows_what_apply_then_does_and_touches_nothing(world):
    text = steps("put: {key: a, value: '1'}", "both: {first: b, second: c}", "put: {key: d, value: x, after: c}")
    checked = world.run(text, check=True)
    assert world.statuses(checked) == [("put", "would_change"), ("both", "would_change"), ("put", "later")]
    assert checked.results[1].later == ("b is not there yet",)
    assert checked.results[2].why == "c is not there yet"
    assert checked.exit_code(check=True) == 1
    assert (world.node.done, world.node.lock, list(world.folder.glob("runs"))) == ([], "", [])
    applied = world.run(text)
    shown = [change.what for result in checked.results for change in result.changes]
    made = [change.what for result in applied.results for change in result.changes]
    assert made == ["a = 1", "b = 1", "c = 1", "d = x"]
    assert [what for what in made if what in shown] == shown
    assert world.run(check=True).exit_code(check=True) == 0


def test_what_fails_in_check_mode_may_be_mended_by_what_was_not_done_before_it(world):
    text = steps("put: {key: a, value: '1'}", "stop: {failed: not built}")
    checked = world.run(text, check=True)
    assert [(r.status, r.why) for r in checked.results] == [("would_change", ""), ("later", "not built")]
    assert [r.status for r in world.run(text).results] == ["changed", "failed"]
    assert [r.status for r in world.run(text, check=True).results] == ["ok", "failed"]


def test_what_cannot_be_told_although_nothing_is_to_be_changed_before_it_is_a_failure(world):
    text = steps("put: {key: d, value: x, after: c}")
    for check in (True, False):
        record = world.run(text, check=check)
        assert [(r.status, r.why) for r in record.results] == [("failed", "c is not there yet")]
        assert record.exit_code(check=check) == 1


def test_a_change_that_does_not_hold_is_a_failure(world):
    world.node.forget.add("a")
    (result,) = world.run(PUT).results
    assert (result.status, result.why) == ("failed", "did not hold: a = 1")
    assert world.node.done == ["put a 1"]


def test_a_command_that_is_refused_ends_the_node_and_not_the_others(cluster):
    world = cluster("n1", "n2", "n3")
    world.nodes["n2"].refuse.add("put a 1")
    record = world.run(steps("put: {key: a, value: '1'}", "put: {key: b, value: '1'}"))
    assert [(r.node, r.status) for r in record.results] == [
        ("n1", "changed"), ("n2", "failed"), ("n3", "changed"), ("n1", "changed"), ("n3", "changed"),
    ]  # fmt: skip
    assert record.results[1].why == "a = 1: ended with 1 and said: refused"
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
def test_the_cause_that_a_package_manager_tells_is_told_and_not_its_last_words(world, out, err, told):
    world.node.do = lambda words: (100, out, err)
    (result,) = world.run(PUT).results
    assert result.why.endswith(f"said: {told}")


@pytest.mark.parametrize(
    ("step", "status", "code"),
    [
        ("stop: {operator: enrol the key at the console}", "needs_operator", 3),
        ("stop: {failed: no such package}", "failed", 1),
        ("stop: {bug: true}", "failed", 1),
    ],
)
def test_how_a_task_can_end(world, step, status, code):
    record = world.run(steps(step, "put: {key: a, value: '1'}"))
    assert world.statuses(record) == [("stop", status)]
    assert record.exit_code(check=False) == code


def test_a_bug_of_a_task_is_told_with_its_file_and_line(world):
    record = world.run(steps("stop: {bug: true}"))
    path = world.folder / "playbooks" / "tasks" / "stop.py"
    line = 1 + path.read_text().splitlines().index('        raise KeyError("a bug of the task")')
    assert record.results[0].why == f"{path}:{line}: KeyError: 'a bug of the task'"


def test_a_fabric_function_is_called_once_a_run_with_the_connection(world):
    record = world.run(steps("call: {words: act deploy}", "put: {key: a, value: '1'}"))
    assert world.statuses(record) == [("call", "changed"), ("put", "changed")]
    assert world.node.done == ["act deploy", "put a 1"]
    assert [change.what for change in record.results[0].changes] == ["call(words='act deploy', bug=False)"]


def test_check_mode_never_calls_a_function_and_says_that_nobody_can_tell(world):
    record = world.run(steps("call: {words: act deploy}", "put: {key: a, value: '1'}"), check=True)
    assert world.statuses(record) == [("call", "later"), ("put", "would_change")]
    assert record.results[0].why.endswith("what a function does cannot be told before")
    assert world.node.done == []
    assert record.exit_code(check=True) == 1


def test_a_function_fails_with_the_command_that_failed_in_it_or_with_its_own_line(world):
    world.node.refuse.add("act deploy")
    record = world.run(steps("call: {words: act deploy}"))
    assert [(r.status, r.why) for r in record.results] == [
        ("failed", "call(words='act deploy', bug=False): ended with 1 and said: refused")
    ]
    (result,) = world.run(steps("call: {words: x, bug: true}")).results
    assert (result.status, result.why) == (
        "failed", f"{world.folder / 'playbooks' / 'tasks' / 'call.py'}:6: KeyError: 'a bug of the function'"
    )  # fmt: skip


def test_a_function_is_not_called_where_there_is_no_fabric_connection(world, monkeypatch):
    monkeypatch.setattr(type(world.node), "connection", None)
    (result,) = world.run(steps("call: {words: act deploy}")).results
    assert result.status == "failed"
    assert "the node is not reached through Fabric" in result.why
    assert world.node.done == []


def test_a_function_of_which_nobody_knows_whether_it_ended_is_not_called_again(world):
    world.node.lose = "after"
    record = world.run(steps("call: {words: act deploy}"))
    assert record.results[0].status == "unreachable"
    record = world.run(resume=next((world.folder / "runs").iterdir()).name)
    assert (record.results[0].status, world.node.done) == ("needs_operator", ["act deploy"])
    assert "nobody knows whether this was done before the run broke off: call(" in record.results[0].why


def test_a_node_out_of_reach_is_left_out_and_told(cluster):
    world = cluster("n1", "n2")
    world.nodes["n2"].unreachable = True
    record = world.run(PUT)
    assert [(r.node, r.status) for r in record.results] == [("n2", "unreachable"), ("n1", "changed")]
    assert record.exit_code(check=False) == 3


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_connection_that_is_lost_in_a_change_leaves_the_node_and_a_second_run_heals_it(world, when):
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


def test_conditions_read_fresh_facts_variables_and_earlier_results(world, facts):
    text = steps(
        "{put: {key: colour, value: red}, register: first}",
        "{put: {key: b, value: '1'}, when: first.changed}",
        "{put: {key: c, value: '1'}, when: not first.changed}",
        "{put: {key: d, value: '1'}, when: [facts.colour.name == 'red', node.name == 'n1']}",
    )
    record = world.run(text)
    assert [r.status for r in record.results] == ["changed", "changed", "skipped", "changed"]
    assert record.results[2].why == "not: not first.changed"


def test_a_fact_that_nobody_could_read_decides_nothing(world, facts):
    text = steps("{put: {key: a, value: '1'}, when: facts.dark == 'x'}")
    (result,) = world.run(text).results
    assert result.status == "failed"
    assert "'x'\" cannot be decided: it is dark" in result.why
    later = world.run(steps("put: {key: b, value: '1'}", "{put: {key: a, value: '1'}, when: facts.dark}"), check=True)
    assert [r.status for r in later.results] == ["would_change", "later"]


def test_errors_may_be_ignored(world):
    record = world.run(steps("{stop: {failed: broken}, ignore_errors: true}", "put: {key: a, value: '1'}"))
    assert [(r.status, r.ignored) for r in record.results] == [("failed", True), ("changed", False)]
    assert record.exit_code(check=False) == 0


def test_a_step_is_tried_again_as_often_as_it_says(world):
    world.node.refuse.add("put a 1")
    record = world.run(steps("{put: {key: a, value: '1'}, retries: 2, delay: 30}"))
    assert (record.results[0].attempts, record.results[0].status) == (3, "failed")
    assert world.slept == [30, 30]


def test_until_waits_for_the_world_outside(world, facts):
    def sleep(seconds):
        world.slept.append(seconds)
        world.node.settings["colour"] = "green" if len(world.slept) > 1 else "yellow"

    world.node.settings["colour"] = "red"
    made = world.prepare(steps("{put: {key: a, value: '1'}, until: facts.colour.name == 'green', retries: 5}"))
    for site in made._sites.values():
        site.sleep = sleep
    (result,) = made.run().results
    assert (result.status, result.attempts) == ("changed", 3)
    (result,) = world.run(steps("{put: {key: a, value: '1'}, until: facts.colour.name == 'blue', retries: 2}")).results
    assert (result.status, result.why, result.attempts) == ("failed", "not yet: facts.colour.name == 'blue'", 3)


def test_the_time_of_a_step_is_limited(world):
    world.node.stays_away = True
    (result,) = world.run(steps("{reboot: {reason: x}, timeout: 5}")).results
    assert result.status == "unreachable"
    assert "not back" in result.why
    assert sum(world.slept) < 30


HANDLERS = ("{name: restart, act: {what: restart, kind: restart}}", "{name: again, act: {what: again}}")


def test_handlers_run_once_at_the_end_in_the_order_of_the_play_and_only_where_something_changed(cluster):
    world = cluster("n1", "n2")
    world.nodes["n2"].settings = {"a": "1", "b": "1"}
    text = steps(
        "{put: {key: a, value: '1'}, notify: [again, restart]}",
        "{put: {key: b, value: '1'}, notify: restart}",
        handlers=HANDLERS,
    )
    world.run(text)
    assert world.node.done == ["put a 1", "put b 1", "act restart", "act again"]
    assert world.nodes["n2"].done == []


def test_a_flush_runs_them_at_once_and_they_may_be_notified_again(world):
    text = steps(
        "{put: {key: a, value: '1'}, notify: restart}",
        "flush: handlers",
        "{put: {key: b, value: '1'}, notify: restart}",
        handlers=HANDLERS,
    )
    world.run(text)
    assert world.node.done == ["put a 1", "act restart", "put b 1", "act restart"]


def test_a_reboot_comes_last_and_makes_restarts_pointless(world):
    handlers = ("{name: boot, reboot: {reason: a new driver}}", *HANDLERS)
    text = steps("{put: {key: a, value: '1'}, notify: [boot, restart, again]}", handlers=handlers)
    record = world.run(text)
    assert world.node.done == ["put a 1", "act again", "reboot"]
    assert ("restart", "skipped", "the node reboots next") in [(r.name, r.status, r.why) for r in record.results]
    assert world.node.lock == ""
    assert record.exit_code(check=False) == 0


def test_handlers_that_never_ran_are_remembered_by_the_next_run(world):
    text = steps("{put: {key: a, value: '1'}, notify: restart}", "put: {key: b, value: '1'}", handlers=HANDLERS)
    world.node.refuse.add("put b 1")
    assert world.run(text).exit_code(check=False) == 1
    assert world.node.done == ["put a 1"]
    assert world.run().exit_code(check=False) == 1
    world.node.refuse.clear()
    assert world.run().exit_code(check=False) == 0
    assert world.node.done == ["put a 1", "put b 1", "act restart"]
    world.run()
    assert world.node.done.count("act restart") == 1


def test_check_mode_shows_the_handlers_that_would_run(world):
    text = steps("{put: {key: a, value: '1'}, notify: restart}", handlers=HANDLERS)
    record = world.run(text, check=True)
    assert world.statuses(record) == [("put", "would_change"), ("restart", "would_change")]


def test_check_mode_shows_the_handlers_that_what_it_cannot_tell_may_notify(world):
    text = steps(
        "put: {key: a, value: '1'}",
        "{name: second, put: {key: b, value: '1', after: a}, notify: [restart, again]}",
        "{put: {key: c, value: '1'}, notify: again}",
        handlers=HANDLERS,
    )
    told = [(r.name, r.status, r.why) for r in world.run(text, check=True).results[3:]]
    assert told == [("restart", "later", 'due if "second" changes anything'), ("again", "would_change", "")]
    assert world.statuses(world.run(text))[3:] == [("restart", "changed"), ("again", "changed")]


ROLLING = """\
- hosts: all
  serial: [1, 25%, 100%]
  max_fail_percentage: {allowed}
  tasks:
    - put: {{key: a, value: '1'}}
    - put: {{key: b, value: '1'}}
"""


@pytest.mark.parametrize(
    ("allowed", "failing", "touched"),
    [
        (0, ["n03"], 5),  # the second batch, n02 to n05, is the last one
        (25, ["n03"], 16),  # one of four is not more than 25 %
        (24, ["n03"], 5),
        (100, ["n01"], 1),  # a batch that fails as a whole always stops
        (100, ["n02", "n03", "n04", "n05"], 5),
    ],
)
def test_a_rolling_change_stops_where_too_many_failed(cluster, allowed, failing, touched):
    world = cluster(*(f"n{number:02}" for number in range(1, 17)))
    for name in failing:
        world.nodes[name].refuse.add("put a 1")
    record = world.run(ROLLING.format(allowed=allowed))
    reached = {result.node for result in record.results}
    assert len(reached) == touched
    assert bool(record.stopped) == (touched < 16)
    assert all(world.nodes[name].settings == {"a": "1", "b": "1"} for name in reached - {*failing})
    assert all(not world.nodes[name].done for name in world.nodes if name not in reached)
    assert all(not node.lock for node in world.nodes.values())


STOPPING = """\
- hosts: all
  LIMIT
  tasks:
    - {put: {key: a, value: '1'}, notify: restart}
    - put: {key: b, value: '1'}
    - put: {key: c, value: '1'}
  handlers:
    - {name: restart, act: {what: restart, kind: restart}}
"""


@pytest.fixture
def trio(cluster):
    """The second step fails on n1; n2 was changed before it, n3 was not."""
    world = cluster("n1", "n2", "n3")
    world.nodes["n1"].refuse.add("put b 1")
    world.nodes["n3"].settings.update(a="1", b="1")
    return world


def test_where_too_many_failed_no_node_is_left_halfway_and_none_is_begun(trio):
    record = trio.run(STOPPING.replace("LIMIT", "max_fail_percentage: 0"))
    assert trio.nodes["n2"].done == ["put a 1", "put b 1", "put c 1", "act restart"]
    assert trio.nodes["n3"].done == []
    assert record.stopped == '1 of 3 nodes of a batch failed in play "all"; max_fail_percentage is 0'
    assert {node: names for node, names in record.waiting.items() if names} == {"n1": ["restart"]}


def test_a_node_that_only_an_earlier_play_changed_is_not_begun_in_one_that_stops(cluster):
    world = cluster("n1", "n2")
    world.nodes["n1"].refuse.add("put b 1")
    plays = [PUT, PUT.replace("key: a", "key: b").replace("- hosts: all", "- hosts: all\n  max_fail_percentage: 0")]
    world.nodes["n2"].settings["b"] = "1"
    record = world.run("".join(plays) + "    - put: {key: c, value: '1'}\n")
    assert record.stopped
    assert world.nodes["n2"].done == ["put a 1"]


def test_with_any_errors_fatal_every_node_stops_where_it_is(trio):
    record = trio.run(STOPPING.replace("LIMIT", "any_errors_fatal: true"))
    assert trio.nodes["n2"].done == ["put a 1", "put b 1"]
    assert trio.nodes["n3"].done == []
    assert record.waiting["n2"] == ["restart"]


def test_a_node_out_of_reach_counts_among_those_that_failed(cluster):
    world = cluster(*(f"n{number:02}" for number in range(1, 17)))
    world.nodes["n01"].unreachable = True
    record = world.run(ROLLING.format(allowed=5))
    assert record.stopped == '1 of 1 nodes of a batch failed in play "all"'
    assert all(not node.done for node in world.nodes.values())


@pytest.mark.parametrize(("most_open", "closed"), [(2, 1), (1, 4)])
def test_connections_are_kept_from_step_to_step_as_far_as_files_may_be_open(cluster, most_open, closed):
    world = cluster("n1", "n2")
    world.run(steps("put: {key: a, value: '1'}", "put: {key: b, value: '1'}"), most_open=most_open)
    assert [node.closed for node in world.nodes.values()] == [closed, closed]


def test_one_failure_may_be_enough(cluster):
    world = cluster(*(f"n{number:02}" for number in range(1, 17)))
    world.nodes["n09"].refuse.add("put a 1")
    record = world.run("- hosts: all\n  any_errors_fatal: true\n  tasks:\n    - put: {key: a, value: '1'}\n"
                       "    - put: {key: b, value: '1'}\n")  # fmt: skip
    assert record.stopped == '1 of 16 nodes of a batch failed in play "all"; any_errors_fatal'
    assert not any("put b 1" in node.done for node in world.nodes.values())


def test_a_node_that_runs_jobs_is_not_changed_and_says_whose_they_are(cluster):
    world = cluster("n1", "n2", "n3")
    world.nodes["n1"].busy = "busy: job 17 of ann; drain it, or --force"
    world.nodes["n3"].busy = "busy too"
    world.nodes["n3"].settings["a"] = "1"
    record = world.run(PUT)
    assert [(r.node, r.status, r.why) for r in record.results] == [
        ("n1", "needs_operator", "busy: job 17 of ann; drain it, or --force"),
        ("n2", "changed", ""),
        ("n3", "ok", ""),
    ]
    assert record.exit_code(check=False) == 3
    assert world.run(force=True).exit_code(check=False) == 0
    assert world.node.settings == {"a": "1"}


def test_a_reboot_is_proved_by_a_new_boot(world):
    record = world.run(steps("reboot: {reason: a new kernel}", "put: {key: a, value: '1'}"))
    assert world.statuses(record) == [("reboot", "changed"), ("put", "changed")]
    assert world.node.done == ["reboot", "put a 1"]


def test_how_a_node_came_back_from_a_reboot_and_who_asked_for_it_is_in_the_journal(world):
    world.node.system = "degraded"
    world.run(steps("reboot: {reason: a new kernel}"))
    lines = list(read(journal.find(world.folder / "runs", world.last.run_id)))
    (done,) = [line for line in lines if line["event"] == "done"]
    assert (done["said"], done["seconds"] >= 1) == ("degraded: nvidia-dcgm.service", True)
    assert lines[0]["who"] == f"{locking.Owner('').who} on {socket.gethostname()}"


def test_a_connection_that_is_lost_while_the_node_still_starts_is_opened_again(world, monkeypatch):
    story = [LostError("n1", "the network is set up anew"), "starting", ConnectError("n1", "nobody answers")]
    settle = world.node._systemctl

    def systemctl(command):
        if "is-system-running" in command.words and world.node.boots and story:
            event = story.pop(0)
            if isinstance(event, Exception):
                raise event
            return 0, f"{event}\n"
        return settle(command)

    monkeypatch.setattr(world.node, "_systemctl", systemctl, raising=False)
    record = world.run(steps("reboot: {reason: a new kernel}"))
    assert (world.statuses(record), story) == ([("reboot", "changed")], [])


def test_a_node_that_stays_away_is_out_of_reach(world):
    world.node.stays_away = True
    record = world.run(steps("reboot: {reason: a new kernel}", "put: {key: a, value: '1'}"))
    (result,) = record.results
    assert result.status == "unreachable"
    assert "look at its console or its BMC" in result.why
    assert sum(world.slept) >= rebooting.BACK_SECONDS
    assert record.exit_code(check=False) == 3


def test_a_node_is_not_rebooted_for_ever(world):
    record = world.run(steps(*["reboot: {reason: again}"] * 5))
    assert [r.status for r in record.results] == ["changed", "changed", "changed", "needs_operator"]
    assert world.node.done.count("reboot") == 3


def test_the_machine_that_gpuops_runs_on_is_not_rebooted(world, monkeypatch, tmp_path):
    own = tmp_path / "boot_id"
    own.write_text("boot-0\n")
    monkeypatch.setattr(rebooting, "Path", lambda _: own)
    record = world.run(steps("reboot: {reason: again}"))
    assert record.results[0].status == "needs_operator"
    assert "the machine that gpuops runs on" in record.results[0].why
    assert world.node.done == []


RUNNING = "ActiveState=active\nSubState=running"


def test_a_long_step_outlives_a_lost_connection(world):
    gone = [LostError("n1", "the connection broke"), ConnectError("n1", "nobody answers")]
    world.node.unit_story = [RUNNING, *gone, RUNNING]
    record = world.run(steps("put: {key: a, value: '1', detach: true}"))
    assert world.statuses(record) == [("put", "changed")]
    assert world.node.done == ["put a 1"]
    assert world.node.units == {}
    assert len(world.slept) == 4


@pytest.mark.parametrize("script", ["systemd-run", "systemctl stop"])
def test_a_connection_that_is_lost_as_the_unit_is_started_or_taken_away_loses_nothing(world, monkeypatch, script):
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
        (["ActiveState=failed\nExecMainStatus=3"], "failed", "a = 1: ended with 3 and said: the last line of its log"),
        (["ActiveState=failed\nResult=timeout\nExecMainStatus=15"], "failed", "a = 1: killed after"),
        ([RUNNING] * 500, "failed", "-1.service still runs after 10 s; look at /var/log/gpuops/gpuops-"),
        ([ConnectError("n1", "nobody answers")] * 500, "unreachable", "nobody answers"),
        (["LoadState=not-found"], "failed", "vanished; was the node rebooted?"),
    ],
)
def test_how_a_long_step_can_end(world, story, status, said):
    world.node.unit_story = story
    (result,) = world.run(steps("put: {key: a, value: '1', detach: true}")).results
    assert result.status == status
    assert said in result.why


@pytest.mark.parametrize("system", ["offline", ""])
def test_where_no_systemd_runs_a_long_step_is_done_plainly_and_that_is_noted_once(world, system):
    world.node.system = system
    record = world.run(steps("put: {key: a, value: '1', detach: true}", "put: {key: b, value: '1', detach: true}"))
    assert world.statuses(record) == [("put", "changed"), ("put", "changed")]
    assert world.node.done == ["put a 1", "put b 1"]
    lines = list(read(journal.find(world.folder / "runs", world.last.run_id)))
    assert [line["detach"] for line in lines if line["event"] == "change"] == [False, False]
    assert [line["what"] for line in lines if line["event"] == "note"] == [
        "no systemd: what is long ends with the connection"
    ]


def test_what_an_earlier_run_left_at_work_is_waited_for_before_anything_is_looked_at(world):
    left = "gpuops-20261120-101500-123456-1.service"
    world.node.units[left] = (0,)
    world.node.unit_story = [RUNNING, RUNNING]

    def sleep(seconds):
        world.slept.append(seconds)
        world.node.settings["a"] = "1"  # what the unit is about

    made = world.prepare(PUT)
    for site in made._sites.values():
        site.sleep = sleep
    assert world.statuses(made.run()) == [("put", "ok")]
    assert (len(world.slept), world.node.units, world.node.done) == (2, {}, [])


def test_what_came_to_its_end_in_spite_of_ctrl_c_is_told_and_nothing_more_is_begun(cluster, monkeypatch):
    world = cluster("n1", "n2")

    def interrupted_each(hosts, work, **_):
        outcomes = [Outcome(host.name, value=work(host)) for host in hosts]
        if any(node.done for node in world.nodes.values()):
            raise Interrupted
        return outcomes

    monkeypatch.setattr(running, "each", interrupted_each)
    record = world.run(steps("put: {key: a, value: '1'}", "put: {key: b, value: '1'}"))
    assert world.statuses(record) == [("n1", "put", "changed"), ("n2", "put", "changed")]
    assert record.exit_code(check=False) == 130
    assert [node.lock for node in world.nodes.values()] == ["", ""]
    assert "put b 1" not in world.node.done


def test_ctrl_c_while_the_nodes_are_locked_leaves_no_lock(cluster, monkeypatch):
    world = cluster("n1", "n2")
    phases = iter([Interrupted()])

    def interrupted_each(hosts, work, **_):
        outcomes = [Outcome(host.name, value=work(host)) for host in hosts]
        for error in phases:
            raise error
        return outcomes

    monkeypatch.setattr(running, "each", interrupted_each)
    record = world.run(PUT)
    assert (record.exit_code(check=False), record.results) == (130, [])
    assert [(node.lock, node.done) for node in world.nodes.values()] == [("", []), ("", [])]


@pytest.mark.parametrize(
    ("detach", "told"),
    [("false", "abandoned: nobody knows how far it came"), ("true", "it goes on there as a unit of systemd, and")],
)
def test_what_a_second_ctrl_c_abandons_is_told(world, monkeypatch, detach, told):
    def begun(words):
        world.node.done.append(words)
        raise KeyboardInterrupt

    world.node.do = begun
    monkeypatch.setattr(running, "each", lambda hosts, work, **_: [Outcome(h.name, value=work(h)) for h in hosts])
    made = world.prepare(steps(f"put: {{key: a, value: '1', detach: {detach}}}"))
    record = made.run()
    (result,) = record.results
    assert (result.name, result.status, made.untouched(record)) == ("put", "interrupted", [])
    assert result.why.startswith(told)
    assert record.exit_code(check=False) == 130


def test_a_secret_is_in_no_journal(world, monkeypatch):
    monkeypatch.setenv("TOKEN", "hunter2")
    world.run(steps("put: {key: a, value: hunter2x}"))
    assert b"hunter2x" in b"".join(p.read_bytes() for p in world.folder.glob("runs/*/journal.jsonl"))
    from gpuops.secret import Secret

    Secret("hunter3")
    world.run(steps("put: {key: b, value: hunter3}"))
    assert b"hunter3" not in b"".join(p.read_bytes() for p in world.folder.glob("runs/*/journal.jsonl"))


def test_a_plan_is_data_so_any_order_of_independent_steps_comes_to_the_same(cluster):
    ends = []
    for order in itertools.permutations("abc"):
        world = cluster("n1") if not ends else ends[0][0]
        world.nodes["n1"].settings = {}
        world.run(steps(*(f"put: {{key: {key}, value: '1'}}" for key in order)))
        ends.append((world, dict(world.nodes["n1"].settings)))
    assert all(end == {"a": "1", "b": "1", "c": "1"} for _, end in ends)


def test_a_task_that_gives_another_wrong_parameters_fails_and_says_where(world):
    path = world.folder / "playbooks" / "tasks" / "wrong.py"
    path.write_text(
        "from dataclasses import dataclass\nfrom gpuops import Plan, task, use\n"
        "@dataclass(frozen=True)\nclass Params:\n    pass\n"
        "@task\ndef wrong(params: Params) -> Plan:\n    yield from use('put', kye='a')\n"
    )
    from gpuops.playbook.task import Library

    world.library = Library(world.folder)
    record = world.run(steps("wrong: {}"))
    assert record.results[0].status == "failed"
    assert 'unknown key "kye" under "put"; did you mean "key"' in record.results[0].why
    with pytest.raises(DocumentError):
        world.run(steps("wrong: {x: 1}"))

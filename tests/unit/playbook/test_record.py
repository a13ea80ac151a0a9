import itertools
import json

import pytest

from gpuops.errors import ConnectError, LockedError, NodeError
from gpuops.playbook import journal
from gpuops.playbook.record import Record, conclude
from gpuops.playbook.result import StepResult
from gpuops.playbook.running import RunState
from gpuops.playbook.task import Change
from gpuops.reasons import EXIT_CODES, Excluded
from gpuops.secret import MASK, Secret
from gpuops.shell import Command

STATUSES = ("ok", "changed", "skipped", "would_change", "later", "failed", "unreachable", "needs_operator")


def record_of(*results, **fields):
    defaults = {
        "playbook": "p.yml", "run_id": "r1", "check": False, "stopped": "", "waiting": {}, "locked": (),
        "untouched": (), "interrupted": False, "seconds": 1.5,
    }  # fmt: skip
    return Record(**{**defaults, **fields, "results": results})


def run(world, text, **options):
    state = world.run(text, **options)
    return world.last.record(state)


def result_of(status, node="n1", **fields):
    return StepResult(node, "1.1", "put", status, **fields)


@pytest.mark.parametrize(
    ("statuses", "check", "conclusion"),
    [
        ((), False, "ok"),
        (("ok", "changed", "skipped"), False, "ok"),
        (("ok", "failed"), False, "failed"),
        (("unreachable",), False, "incomplete"),
        (("needs_operator",), False, "incomplete"),
        (("unreachable", "failed"), False, "failed"),
        (("would_change",), True, "failed"),
        (("later", "unreachable"), True, "failed"),
        (("ok", "unreachable"), True, "incomplete"),
        (("ok", "skipped"), True, "ok"),
    ],
)
def test_conclusion_is_the_most_severe_of_the_steps(statuses, check, conclusion):
    assert record_of(*map(result_of, statuses), check=check).conclusion() == conclusion


def test_locked_comes_before_failed_and_interrupted_before_locked():
    failed, locked = result_of("failed"), (LockedError("n1 is locked by ops"),)
    assert record_of(failed, locked=locked).conclusion() == "locked"
    assert record_of(failed, locked=locked, interrupted=True).conclusion() == "interrupted"
    assert record_of(result_of("interrupted")).conclusion() == "interrupted"


def test_ignored_failure_does_not_count():
    assert record_of(result_of("failed", ignored=True)).conclusion() == "ok"


@pytest.mark.parametrize("check", [True, False])
def test_exit_code_of_a_run_agrees_with_its_record(check):
    for pair in itertools.product(STATUSES, repeat=2):
        for interrupted, locked in itertools.product([True, False], [[], [LockedError("n1 is locked by ops")]]):
            state = RunState(list(map(result_of, pair)), interrupted=interrupted, locked=locked)
            record = record_of(*state.results, check=check, interrupted=interrupted, locked=tuple(locked))
            assert state.exit_code(check=check) == EXIT_CODES[record.conclusion()]


def test_conclude_needs_no_record():
    assert conclude([result_of("failed")], check=False, locked=True) == "locked"


def test_record_of_a_run_has_its_results_and_the_hosts_that_no_step_reached(cluster):
    world = cluster("n1", "n2", "n3")
    world.nodes["n1"].refuse.add("put a 1")
    state = world.run(
        "- hosts: all\n  serial: 1\n  any_errors_fatal: true\n  tasks:\n    - put: {key: a, value: '1'}\n"
    )
    record = world.last.record(state)
    assert (record.playbook, record.run_id, record.check) == (str(world.folder / "p.yml"), world.last.run_id, False)
    assert [(result.node, result.status) for result in record.results] == [("n1", "failed")]
    assert record.stopped == state.stopped != ""
    assert record.untouched == ("n2", "n3")
    assert (record.waiting, record.locked, record.interrupted, record.excluded) == ({}, (), False, {})
    assert record.seconds > 0
    assert record.conclusion() == "failed"
    state.results.clear()
    assert len(record.results) == 1


def test_record_has_the_handlers_that_still_wait(world, steps):
    handlers = ["{name: restart, act: {what: restart}}"]
    notifying = "{put: {key: a, value: '1'}, notify: restart}"
    world.node.refuse.add("put b 1")
    assert run(world, steps(notifying, "put: {key: b, value: '1'}", handlers=handlers)).waiting == {"n1": ("restart",)}
    world.node.refuse.clear()
    assert run(world, steps(notifying, handlers=handlers)).waiting == {}


def test_unreachable_host_is_excluded_with_its_error(cluster, steps):
    world = cluster("n1", "n2")
    world.nodes["n2"].unreachable = True
    record = run(world, steps("put: {key: a, value: '1'}"))
    excluded = record.excluded["n2"]
    assert list(record.excluded) == ["n2"]
    assert isinstance(excluded.cause, ConnectError)
    assert excluded == Excluded("n2", "unreachable", "nobody answers", excluded.cause)
    assert record.to_document()["excluded"] == {
        "n2": {"kind": "unreachable", "why": "nobody answers", "unreachable": "closed"}
    }


def test_host_that_is_lost_in_a_step_is_excluded_with_its_error(world, steps):
    world.node.lose = "before"
    record = run(world, steps("put: {key: a, value: '1'}"))
    assert record.excluded["n1"].unreachable == "lost"
    assert record.conclusion() == "incomplete"


def test_failed_step_excludes_no_host(world, steps):
    record = run(world, steps("stop: {failed: no such package}"))
    assert record.excluded == {}
    assert record.results[0].error is None


def test_record_in_check_mode_changes_nothing_and_concludes_that_something_is_to_do(world, steps):
    record = run(world, steps("put: {key: a, value: '1'}"), check=True)
    assert (record.check, record.conclusion()) == (True, "failed")
    assert world.node.done == []


def test_record_of_a_locked_host_names_the_lock(world, steps):
    world.node.lock = json.dumps(
        {"run": "other", "who": "ops", "machine": "m", "since": "today", "pid": 1, "boot_id": "b"}
    )
    record = run(world, steps("put: {key: a, value: '1'}"))
    assert record.conclusion() == "locked"
    assert record.untouched == ("n1",)
    (locked,) = record.to_document()["locked"]
    assert locked.startswith("n1 is locked by ops on m, run other")


def test_journal_ends_with_the_exit_code_of_the_conclusion(cluster, steps):
    world = cluster("n1", "n2")
    for damage, code in (
        (lambda node: node.refuse.add("put a 1"), 1),
        (lambda node: setattr(node, "lose", "after"), 3),
    ):
        damage(world.nodes["n2"])
        record = run(world, steps("put: {key: a, value: '1'}"))
        *_, end = journal.read(journal.find(world.folder / "runs", record.run_id))
        assert end["exit"] == EXIT_CODES[record.conclusion()] == code
        world.nodes["n2"].refuse.clear()


def test_document_is_versioned_plain_and_masked():
    secret = Secret("hunter22")
    change = Change("set hunter22", Command(("put",)), before=Secret("old-hunter"), after=secret)
    result = result_of("changed", changes=(change,), later=("b is not there yet",), value=object(), seconds=0.12345)
    document = json.loads(record_of(result, waiting={"n1": ("restart",)}, untouched=("n2",)).to_json())
    assert document == {
        "schema": "gpuops.record/1",
        "playbook": "p.yml",
        "run": "r1",
        "check": False,
        "conclusion": "ok",
        "interrupted": False,
        "seconds": 1.5,
        "stopped": "",
        "results": [
            {
                "host": "n1",
                "step": "1.1",
                "name": "put",
                "status": "changed",
                "ignored": False,
                "handler": False,
                "why": "",
                "changes": [{"what": f"set {MASK}", "kind": "state", "before": MASK, "after": MASK}],
                "later": ["b is not there yet"],
                "attempts": 1,
                "seconds": 0.123,
            }
        ],
        "waiting": {"n1": ["restart"]},
        "locked": [],
        "untouched": ["n2"],
        "excluded": {},
    }


def test_secrets_in_errors_are_masked():
    Secret("hunter33")
    error = NodeError("n1", "refused hunter33")
    record = record_of(
        result_of("unreachable", why=error.what, error=error), locked=(LockedError("by hunter33"),), stopped="hunter33"
    )
    assert "hunter33" not in record.to_json()
    assert record.excluded["n1"].why == "refused hunter33"

"""A node is opened again only if the very check that closed it passed since, under the same conditions."""

import datetime as dt

import pytest

from gpuops.lifecycle.reopening import unproved
from gpuops.store import ClosingCheck, GatePass, HostEvent
from gpuops.store.records import KeptVisit, Visit

NOON = dt.datetime(2026, 11, 20, 12, tzinfo=dt.timezone.utc)
QUICK = ClosingCheck("gpu-count", "quick", "admit")
STANDARD = ClosingCheck("ecc-mode", "standard", "validate")
LOAD = ClosingCheck("burn-in-errors", "burnin", "burn-in")
PAIR = ClosingCheck("all-reduce-bandwidth", "standard", "pair")


def event(state, hour, *checks, cause="stopped"):
    return HostEvent("gpu01", state, "x", NOON + dt.timedelta(hours=hour), "r", "ops", {}, cause, checks)


def seen(check, result, hour, run=1):
    return KeptVisit(run, NOON + dt.timedelta(hours=hour), "validate", Visit("pass", checks={check.name: result}))


def gate(name, hour):
    return GatePass(name, NOON + dt.timedelta(hours=hour), {})


def left(history, passes=(), visits=(), level="quick"):
    return [each.check for each in unproved(history, passes, visits, {1: level})]


@pytest.mark.parametrize(
    ("check", "level", "is_shown"),
    [
        (QUICK, "quick", True),
        (QUICK, "standard", True),
        (STANDARD, "quick", False),
        (STANDARD, "standard", True),
        (STANDARD, "burnin", True),
        (LOAD, "standard", False),
        (LOAD, "burnin", True),
        (LOAD, "", False),
        (PAIR, "standard", False),  # one node alone shows nothing about two
    ],
)
def test_a_validation_shows_it_at_the_same_level_or_above(check, level, is_shown):
    history = [event("provisioned", 0, check)]
    assert left(history, visits=[seen(check, "pass", 1)], level=level) == ([] if is_shown else [check])
    assert left(history, visits=[seen(check, "pass", -1)], level=level) == [check]  # before it failed


@pytest.mark.parametrize(
    "result", ["fail", "warn", "unknown", "skipped", "shadow pass", "waived skipped", "shared fail"]
)
def test_nothing_but_a_pass_shows_it(result):
    assert left([event("new", 0, QUICK)], visits=[seen(QUICK, result, 1)]) == [QUICK]


def test_the_same_gate_shows_it_and_no_other():
    history = [event("provisioned", 0, LOAD, QUICK)]
    assert left(history, [gate("burn-in", 1)]) == [QUICK]
    assert left(history, [gate("burn-in", -1), gate("admit", 1)]) == [LOAD]
    assert left([event("burned_in", 0, PAIR)], [gate("pair", 1)]) == []


def test_what_failed_again_has_to_pass_after_that():
    history = [event("new", 0, QUICK), event("new", 2, QUICK), event("drained", 3, cause="by_hand")]
    assert left(history, visits=[seen(QUICK, "pass", 1)]) == [QUICK]
    assert left(history, visits=[seen(QUICK, "pass", 2.5)]) == []


def test_an_admission_ends_it_and_a_reason_for_an_admitted_node_does_not():
    assert left([event("new", 0, QUICK), event("admitted", 1, cause="by_hand")]) == []
    assert left([event("admitted", 0, QUICK), event("drained", 1, cause="by_hand")]) == [QUICK]


def test_it_is_told_with_the_command_that_shows_it():
    def told(check):
        (each,) = unproved([event("new", 0, check)], (), (), {})
        return each.why, each.do

    assert told(LOAD) == (
        "burn-in-errors failed at burn-in on 2026-11-20 12:00 UTC and has not passed since",
        "gpuops validate --limit gpu01 --only burn-in-errors --level burnin",
    )
    assert told(QUICK)[1] == "gpuops validate --limit gpu01 --only gpu-count"
    assert told(PAIR)[1] == "gpuops onboard gpu01"

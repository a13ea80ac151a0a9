"""Conclusions and what decides between them; why a host takes no part, as data."""

import itertools
from dataclasses import dataclass

import pytest

from gpuops.errors import AuthenticationError, CancelledError, ConnectError, LockedError, NodeError
from gpuops.reasons import EXIT_CODES, ON_PURPOSE, Excluded, excluded_by, exit_code, most_severe

ORDER = ["interrupted", "locked", "failed", "incomplete", "ok"]


def test_every_conclusion_has_its_exit_code():
    assert EXIT_CODES == {"ok": 0, "failed": 1, "incomplete": 3, "locked": 4, "interrupted": 130}
    assert set(ORDER) == set(EXIT_CODES)


@pytest.mark.parametrize(("graver", "milder"), [*itertools.combinations(ORDER, 2)])
def test_of_two_conclusions_the_graver_one_decides(graver, milder):
    assert most_severe([milder, graver]) == most_severe([graver, milder, milder]) == graver


def test_where_nothing_is_said_all_is_well():
    assert most_severe([]) == "ok"
    assert most_severe(reversed(ORDER)) == "interrupted"


@dataclass
class Answer:
    """A result that concludes as it is told."""

    by_threshold: dict

    def conclusion(self, fail_on="fail"):
        return self.by_threshold[fail_on]


def test_the_exit_code_is_that_of_the_conclusion_under_the_threshold():
    answer = Answer({"fail": "ok", "warn": "failed", "never": "incomplete"})
    assert [exit_code(answer), exit_code(answer, "warn"), exit_code(answer, "never")] == [0, 1, 3]


@pytest.mark.parametrize(
    ("error", "kind", "unreachable", "why"),
    [
        (ConnectError("n1", "refused by 10.0.0.1", "refused"), "unreachable", "refused", "refused by 10.0.0.1"),
        (AuthenticationError("n1", "no key fits", "auth"), "unreachable", "auth", "no key fits"),
        (NodeError("n1", "no answer", "timeout"), "unreachable", "timeout", "no answer"),
        (LockedError("n1 is locked by ann"), "locked", None, "n1 is locked by ann"),
        (CancelledError("interrupted before it answered"), "interrupted", None, "interrupted before it answered"),
    ],
)
def test_an_error_of_a_host_is_a_kind_of_exclusion(error, kind, unreachable, why):
    excluded = excluded_by("n1", error)
    assert (excluded.host, excluded.kind, excluded.unreachable, excluded.why) == ("n1", kind, unreachable, why)
    assert excluded.cause is error


def test_who_is_left_alone_by_design_is_so_by_kind_alone():
    kinds = ("busy", "unproved", "leased", "unhealthy")
    assert frozenset(kinds) == ON_PURPOSE
    assert all(Excluded("n1", kind, "").on_purpose for kind in kinds)
    assert not any(Excluded("n1", kind, "busy, fails x").on_purpose for kind in ("lost", "unreachable", "unknown"))


def test_an_exclusion_is_written_and_read_again():
    excluded = Excluded("n1", "unhealthy", "fails a, b", checks=("a", "b"), do="look")
    document = excluded.to_document()
    assert document == {"kind": "unhealthy", "why": "fails a, b", "checks": ["a", "b"], "do": "look"}
    assert Excluded.from_document("n1", document) == excluded
    assert Excluded("n1", "busy", "ann").to_document() == {"kind": "busy", "why": "ann"}
    assert Excluded.from_document("n1", {"kind": "of next year", "why": "x"}).kind == "unknown"
    assert excluded_by("n1", ConnectError("n1", "x", "dns")).to_document()["unreachable"] == "dns"

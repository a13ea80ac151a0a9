import pytest

from gpuops import Failed
from gpuops.errors import DocumentError


def test_the_guard_decides_and_is_asked_again(here, tmp_path):
    words = ["touch", str(tmp_path / "made")]
    first = here.plan("command", words=words, creates=words[1])
    assert [c.what for c in first.changes] == [f"touch {words[1]}"]
    assert here.apply("command", words=words, creates=words[1]).changes == []
    assert here.apply("command", words=["rm", words[1]], removes=words[1]).changes == []


@pytest.mark.parametrize(
    ("guard", "exit_code", "due"),
    [("unless", 0, False), ("unless", 1, True), ("only_if", 0, True), ("only_if", 1, False)],
)
def test_a_guard_of_words(planned, guard, exit_code, due):
    found = planned("command", {"look": exit_code}, words=["do", "it"], **{guard: ["look"]})
    assert bool(found.changes) == due


def test_a_question_is_no_change_and_its_answer_is_kept(planned):
    found = planned("command", {"ask": (0, "yes", "hm")}, words=["ask"], read_only=True)
    assert (found.changes, found.value) == ([], {"out": "yes", "err": "hm", "exit": 0})
    assert planned("command", {"ask": (3, "")}, words=["ask"], read_only=True, exits=[3]).stop is None
    refused = planned("command", {"ask": (3, "", "no")}, words=["ask"], read_only=True)
    assert refused.stop == Failed("ask ended with 3: no")


def test_what_always_runs_is_never_repeated_blindly(planned):
    (change,) = planned("command", {}, words=["do"], always=True, become="always", detach=True).changes
    assert (change.kind, change.detach, change.command.become) == ("act", True, "always")


@pytest.mark.parametrize("guards", [{}, {"always": True, "creates": "/x"}])
def test_one_guard_is_needed(planned, guards):
    with pytest.raises(DocumentError, match="set exactly one of creates, removes, unless, only_if, read_only and"):
        planned("command", {}, words=["do"], **guards)

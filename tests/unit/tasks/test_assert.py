import pytest

from gpuops import Failed
from gpuops.errors import DocumentError

ASK = {"message": "the fabric must be up", "words": ["ask"]}


@pytest.mark.parametrize(
    ("answer", "params"),
    [("", {}), ("a\nState: Completed\n", {"prints": "^State: Completed$"}), (3, {"exits": [0, 3]})],
)
def test_what_is_so_lets_the_play_go_on(planned, answer, params):
    found = planned("assert", {"ask": answer}, **ASK, **params)
    assert (found.stop, found.changes) == (None, [])


@pytest.mark.parametrize(
    ("answer", "params"),
    [(1, {}), (127, {}), ("State: In Progress\n", {"prints": "Completed"}), (0, {"exits": [3]}), ("", {"prints": "."})],
)
def test_what_is_not_so_stops_it_with_the_message(planned, answer, params):
    found = planned("assert", {"ask": answer}, **ASK, **params)
    assert isinstance(found.stop, Failed)
    assert found.stop.why.startswith("the fabric must be up (ask ended with ")


def test_without_words_it_fails_where_it_is_reached(planned):
    assert planned("assert", {}, message="no such node").stop == Failed("no such node")


def test_a_wrong_expression_is_refused(planned):
    with pytest.raises(DocumentError, match="prints is not a regular expression"):
        planned("assert", {}, **ASK, prints="(")

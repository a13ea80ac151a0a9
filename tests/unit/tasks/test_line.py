import re
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.errors import DocumentError


@pytest.fixture
def edited(here, tmp_path, me):
    """The text that becomes of ``text``; a second look must want nothing more."""

    def edited(text, /, **params):
        path = tmp_path / "a b.conf"
        path.write_text(text)
        assert here.apply("line", path=str(path), **me, **params).changes == []
        return path.read_text()

    return edited


@pytest.mark.parametrize(
    ("old", "params", "new"),
    [
        ("", {"line": "x 1"}, "x 1\n"),
        ("a\n", {"line": "x 1"}, "a\nx 1\n"),
        ("a\nno end", {"line": "x 1"}, "a\nno end\nx 1\n"),
        ("a\n\n\n", {"line": "x 1"}, "a\n\n\nx 1\n"),
        ("x 2\na\nx 3\n", {"line": "x 1", "match": "^x "}, "x 1\na\n"),
        ("a\nx 2\nx 1\n", {"line": "x 1", "match": "^x "}, "a\nx 1\n"),
        ("/swap on\n", {"line": "# /swap on", "match": "^/swap"}, "# /swap on\n"),
        ("[a]\nb\n[a]\nc\n", {"line": "x 1", "after": r"^\[a\]"}, "[a]\nb\n[a]\nx 1\nc\n"),
        ("b\n", {"line": "x 1", "after": r"^\[a\]"}, "b\nx 1\n"),
        ("a\x0cb\u2028c\n", {"line": "x 1"}, "a\x0cb\u2028c\nx 1\n"),
        ("a\nx 1\nb", {"line": "x 1", "state": "absent"}, "a\nb\n"),
        ("a\nx 1\nx 2\n", {"match": "^x", "state": "absent"}, "a\n"),
        ("$(id) `id` \\1\n", {"line": "\\0 $HOME 'q' \"q\" \\g<0>"}, "$(id) `id` \\1\n\\0 $HOME 'q' \"q\" \\g<0>\n"),
    ],
)
def test_the_line_is_there_once_and_others_stay(edited, old, params, new):
    assert edited(old, **params) == new


@pytest.mark.parametrize(
    ("text", "params"),
    [("x 1", {"line": "x 1"}), ("a\nx 1\nb", {"line": "x 1", "match": "^x"}), ("a", {"match": "x", "state": "absent"})],
)
def test_what_is_right_is_not_written_anew(here, tmp_path, text, params):
    path = tmp_path / "x"
    path.write_text(text)
    assert here.plan("line", path=str(path), **params).changes == []


def test_a_file_keeps_its_mode_and_a_new_one_gets_it(here, tmp_path, me):
    old, new = tmp_path / "old", tmp_path / "new"
    old.touch(0o600)
    old.chmod(0o600)
    for path in (old, new):
        assert here.apply("line", path=str(path), line="x", mode="0640", **me).changes == []
    assert [stat.S_IMODE(path.stat().st_mode) for path in (old, new)] == [0o600, 0o640]


def test_a_line_of_a_file_that_is_not_there_is_absent(here, tmp_path):
    assert here.plan("line", path=str(tmp_path / "x"), line="x", state="absent").changes == []


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"line": "a\nb"}, "set line to one line"),
        ({"line": ""}, "set line to one line"),
        ({"state": "absent"}, "set line to one line"),
        ({"line": "a", "match": "("}, "match is not a regular expression"),
        ({"line": "a", "after": "["}, "after is not a regular expression"),
    ],
)
def test_wrong_parameters_are_refused(planned, params, said):
    with pytest.raises(DocumentError, match=said):
        planned("line", {}, path="/x", **params)


@given(
    text=st.text("ab# \t\n\r\x0c\u2028'$", max_size=30),
    line=st.text("ab# '$", min_size=1, max_size=3),
    match=st.sampled_from(["", "^a", "b$", "#", "^$", "."]),
    after=st.sampled_from(["", "^b", "a"]),
    state=st.sampled_from(["present", "absent"]),
)
def test_whatever_the_file_holds_the_second_look_wants_nothing(planned, text, line, match, after, state):
    params = {"path": "/x", "line": line, "match": match, "after": after, "state": state}
    changes = planned("line", {"/x": text}, **params).changes
    new = changes[0].after if changes else text
    assert planned("line", {"/x": new}, **params).changes == []
    assert new.split("\n").count(line) == (state == "present")
    others = [one for one in text.split("\n") if one and one != line and not (match and re.search(match, one))]
    assert [one for one in new.split("\n") if one and one != line] == others

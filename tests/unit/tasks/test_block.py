import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops import Failed
from gpuops.errors import DocumentError

BLOCK = "# BEGIN gpuops\none\ntwo\n# END gpuops\n"


@pytest.mark.parametrize(
    ("old", "params", "new"),
    [
        ("", {"content": "one\ntwo\n"}, BLOCK),
        ("a\n", {"content": "one\ntwo"}, f"a\n{BLOCK}"),
        (f"a\n{BLOCK}b\n", {"content": "three\n"}, "a\n# BEGIN gpuops\nthree\n# END gpuops\nb\n"),
        (f"a\n{BLOCK}b\n", {"state": "absent"}, "a\nb\n"),
        ("a\n", {"state": "absent"}, "a\n"),
        (BLOCK, {"content": "x", "name": "other", "comment": "//"}, f"{BLOCK}// BEGIN other\nx\n// END other\n"),
    ],
)
def test_a_block_is_there_once_and_other_lines_stay(here, tmp_path, me, old, params, new):
    path = tmp_path / "x"
    path.write_text(old)
    assert here.apply("block", path=str(path), **me, **params).changes == []
    assert path.read_text() == new


@pytest.mark.parametrize("text", ["# BEGIN gpuops\n", "# END gpuops\n# BEGIN gpuops\n", BLOCK + BLOCK])
def test_broken_marks_are_left_to_a_person(here, tmp_path, text):
    (tmp_path / "x").write_text(text)
    found = here.plan("block", path=str(tmp_path / "x"), content="x")
    assert isinstance(found.stop, Failed)
    assert found.changes == []


@pytest.mark.parametrize("params", [{"content": "a\n# END gpuops\n"}, {"name": ""}, {"name": "a\nb"}])
def test_a_block_cannot_break_its_own_marks(planned, params):
    with pytest.raises(DocumentError, match=r"content must not contain|name and comment must be one line"):
        planned("block", {}, path="/x", **params)


@given(text=st.text("ab# \t\n\r\x0c\u2028'$", max_size=30), content=st.text("ab# '$\n", max_size=9))
def test_whatever_the_file_holds_a_block_comes_and_goes(planned, text, content):
    there = planned("block", {"/x": text}, path="/x", content=content).changes[0].after
    assert there.startswith(text)
    assert planned("block", {"/x": there}, path="/x", content=content).changes == []
    (gone,) = planned("block", {"/x": there}, path="/x", state="absent").changes
    assert gone.after.removesuffix("\n") == text.removesuffix("\n")

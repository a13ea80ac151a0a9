import pytest

from gpuops import Failed
from gpuops.errors import DocumentError


def test_a_text_is_a_value_with_its_mode_and_owner(here, tmp_path):
    path = tmp_path / "a b'$(id)"
    path.write_text("é\nno end")
    path.chmod(0o640)
    found = here.plan("read", path=str(path))
    assert (found.changes, found.value["content"], found.value["mode"]) == ([], "é\nno end", "640")


def test_what_is_not_there_is_none(here, tmp_path):
    found = here.plan("read", path=str(tmp_path / "none"))
    assert (found.stop, found.value) == (None, None)


@pytest.mark.parametrize("kind", ["folder", "link", "binary"])
def test_what_is_no_text_is_never_read_as_one(here, tmp_path, kind):
    path = tmp_path / "x"
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("/etc/hostname")
    else:
        path.write_text("\ufffd")  # what a transport makes of bytes that are no text
    assert isinstance(here.plan("read", path=str(path)).stop, Failed)


@pytest.mark.parametrize("answer", [(1, "", "cat: x: Permission denied"), (137, "644:root:root:regular file\nhalf"), 1])
def test_what_cannot_be_read_whole_is_no_value(planned, answer):
    assert isinstance(planned("read", {"sh -c": answer}, path="/x").stop, Failed)


def test_a_path_starts_at_the_root(planned):
    with pytest.raises(DocumentError, match='path must start with "/"'):
        planned("read", {}, path="x")

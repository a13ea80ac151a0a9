import hashlib

import pytest

from gpuops import Failed
from gpuops.errors import DocumentError


def told(here, path, **params):
    return here.plan("stat", path=str(path), **params).value


def test_what_nobody_has_made_is_none(here, tmp_path):
    assert told(here, tmp_path / "none") is None
    assert told(here, tmp_path / "none" / "below") is None


def test_a_file_is_told_with_as_much_as_is_read(here, tmp_path):
    path = tmp_path / "a b'$(id)"
    path.write_text("é:\n")
    path.chmod(0o640)
    assert (told(here, path)["kind"], told(here, path)["mode"], told(here, path)["content"]) == ("file", "640", "")
    assert told(here, path, reads="text")["content"] == "é:\n"
    assert told(here, path, reads="sha256")["content"].startswith(hashlib.sha256("é:\n".encode()).hexdigest())


def test_a_link_is_told_by_where_it_leads_and_a_folder_by_its_kind(here, tmp_path):
    (tmp_path / "link").symlink_to("/etc/hostname")
    assert told(here, tmp_path / "link", reads="text")["content"] == "/etc/hostname\n"
    assert told(here, tmp_path, reads="text")["kind"] == "directory"


@pytest.mark.parametrize(
    "answer", [1, (1, "", "stat: cannot statx '/x': Permission denied"), "", "644:root:root\n", (1, "644:0:0:0:0:x\n")]
)
def test_what_cannot_be_looked_at_is_not_absent(planned, answer):
    assert isinstance(planned("stat", {"sh -c stat": answer}, path="/x").stop, Failed)


def test_a_path_starts_at_the_root(planned):
    with pytest.raises(DocumentError, match='path must start with "/"'):
        planned("stat", {}, path="x")

import stat

import pytest

from gpuops import Failed
from gpuops.errors import DocumentError


def test_a_folder_is_made_with_its_mode_and_left_alone_then(here, tmp_path, me):
    path = tmp_path / "one" / "a b'"
    assert here.apply("directory", path=str(path), mode="0700", **me).changes == []
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_another_mode_is_set_and_the_content_stays(here, tmp_path, me):
    path = tmp_path / "x"
    path.mkdir(0o755)
    (path / "kept").touch()
    (change,) = here.plan("directory", path=str(path), mode="1777", **me).changes
    assert change.what == f"{path} mode 1777 (was 755)"
    assert here.apply("directory", path=str(path), mode="1777", **me).changes == []
    assert (path / "kept").exists()


def test_only_an_empty_folder_goes_away(here, tmp_path):
    path = tmp_path / "x"
    path.mkdir()
    (path / "kept").touch()
    with pytest.raises(AssertionError, match="not empty"):
        here.apply("directory", path=str(path), state="absent")
    (path / "kept").unlink()
    assert here.apply("directory", path=str(path), state="absent").changes == []
    assert not path.exists()


@pytest.mark.parametrize("kind", ["file", "link"])
def test_what_is_no_folder_is_left_alone(here, tmp_path, kind):
    path = tmp_path / "x"
    path.touch() if kind == "file" else path.symlink_to(tmp_path)
    assert isinstance(here.plan("directory", path=str(path)).stop, Failed)


def test_what_cannot_be_looked_at_is_not_absent(planned):
    refused = (1, "", "stat: cannot statx '/root/x': Permission denied")
    assert isinstance(planned("directory", {"sh -c stat": refused}, path="/root/x").stop, Failed)


@pytest.mark.parametrize("params", [{"path": "x"}, {"path": "/x", "mode": "rwx"}])
def test_wrong_parameters_are_refused(planned, params):
    with pytest.raises(DocumentError):
        planned("directory", {}, **params)

import pytest

from gpuops import Failed
from gpuops.errors import DocumentError


@pytest.mark.parametrize("target", ["/nowhere", "a b'$(id)", "--help"])
def test_a_link_is_made_and_left_alone_then(here, tmp_path, target):
    path = tmp_path / "-l n"
    assert here.apply("link", path=str(path), target=target).changes == []
    assert str(path.readlink()) == target


def test_a_link_that_leads_to_a_folder_is_replaced_not_followed(here, tmp_path):
    (tmp_path / "old").mkdir()
    path = tmp_path / "x"
    path.symlink_to(tmp_path / "old")
    (change,) = here.plan("link", path=str(path), target="new").changes
    assert (change.before, change.after) == (str(tmp_path / "old"), "new")
    assert here.apply("link", path=str(path), target="new").changes == []
    assert (str(path.readlink()), list((tmp_path / "old").iterdir())) == ("new", [])


def test_a_link_goes_away_and_its_target_stays(here, tmp_path):
    (tmp_path / "kept").touch()
    path = tmp_path / "x"
    path.symlink_to(tmp_path / "kept")
    assert here.apply("link", path=str(path), state="absent").changes == []
    assert (tmp_path / "kept").exists()
    assert not path.is_symlink()


@pytest.mark.parametrize("state", ["present", "absent"])
def test_a_file_in_its_place_is_left_alone(here, tmp_path, state):
    (tmp_path / "x").touch()
    assert isinstance(here.plan("link", path=str(tmp_path / "x"), target="y", state=state).stop, Failed)


@pytest.mark.parametrize("params", [{"path": "x", "target": "y"}, {"path": "/x"}, {"path": "/x", "target": "a\nb"}])
def test_wrong_parameters_are_refused(planned, params):
    with pytest.raises(DocumentError):
        planned("link", {}, **params)

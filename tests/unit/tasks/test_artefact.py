import hashlib
import stat

import pytest

from gpuops import Failed
from gpuops.errors import DocumentError

DATA = "$(id) é\n"
SHA256 = hashlib.sha256(DATA.encode()).hexdigest()


@pytest.fixture
def params(tmp_path, me):
    path = str(tmp_path / "sub" / "a b'")
    return {"path": path, "sha256": SHA256, "words": ["printf", "%s", DATA], "title": "make it", "mode": "0600", **me}


def test_it_is_made_once_with_its_mode(here, params, tmp_path):
    (change,) = here.plan("artefact", **params).changes
    assert (change.what, change.before, change.after) == ("make it", "", f"sha256 {SHA256}\n")
    assert here.apply("artefact", **params).changes == []
    made = tmp_path / "sub" / "a b'"
    assert (made.read_text(), stat.S_IMODE(made.stat().st_mode)) == (DATA, 0o600)
    assert list(made.parent.iterdir()) == [made]


def test_what_has_another_sum_never_takes_its_place(here, params, tmp_path):
    here.apply("artefact", **params)
    other = hashlib.sha256(b"other").hexdigest()
    with pytest.raises(AssertionError, match="nothing was replaced"):
        here.apply("artefact", **{**params, "sha256": other})
    assert [p.read_text() for p in (tmp_path / "sub").iterdir()] == [DATA]


def test_a_command_that_fails_leaves_nothing(here, params, tmp_path):
    with pytest.raises(AssertionError, match="exit=3"):
        here.apply("artefact", **{**params, "words": ["sh", "-c", f"printf '{DATA}'; exit 3"]})
    assert list((tmp_path / "sub").iterdir()) == []


def test_a_right_content_with_another_mode_is_not_made_again(here, params, tmp_path):
    here.apply("artefact", **params)
    (tmp_path / "sub" / "a b'").chmod(0o644)
    (change,) = here.plan("artefact", **params).changes
    assert change.what == f"{params['path']} mode 0600 (was 644)"
    assert here.apply("artefact", **params).changes == []


def test_a_link_in_its_place_is_replaced_and_its_target_stays(here, params, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "target").write_text(DATA)
    (tmp_path / "sub" / "a b'").symlink_to(tmp_path / "target")
    assert here.apply("artefact", **params).changes == []
    assert not (tmp_path / "sub" / "a b'").is_symlink()
    assert (tmp_path / "target").read_text() == DATA


def test_a_link_to_what_is_called_like_the_sum_is_no_such_file(here, params, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a b'").symlink_to(SHA256)
    (change,) = here.plan("artefact", **params).changes
    assert (change.what, change.before) == ("make it", "")


@pytest.mark.parametrize("answer", [(1, "", "Permission denied"), "", (0, "755:root:root:0:0:directory\n")])
def test_what_cannot_be_looked_at_is_left_alone(planned, params, answer):
    found = planned("artefact", {"sh -c": answer}, **params)
    assert isinstance(found.stop, Failed)
    assert found.changes == []


def test_a_long_one_may_be_detached(planned, params):
    absent = (0, "", "stat: cannot statx 'x': No such file or directory")
    (change,) = planned("artefact", {"sh -c": absent}, **params, detach=True).changes
    assert change.detach


@pytest.mark.parametrize(
    "wrong", [{"path": "x"}, {"sha256": "d2a6"}, {"sha256": "D" * 64}, {"words": []}, {"mode": "rw"}]
)
def test_wrong_parameters_are_refused(planned, params, wrong):
    with pytest.raises(DocumentError, match="artefact"):
        planned("artefact", {}, **{**params, **wrong})

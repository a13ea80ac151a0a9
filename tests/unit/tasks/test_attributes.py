import stat

import pytest

from gpuops import Later
from gpuops.errors import DocumentError

FILE = "644:nobody:nogroup:65534:65533:regular file\n"


def commands(found):
    return [str(change.command) for change in found.changes]


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"owner": "nobody", "group": "nogroup"}, []),
        ({"owner": "65534", "group": "65533", "mode": "0644"}, []),
        ({}, ["chown root:root -- /x"]),
        ({"owner": "nobody", "group": "nogroup", "mode": "4755"}, ["chmod 4755 -- /x"]),
    ],
)
def test_only_what_differs_is_changed(planned, params, expected):
    assert commands(planned("attributes", {"sh -c stat": FILE}, path="/x", **params)) == expected


def test_they_hold_and_the_content_stays(here, tmp_path, me):
    path = tmp_path / "a b'"
    path.write_text("x")
    assert here.apply("attributes", path=str(path), mode="0600", **me).changes == []
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("x", 0o600)


def test_what_is_not_there_may_come_with_an_earlier_step(here, tmp_path):
    assert here.plan("attributes", path=str(tmp_path / "x")).later == [Later(f"{tmp_path}/x does not exist")]


def test_a_mode_is_octal(planned):
    with pytest.raises(DocumentError, match="attributes"):
        planned("attributes", {}, path="/x", mode="rw")

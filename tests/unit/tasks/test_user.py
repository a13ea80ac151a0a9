import pytest

from gpuops import Failed
from gpuops.errors import DocumentError

MUNGE = {
    "getent passwd munge": "munge:x:112:117::/nonexistent:/bin/sh\n",
    "id -gn": "munge\n",
    "id -Gn": "munge video\n",
}


def commands(found):
    return [str(change.command) for change in found.changes]


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, []),
        ({"uid": 112, "group": "munge", "groups": ["video"], "shell": "/bin/sh", "home": "/nonexistent"}, []),
        ({"groups": ["video", "render"]}, ["usermod -aG render munge"]),
        ({"shell": "/usr/sbin/nologin", "home": "/x"}, ["usermod -s /usr/sbin/nologin -d /x munge"]),
        ({"group": "users"}, ["usermod -g users munge"]),
        ({"state": "absent"}, ["userdel munge"]),
    ],
)
def test_a_user_who_is_there_is_changed_only_where_it_differs(planned, params, expected):
    assert commands(planned("user", MUNGE, name="munge", **params)) == expected


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, ["useradd -m munge"]),
        ({"system": True, "uid": 0}, ["useradd -r -u 0 munge"]),
        ({"groups": ["a", "b"], "group": "c", "shell": "/bin/sh"}, ["useradd -m -g c -G a,b -s /bin/sh munge"]),
        ({"state": "absent"}, []),
    ],
)
def test_a_user_who_is_not_there_is_added(planned, params, expected):
    assert commands(planned("user", {"getent": 2}, name="munge", **params)) == expected


@pytest.mark.parametrize("answer", ["munge:x:7:7::/:/bin/sh\n", "munge:x:112\n", "", 1, 127])
def test_another_number_or_no_answer_is_a_failure(planned, answer):
    found = planned("user", {**MUNGE, "getent passwd munge": answer}, name="munge", uid=112)
    assert isinstance(found.stop, Failed)
    assert found.changes == []


@pytest.mark.parametrize(
    "wrong", [{"name": "-r"}, {"name": "a:b"}, {"group": "a b"}, {"groups": ["a,b"]}, {"shell": "sh"}, {"home": "/a:b"}]
)
def test_wrong_parameters_are_refused(planned, wrong):
    with pytest.raises(DocumentError, match="user"):
        planned("user", {}, **{"name": "munge", **wrong})

import pytest

from gpuops import Failed, Later
from gpuops.errors import DocumentError

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOne ops@bastion"
OTHER = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAtwo someone"
PASSWD = {"getent passwd ops": "ops:x:1000:1000::/home/ops:/bin/bash\n"}
CAT = "runuser -u ops -- cat -- /home/ops/.ssh/authorized_keys"


@pytest.fixture
def after(planned):
    """The file as it becomes, or None where it stays."""

    def after(now, /, **params):
        found = planned("authorized_key", {**PASSWD, CAT: now}, user="ops", **{"key": KEY, **params})
        assert found.stop is None
        return found.changes[0].after if found.changes else None

    return after


@pytest.mark.parametrize(
    ("now", "params", "expected"),
    [
        ((1, "", "cat: x: No such file or directory"), {}, f"{KEY}\n"),
        ("", {}, f"{KEY}\n"),
        (f"# mine\n{OTHER}", {}, f"# mine\n{OTHER}\n{KEY}\n"),
        (f"{OTHER}\n{KEY}\n", {}, None),
        ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOne\n", {}, None),
        (f"# {KEY}\n", {}, f"# {KEY}\n{KEY}\n"),
        (f"no-pty {KEY}\n{OTHER}\n", {}, f"{OTHER}\n{KEY}\n"),
        (f"{KEY}\n", {"key": f'from="10.0.0.1" {KEY}'}, f'from="10.0.0.1" {KEY}\n'),
        (f"{KEY}\n{KEY}\n", {}, f"{KEY}\n"),
        (f'{OTHER}\ncommand="x" {KEY}\n', {"state": "absent"}, f"{OTHER}\n"),
        (f"{OTHER}\n", {"state": "absent"}, None),
    ],
)
def test_a_key_is_there_once_and_others_stay(after, now, params, expected):
    assert after(now, **params) == expected


def test_everything_in_the_home_is_done_with_the_users_own_rights(planned):
    (change,) = planned("authorized_key", {**PASSWD, CAT: ""}, user="ops", key=KEY).changes
    assert change.command.words[:4] == ("runuser", "-u", "ops", "--")
    assert change.command.words[-1] == "/home/ops"
    assert KEY not in str(change.command)


def test_a_user_who_comes_later_is_reported(planned):
    found = planned("authorized_key", {"getent": 2}, user="ops", key=KEY)
    assert found.later == [Later("no user named ops yet")]


@pytest.mark.parametrize(
    "answers", [{CAT: (1, "", "cat: x: Permission denied")}, {CAT: "\ufffd"}, {"getent passwd ops": ""}]
)
def test_keys_that_cannot_be_read_are_left_alone(planned, answers):
    found = planned("authorized_key", {**PASSWD, CAT: "", **answers}, user="ops", key=KEY)
    assert isinstance(found.stop, Failed)
    assert found.changes == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"user": "-u"},
        {"user": "a/b"},
        {"key": "AAAA"},
        {"key": "ssh-rsa x"},
        {"key": f"{KEY}\n{OTHER}"},
        {"key": "# no"},
    ],
)
def test_wrong_parameters_are_refused(planned, wrong):
    with pytest.raises(DocumentError, match="authorized_key"):
        planned("authorized_key", {}, **{"user": "ops", "key": KEY, **wrong})

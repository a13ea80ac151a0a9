"""Who else may write to a file, with accounts and groups as /etc/passwd and /etc/group have them."""

import grp
import os
import pwd

import pytest

from gpuops.files.permissions import others_may_write

ALICE = pwd.struct_passwd(("alice", "x", 1000, 1000, "", "/home/alice", "/bin/sh"))
GROUPS = {
    1000: grp.struct_group(("alice", "x", 1000, [])),
    1001: grp.struct_group(("ops", "x", 1001, ["alice", "bob"])),
    1002: grp.struct_group(("alice2", "x", 1002, [])),
}


@pytest.fixture(autouse=True)
def accounts(monkeypatch):
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: {1000: ALICE}[uid])
    monkeypatch.setattr(grp, "getgrgid", lambda gid: GROUPS[gid])


def status(mode, uid=1000, gid=1000):
    return os.stat_result((mode, 1, 1, 1, uid, gid, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("mode", "gid", "may_write"),
    [
        (0o644, 1001, False),
        (0o664, 1000, False),  # the owner's own group, and a umask of 002
        (0o664, 1001, True),
        (0o664, 1002, True),
        (0o664, 4242, True),  # a group without a name
        (0o666, 1000, True),
        (0o646, 1000, True),
    ],
)
def test_others_may_write_unless_the_group_is_the_owners_own(mode, gid, may_write):
    assert others_may_write(status(mode, gid=gid)) is may_write


def test_group_with_another_member_is_others(monkeypatch):
    monkeypatch.setattr(grp, "getgrgid", lambda _gid: grp.struct_group(("alice", "x", 1000, ["alice", "bob"])))
    assert others_may_write(status(0o664))


def test_group_of_an_account_without_a_name_is_others():
    assert others_may_write(status(0o664, uid=4242))

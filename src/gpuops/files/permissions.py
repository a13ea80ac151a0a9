"""Permissions of files: which ones users other than the owner may write to."""

from __future__ import annotations

import grp
import os
import pwd
import stat


def others_may_write(status: os.stat_result) -> bool:
    """Return True if others may write to the file; a group that has only its owner in it is not others.

    Debian, Ubuntu and Fedora give each account such a group, with its name, and often the umask 002.
    """
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and not _is_private_group(status.st_gid, status.st_uid)


def _is_private_group(gid: int, owner: int) -> bool:
    try:
        account, group = pwd.getpwuid(owner), grp.getgrgid(gid)
    except KeyError:
        return False
    return account.pw_gid == gid and group.gr_name == account.pw_name and {*group.gr_mem} <= {account.pw_name}

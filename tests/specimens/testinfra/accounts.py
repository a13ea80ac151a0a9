# As tests of an Ansible role for users have it: one test for a list of dicts. The shape is that of
# molecule/default/tests/test_default.py in 1000Bulbs/ansible-role-users.
import pytest

ACCOUNTS = [
    {"username": "root", "home": "/root"},
    {"username": "daemon", "home": "/usr/sbin", "shell": "/usr/sbin/nologin"},
    {"username": "gpuops-nobody-has-this", "groups": ["sudo"]},
]


@pytest.mark.parametrize("account", ACCOUNTS)
def test_account(host, account):
    name = account["username"]
    user = host.user(name)

    assert user.exists
    assert user.name == name
    assert user.group == account.get("group", name)
    assert user.home == account.get("home", f"/home/{name}")
    for group in account.get("groups", []):
        assert group in user.groups
    assert user.shell == account.get("shell", "/bin/bash")

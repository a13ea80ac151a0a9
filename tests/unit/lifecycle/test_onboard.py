"""The built-in playbook of ``gpuops onboard``: what it asks before anything is changed."""

import re

import pytest

from gpuops.playbook.loading import load_playbook
from gpuops.playbook.task import TaskRegistry


@pytest.fixture(scope="module")
def asked():
    """The steps that are tagged preflight, by the beginning of their names."""
    steps = load_playbook("onboard", TaskRegistry()).plays[0].steps
    assert all(step.tags == {"preflight"} for step in steps)
    return {step.name.split()[0]: step for step in steps}


@pytest.mark.parametrize(
    ("system", "known"),
    [
        ("ubuntu 22.04", True),
        ("ubuntu 24.04", True),
        ("ubuntu 20.04", False),
        ("debian 12", True),
        ("debian 11", False),
        ("rhel 8.10", True),
        ("rocky 9.6", True),
        ("almalinux 9", True),
        ("rocky 10.0", False),
        ("rhel 7.9", False),
        ("sles 15.6", False),
    ],
)
def test_a_system_that_the_playbooks_do_not_know_is_refused(asked, system, known):
    os_id, os_version = system.split()
    scope = {"facts": {"system": {"os_id": os_id, "os_version": os_version}}}
    assert all(condition.holds(scope) for condition in asked["Supported"].when) is not known


@pytest.mark.parametrize(
    ("free_kib", "room"), [(19_999_999, False), (20_000_000, True), (123_456_789, True), (0, False), (99_999, False)]
)
def test_a_disk_that_is_nearly_full_is_refused(asked, free_kib, room):
    told = f"Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/md0  999999999 99999999 {free_kib} 5% /\n"
    expression = asked["Disk"].raw_params.plain()["prints"]
    assert bool(re.search(expression, told, re.MULTILINE)) is room

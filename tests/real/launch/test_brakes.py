"""Caps, shadow and waivers at the door of a real Slurm: which nodes it drains, and which it uses again."""

import datetime as dt
import json
import sqlite3

import pytest
from tests.real.launch.test_onboard import gpuops as gpuops  # noqa: PLC0414 - a fixture
from tests.real.launch.test_onboard import onboard, states

pytestmark = pytest.mark.usefixtures("slurm")
NODES = ("node2", "node3", "node10", "node11")
REMEMBERED = ("burn-in", "validate", "pair")
CHECK = '''\
"""The host has no purpose."""

from gpuops import Command, Finding, Probe, check

purpose_file = Probe("purpose_file", Command(("cat", "/run/purpose")), lambda answer: answer.out)


@check(needs=purpose_file, fix="give it one")
def purpose(text, _profile):
    """It is wrong about every host."""
    if text:
        yield Finding("the host has a purpose")
'''


@pytest.fixture
def store(tmp_path):
    """Change the store: gates that the nodes never passed, or another machine than they were tested as."""

    def change(statement, *values):
        with sqlite3.connect(tmp_path / ".gpuops" / "state.db") as database:
            database.execute(statement, values)

    return change


@pytest.fixture
def settings(tmp_path):
    text = "inventory: inventory.yml\nscheduler: slurm\n"
    return lambda more: (tmp_path / "gpuops.yml").write_text(text + more)


def used(slurm_states):
    return sorted(name for name, (state, _) in slurm_states().items() if state == "idle")


def test_a_reboot_into_another_kernel_drains_as_many_nodes_as_the_cap_allows(gpuops, slurm_states, store, settings):
    settings("max_closed: {run: 1, day: 2}\n")
    onboard(gpuops, *NODES)
    store('UPDATE events SET fingerprint = \'{"kernel": ["6.0-before"]}\'')
    told = onboard(gpuops, *NODES, code=1)
    assert told.count("not drained: this run drained 1, and max_closed (run: 1) allows 1 of 4 nodes") == 3
    assert len(used(slurm_states)) == 3
    ((_, reason),) = [each for each in slurm_states().values() if each[0] != "idle"]
    assert reason.startswith("gpuops:provisioned facts: no longer the machine that was tested: kernel 6.0-before")
    others = used(slurm_states)
    assert onboard(gpuops, *others, code=1).count("not drained: this run drained 1") == 2
    told = onboard(gpuops, *used(slurm_states), code=3)
    assert told.count("not drained: 2 were drained within 24 hours, and max_closed (day: 2) allows 2 of 4 nodes") == 2
    assert len(used(slurm_states)) == 2
    assert sorted(states(gpuops).values()) == ["admitted", "admitted", "provisioned", "provisioned"]


def test_a_drain_by_hand_above_the_cap_needs_force(gpuops, slurm_states, settings):
    settings("max_closed: {day: 1}\n")
    assert "drain fewer nodes, or add --force" in gpuops("drain", "node2,node3", "--reason", "reboot", code=3)
    assert used(slurm_states) == sorted(NODES)
    gpuops("drain", "node2,node3", "--reason", "reboot", "--force")
    assert used(slurm_states) == ["node10", "node11"]


@pytest.mark.parametrize("by", ["nothing", "shadow", "waiver", "check"])
def test_a_wrong_check_keeps_a_node_closed_until_it_is_set_aside(gpuops, slurm_states, store, settings, tmp_path, by):
    settings("")
    (tmp_path / "checks").mkdir()
    onboard(gpuops, "node3")
    for gate in REMEMBERED:
        store("INSERT INTO gates SELECT node, ?, run, at, fingerprint FROM events ORDER BY id DESC LIMIT 1", gate)
    gpuops("drain", "node3", "--reason", "x")
    (tmp_path / "checks" / "purpose.py").write_text(CHECK)
    told = gpuops("validate", "--limit", "node3", "--json", code=1)
    assert told.startswith("gpuops: running the project's own Python files in checks/")
    unhealthy = json.loads(told[told.index("{") :])["hosts"]["node3"]["findings"]
    others = sorted({finding["check"] for finding in unhealthy} - {"purpose"})
    wrong = {"nothing": [], "shadow": ["purpose"], "waiver": [], "check": []}[by]
    settings(f"shadow: [{', '.join([*others, *wrong])}]\n")
    if by == "waiver":
        day = (dt.datetime.now(dt.timezone.utc) + dt.timedelta(days=9)).date()
        waiver = f"- {{check: purpose, hosts: node3, reason: it is wrong, author: alice, expires: {day}}}\n"
        (tmp_path / "waivers.yml").write_text(waiver)
    if by == "check":
        (tmp_path / "checks" / "purpose.py").write_text(CHECK.replace("if text:", "if not text:"))
    told = gpuops("admit", "node3", code=1 if by == "nothing" else 0)
    assert ("fails purpose" in told) is (by == "nothing")
    assert slurm_states()["node3"][0] == ("drained" if by == "nothing" else "idle")

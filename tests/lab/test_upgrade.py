"""A rolling upgrade of ten lab hosts, with their shells, packages, units, reboots and locks."""

import json
import re
import time

import pytest

pytest.importorskip("asyncssh", reason="the lab's server is the extra gpuops[lab]")

from tests.program import run_gpuops

from gpuops.content import builtin
from gpuops.lab import cluster

pytestmark = pytest.mark.long

OLD, NEW = "580.105.08", "580.126.20"
PLAYBOOK = """\
- name: Driver
  hosts: all
  serial: [1, 40%, 100%]
  max_fail_percentage: 0
  vars: {version: "VERSION"}
  tasks:
    - name: the driver and its fabric manager
      package:
        versions:
          nvidia-driver-580-server: "VERSION-0ubuntu1"
          nvidia-fabricmanager-580: "VERSION-1"
        allow_downgrade: true
        change_held: true
      notify: a boot with it
    - name: stays at it
      package_hold: {names: [nvidia-driver-580-server, nvidia-fabricmanager-580]}
    - flush: handlers
    - name: it runs
      when: facts.driver.loaded_version != version
      assert: {message: another driver is loaded}
    - name: the fabric manager runs
      service: {name: nvidia-fabricmanager, state: started}
  handlers:
    - name: a boot with it
      reboot: {reason: the driver}
"""
DONE = ["gpu01", "gpu02", "gpu04", "gpu05"]
"""The first batch, and the nodes of the second batch (two fifths of all) that ran when the third node failed."""


CHANGING = (
    "apt-get -q -o DPkg::Lock::Timeout=120 -o Dpkg::Options::=--force-confold --no-install-recommends -y",
    "apt-mark",
)


class Fleet:
    """Ten lab hosts, and a runner of gpuops for them."""

    def __init__(self, folder):
        self.folder = folder
        self.lab = folder / ".gpuops" / "lab"
        self.names = [
            host.name
            for host in cluster.up(self.lab, "hgx-h100", 10, ["gpu03:host:apt-fails=nvidia-driver-580-server"])
        ]
        for name, version in (("upgrade", NEW), ("rollback", OLD)):
            (folder / f"{name}.yml").write_text(PLAYBOOK.replace("VERSION", version))

    def gpuops(self, *words, code=0):
        done = run_gpuops(*words, "-i", self.lab / "inventory.yml", cwd=self.folder, timeout=300)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        return " ".join(done.stdout.split())

    def versions(self):
        """Return the driver of each host that answers."""
        words = ("facts", "--probe", "driver", "--json", "-i", self.lab / "inventory.yml")
        done = run_gpuops(*words, cwd=self.folder)
        told = json.loads(done.stdout)["hosts"]
        return {name: facts["driver"]["loaded_version"] for name, facts in told.items()}

    def audit(self, name):
        return cluster.audit(self.lab, name)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    made = Fleet(tmp_path_factory.mktemp("fleet"))
    yield made
    cluster.down(made.lab)


@pytest.fixture(scope="module")
def stopped(fleet):
    """Return the output of an upgrade in which the third node of the second batch failed."""
    return fleet.gpuops("provision", "upgrade.yml", code=1)


def test_it_stops_where_a_node_fails_and_leaves_the_others_as_they_were(fleet, stopped):
    assert fleet.versions() == {name: NEW if name in DONE else OLD for name in fleet.names}
    changed = {name: [line for line in fleet.audit(name) if line.startswith(CHANGING)] for name in fleet.names}
    assert [name for name in fleet.names if changed[name]] == ["gpu01", "gpu02", "gpu03", "gpu04", "gpu05"]
    assert [name for name in fleet.names if "reboot" in fleet.audit(name)] == DONE


def test_the_report_says_who_was_brought_to_what_who_failed_and_why_and_who_was_left_alone(stopped):
    driver = f"the driver and its fabric manager install nvidia-driver-580-server={NEW}-0"
    assert f"gpu[01-02,04-05] changed {driver}" in stopped
    assert "gpu03 failed the driver and its fabric manager" in stopped
    assert "dpkg: error processing archive /var/cache/apt/archives/nvidia-driver-580-server.deb" in stopped
    assert 'stopped: 1 of 4 nodes of a batch failed in play "Driver"; max_fail_percentage is 0' in stopped
    assert "not started: gpu[06-10]" in stopped
    assert "handlers pending" not in stopped


def test_who_failed_in_a_run_can_be_tried_again_alone(fleet, stopped):
    run = re.search(r"--resume (\S+)", stopped)[1]
    assert fleet.gpuops("provision", "upgrade.yml", "--retry", run, "--list-hosts") == "Driver 1 node batch 1 gpu03"


def test_who_runs_which_version_is_what_validate_tells_of_the_fleet(fleet, stopped):
    told = fleet.gpuops("validate", "--only", "driver-agrees", code=1)
    assert f"{NEW} here, {OLD} on 6 of 10 nodes" in told
    assert f"install driver {OLD} on gpu[01-02,04-05]" in told


def test_rolled_back_all_are_on_the_old_version_and_who_never_left_it_is_not_touched(fleet, stopped):
    seen = {name: len(fleet.audit(name)) for name in fleet.names}
    fleet.gpuops("provision", "rollback.yml")
    assert fleet.versions() == dict.fromkeys(fleet.names, OLD)
    rebooted = [name for name in fleet.names if "reboot" in fleet.audit(name)[seen[name] :]]
    assert rebooted == ["gpu01", "gpu02", "gpu04", "gpu05"]
    told = fleet.gpuops("provision", "rollback.yml", "--check")
    assert "10 nodes, 40 steps: 30 ok, 10 skipped, 0 failed" in told


def test_once_the_cause_is_gone_the_upgrade_reaches_all(fleet, stopped):
    cluster.clear(fleet.lab, ["gpu03"])
    fleet.gpuops("provision", "upgrade.yml")
    assert set(fleet.versions().values()) == {NEW}
    assert "10 nodes, 40 steps: 30 ok, 10 skipped, 0 failed" in fleet.gpuops("provision", "upgrade.yml", "--check")


def test_a_node_that_does_not_come_back_is_told_and_found_again(fleet, stopped):
    cluster.inject(fleet.lab, ["gpu10:host:stays-down"])
    (fleet.folder / "boot.yml").write_text(
        "- hosts: gpu10\n  tasks:\n    - {name: again, reboot: {reason: to see}, timeout: 6}\n"
    )
    told = fleet.gpuops("provision", "boot.yml", code=3)
    assert "s after a reboot; check its console or its BMC" in told
    cluster.clear(fleet.lab, ["gpu10"])
    ends = time.monotonic() + 10
    while fleet.versions().keys() != set(fleet.names):
        assert time.monotonic() < ends


def test_the_built_in_playbooks_upgrade_and_roll_back_and_find_nothing_to_do_the_second_time(fleet, stopped):
    """Upgrade with Ubuntu's own packages, which the lab's repositories provide."""
    stacks = fleet.folder / "playbooks" / "stacks"
    stacks.mkdir(parents=True)
    for name in ("current", "previous"):
        shipped = (builtin("playbooks") / "stacks" / f"{name}.yml").read_text()
        (stacks / f"{name}.yml").write_text(re.sub(r"origin: cuda\b", "origin: distribution", shipped))
    for playbook in ("upgrade", "rollback"):
        before = fleet.versions()["gpu09"]
        told = fleet.gpuops("provision", playbook, "--limit", "gpu09")
        assert "0 failed" in told
        assert f"nvidia-driver-580-server={fleet.versions()['gpu09']}-0ubuntu1" in told
        assert fleet.versions()["gpu09"] != before
        told = fleet.gpuops("provision", playbook, "--check", "--limit", "gpu09")
        assert re.search(r"1 node, \d+ steps: \d+ ok, \d+ skipped, 0 failed", told)

"""Nodes of a real Slurm on their way to jobs: through real SSH, with a playbook that really changes each host."""

import json
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.usefixtures("slurm")
TRIES = "for try in {1..600}; do"  # Slurm looks again at a job that could not start at once only after 30 or 60 s
# The hosts share this machine's disk, and each has a /run of its own.
PLAYBOOK = """\
- name: Before anything is changed
  hosts: all
  tags: [preflight]
  tasks:
    - name: A host that may go on
      assert: {message: it must not go on, words: [sh, -c, "! test -e /run/no-preflight"]}
- name: A node
  hosts: all
  tasks:
    - name: What it is for
      file: {path: /run/purpose, content: "jobs\\n"}
    - name: What does not hold on a broken host
      command: {words: [sh, -c, "test -e /run/broken || touch /run/held"], creates: /run/held, become: always}
"""


@pytest.fixture
def gpuops(lab, tmp_path, shell):
    """The program, on the machine where Slurm's controller runs, with an inventory of the hosts; what it says."""
    options = f"-o UserKnownHostsFile={lab.state}/known_hosts"
    login = {"ansible_user": "root", "ansible_ssh_private_key_file": f"{lab.state}/login"}
    hosts = {name: {"ansible_host": address} for name, address in lab.addresses.items()}
    (tmp_path / "inventory.yml").write_text(
        json.dumps({"all": {"vars": {**login, "ansible_ssh_common_args": options}, "hosts": hosts}}, indent=1)
    )
    (tmp_path / "gpuops.yml").write_text("inventory: inventory.yml\nscheduler: slurm\nlease: reservation\n")
    (tmp_path / "p.yml").write_text(PLAYBOOK)

    def gpuops(*words, code=0):
        done = subprocess.run(
            lab.words("env", "-C", tmp_path, sys.executable, "-m", "gpuops", *words),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout
        return " ".join(done.stdout.split())

    yield gpuops
    for host in lab.addresses:
        shell("rm -f /run/purpose /run/held /run/broken /run/no-preflight", host)
    shell(f"scontrol update NodeName={','.join(lab.addresses)} State=UNDRAIN")


def onboard(gpuops, *nodes, code=0, without=("burn-in", "validate", "pair")):
    left_out = [word for gate in without for word in ("--without", gate)]
    return gpuops("onboard", *nodes, "--playbook", "p.yml", *left_out, code=code)


def states(gpuops):
    return {name: event["state"] for name, event in json.loads(gpuops("state", "list", "--json"))["hosts"].items()}


def test_a_node_that_passes_goes_from_drained_to_idle_and_one_that_fails_stays_drained(gpuops, shell, slurm_states):
    shell("scontrol update NodeName=node2,node10 State=DRAIN Reason='gpuops:new'")
    shell("touch /run/broken", "node10")
    told = onboard(gpuops, "node2", "node10", code=1)
    assert "node10 provision stopped: What does not hold on a broken host: did not take effect" in told
    assert slurm_states()["node2"] == ("idle", "none")
    state, reason = slurm_states()["node10"]
    assert state == "drained"
    assert reason.startswith("gpuops:new provision: What does not hold on a broken host")
    assert states(gpuops) == {"node2": "admitted", "node10": "new"}

    shell("rm /run/broken", "node10")
    onboard(gpuops, "node10")
    assert slurm_states()["node10"] == ("idle", "none")
    assert states(gpuops)["node10"] == "admitted"


def test_nothing_is_changed_where_the_preflight_objects(gpuops, shell):
    shell("touch /run/no-preflight", "node3")
    assert "node3 preflight stopped: A host that may go on: it must not go on" in onboard(gpuops, "node3", code=1)
    shell("! test -e /run/purpose", "node3")


def test_a_node_that_another_user_drained_is_left_alone(gpuops, shell, slurm_states):
    shell("scontrol update NodeName=node11 State=DRAIN Reason='fan swap, T812'")
    told = onboard(gpuops, "node11", code=3)
    assert "facts stopped: drained by another user: drained (fan swap, T812)" in told
    assert slurm_states()["node11"] == ("drained", "fan swap, T812")
    assert states(gpuops)["node11"] == "new"
    shell("! test -e /run/purpose", "node11")
    (hand_over,) = re.findall(r"scontrol update NodeName=node11 State=DRAIN Reason=gpuops:new", told)
    shell(hand_over)
    onboard(gpuops, "node11")
    assert slurm_states()["node11"] == ("idle", "none")


def test_an_admitted_node_is_looked_at_while_its_job_runs_on(gpuops, shell, slurm_states):
    onboard(gpuops, "node3")
    job = shell("sbatch --parsable -w node3 -J train --wrap 'sleep 600'").strip()
    try:
        shell(f"{TRIES} squeue -h -t RUNNING -j {job} | grep -q . && exit; sleep 0.1; done; exit 1")
        told = onboard(gpuops, "node3")
        assert "1 admitted node through facts, preflight, second-pass node3 facts passed" in told
        assert "provision" not in told
        shell("echo other >/run/purpose", "node3")
        assert "differs from the playbook: What it is for" in onboard(gpuops, "node3", code=1)
        assert shell("cat /run/purpose", "node3") == "other\n"
        assert f"{job} RUNNING" in shell("squeue -h -o '%A %T'")
        assert states(gpuops)["node3"] == "admitted"
    finally:
        shell(f"scancel {job}; {TRIES} squeue -h -j {job} | grep -q . || exit 0; sleep 0.1; done; exit 1")


def test_a_drain_waits_for_the_job_and_an_admission_ends_it(gpuops, shell, slurm_states):
    onboard(gpuops, "node2")
    job = shell("sbatch --parsable -w node2 -J train --wrap 'sleep 600'").strip()
    shell(f"{TRIES} squeue -h -t RUNNING -j {job} | grep -q . && exit; sleep 0.1; done; exit 1")
    assert "draining" in gpuops("drain", "node2", "--reason", "fan swap", "--wait", "1", code=1)
    shell(f"scancel {job}")
    gpuops("drain", "node2", "--reason", "fan swap", "--wait", "60")
    assert slurm_states()["node2"] == ("drained", "gpuops:drained fan swap")
    assert "not proved for this machine: burn-in, validate, pair" in gpuops("admit", "node2", code=1)
    gpuops("admit", "node2", "--reason", "new fan", "--force")
    assert slurm_states()["node2"] == ("idle", "none")


def test_the_pair_is_measured_with_an_admitted_neighbour(gpuops, slurm_states):
    onboard(gpuops, "node2")
    told = onboard(gpuops, "node10", without=("burn-in", "validate"))
    assert "node10 pair passed" in told
    assert slurm_states()["node10"] == ("idle", "none")


def test_a_second_operator_is_told_who_works_on_the_node(gpuops, shell):
    shell("mkdir -p /run/gpuops/lock; echo '{\"run\": \"20260101-1\", \"who\": \"alice\", \"machine\": \"admin9\", "
          "\"since\": \"2026-01-01\", \"pid\": 1, \"boot_id\": \"x\"}' >/run/gpuops/lock/owner", "node10")  # fmt: skip
    try:
        told = onboard(gpuops, "node10", code=4)
        assert "provision stopped: node10 is locked by alice on admin9, run 20260101-1" in told
    finally:
        shell("rm -rf /run/gpuops/lock", "node10")


CHECK = '''\
"""The host is held."""

from gpuops import Command, Finding, Probe, check

held = Probe("held", Command(("test", "-e", "/run/held")), lambda answer: answer.exit == 0, accepts=None)


@check(needs=held, catches="a host that nobody holds", fix="hold it")
def purpose(found, _profile):
    """The file is there."""
    if not found:
        yield Finding("nobody holds it")
'''


def test_a_fix_is_done_on_a_drained_node_and_the_check_is_asked_again(gpuops, shell, tmp_path):
    fixes, checks = tmp_path / "playbooks" / "fixes", tmp_path / "checks"
    fixes.mkdir(parents=True)
    checks.mkdir()
    (checks / "purpose.py").write_text(CHECK)
    (fixes / "purpose.yml").write_text('- hosts: all\n  tasks:\n    - file: {path: /run/held, content: "room\\n"}\n')
    assert "first: gpuops drain node3" in gpuops("fix", "purpose", "node3", "--yes", code=3)
    shell("! test -e /run/held", "node3")
    gpuops("drain", "node3", "--reason", "nobody holds it", "--wait", "20")
    told = gpuops("fix", "purpose", "node3", "--yes")
    assert told.index("would change") < told.index("1 changed") < told.index("node3 purpose: pass")
    assert shell("cat /run/held", "node3") == "room\n"

"""Playbooks on the lab over real SSH: check mode reports changes and makes none, and a run makes them."""

import pytest
from tests.program import run_gpuops

from gpuops.lab import cluster

PLAYBOOK = """\
- name: Fabric
  hosts: all
  serial: [1, 100%]
  tasks:
    - name: The fabric manager runs
      service: {name: nvidia-fabricmanager, state: started, enabled: true}
      when: version(facts.driver.loaded_version) >= "470" and facts.smi.gpus[0].index == 0
    - name: Who we are
      command: {words: [set-name, "{{ node.name }}"], creates: /no/such/file, become: always}
    - name: Never here
      command: {words: [no-such-program], always: true}
      when: node.name == "elsewhere"
"""


@pytest.fixture
def provision(lab):
    folder = lab.folder.parents[1]
    (folder / "p.yml").write_text(PLAYBOOK)

    def provision(*words, code):
        done = run_gpuops("provision", "p.yml", "-i", lab.folder / "inventory.yml", *words, cwd=folder)
        assert done.returncode == code, done
        return done.stdout

    return provision


def test_check_mode_tells_what_each_host_needs_and_sends_no_changing_command(provision, lab, plant):
    plant("gpu02:host:fabricmanager-down")
    before = {host: len(cluster.audit(lab.folder, host)) for host in lab.hosts}
    told = provision("--check", "--diff", code=1)
    blocks = {block.splitlines()[0]: block for block in told.split("\n\n")}
    assert {"gpu01", "gpu02", "gpu03"} <= set(blocks)
    assert [name for name, block in blocks.items() if "start nvidia-fabricmanager.service" in block] == ["gpu02"]
    assert [name for name, block in blocks.items() if "set-name gpu03" in block] == ["gpu03"]
    assert all("no-such-program" not in block for block in blocks.values())
    for host, seen in before.items():
        sent = cluster.audit(lab.folder, host)[seen:]
        assert not [line for line in sent if "systemctl" in line and " show " not in line], sent
        asked_as_root = [line for line in sent if line.startswith("sudo")]
        assert all(
            line.startswith(("sudo -n -- test -e ", "sudo -n -- journalctl _SYSTEMD_UNIT=")) for line in asked_as_root
        )
        assert not any("set-name" in line for line in sent), sent


def test_a_host_that_does_not_answer_is_told_and_the_others_are_looked_at(provision, plant):
    plant("gpu02:host:refuse")
    told = provision("--check", code=1)
    assert "connection refused" in told
    assert "3 nodes, " in told
    assert "1 unreachable" in told


def test_without_a_lock_nothing_is_changed(provision, lab, plant):
    plant(*(f"{host}:host:no-sudo" for host in lab.hosts))
    before = {host: len(cluster.audit(lab.folder, host)) for host in lab.hosts}
    told = provision(code=1)
    assert "cannot lock the node" in told
    assert "3 failed" in told
    for host, seen in before.items():
        assert not [line for line in cluster.audit(lab.folder, host)[seen:] if "set-name" in line]

"""``gpuops onboard`` over the lab, through real SSH: from a bare host to an admitted one, with every gate."""

import json
import subprocess
import sys

import pytest

from gpuops.lab import cluster

GATES = ("facts", "preflight", "provision", "second-pass", "burn-in", "validate", "pair", "admit")
PLAYBOOK = """\
- name: A node
  hosts: all
  tasks:
    - name: What it is for
      file: {path: /etc/purpose, content: "jobs\\n"}
"""
INVENTORY_GROUP = """
admitted:
  hosts:
"""


@pytest.fixture
def gpuops(lab, tmp_path):
    """The program in a project of the lab's hosts."""
    (tmp_path / "p.yml").write_text(PLAYBOOK)
    (tmp_path / "inventory.yml").write_text((lab.folder / "inventory.yml").read_text() + INVENTORY_GROUP)
    (tmp_path / "gpuops.yml").write_text("inventory: inventory.yml\n")

    def gpuops(*words, code=0):
        done = subprocess.run(
            [sys.executable, "-m", "gpuops", *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done
        return done.stdout

    gpuops.inventory = tmp_path / "inventory.yml"
    return gpuops


def onboard(gpuops, *nodes, code=0):
    words = ("--playbook", "p.yml", "--burn-in", "3s", "--engine", "nccl-tests", "--group", "admitted")
    return gpuops("onboard", *nodes, *words, code=code)


def passed(told, node):
    rows = (line.split() for line in told.splitlines() if line.startswith(f"{node} "))
    return {row[1]: " ".join(row[2:]) for row in rows if row[1] != "stopped"}


def test_a_bare_host_is_admitted_and_a_second_time_only_looked_at(gpuops):
    before = gpuops.inventory.read_text()
    told = onboard(gpuops, "gpu01", "gpu02")
    for node in ("gpu01", "gpu02"):
        assert passed(told, node) == dict.fromkeys(GATES, "passed"), told
    assert gpuops.inventory.read_text() == f"{before}    gpu01:\n    gpu02:\n"
    history = json.loads(gpuops("state", "show", "gpu01", "--json"))["history"]
    assert [event["state"] for event in history] == ["new", "provisioned", "burned_in", "validated", "admitted"]
    assert history[-1]["fingerprint"]["GPU serials"]
    again = onboard(gpuops, "gpu01")
    assert list(passed(again, "gpu01")) == ["facts", "preflight", "second-pass"]


def test_a_sick_card_stops_its_host_with_what_to_do_and_once_it_is_well_the_host_goes_on(gpuops, plant, lab):
    plant("gpu02:gpu3:ecc-uncorrectable=2")
    told = onboard(gpuops, "gpu01", "gpu02", code=1)
    assert passed(told, "gpu01")["admit"] == "passed"
    assert "gpu02 stopped at burn-in: fails ecc-uncorrectable" in told
    cluster.clear(lab.folder, [])
    told = onboard(gpuops, "gpu02")
    assert passed(told, "gpu02")["admit"] == "passed"


def test_a_driver_that_is_another_one_demotes(gpuops, plant):
    onboard(gpuops, "gpu01", "gpu02")
    plant("gpu01:host:version-mismatch")
    told = onboard(gpuops, "gpu01", code=1)
    assert "stopped at facts: no longer the machine that was tested" in told

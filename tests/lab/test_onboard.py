"""``gpuops onboard`` on the lab over real SSH: from a bare host to an admitted one, through every gate."""

import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import yaml
from tests.program import proposed, run_gpuops

from gpuops.content import builtin
from gpuops.lab import cluster

pytestmark = pytest.mark.long

GATES = ("facts", "preflight", "provision", "second-pass", "burn-in", "validate", "pair", "admit")
PLAYBOOK = """\
- name: A node
  hosts: all
  tasks:
    - name: What it is for
      file: {path: /etc/purpose, content: "jobs\\n"}
"""
WORDS = "--playbook p.yml --burn-in 3s --engine nccl-tests --group admitted"
INVENTORY_GROUP = """
admitted:
  hosts:
"""


def program(folder, inventory):
    """Return a function that runs gpuops in a project with these hosts."""
    (folder / "gpuops.yml").write_text(f"inventory: {inventory}\nscheduler: none\n")

    def gpuops(*words, code=0):
        done = run_gpuops(*words, cwd=folder, timeout=300)
        assert done.returncode == code, done
        return done.stdout

    gpuops.inventory = folder / inventory
    return gpuops


def project(folder, lab):
    """Return a function that runs gpuops in a project with the lab's hosts."""
    (folder / "p.yml").write_text(PLAYBOOK)
    (folder / "inventory.yml").write_text((lab.folder / "inventory.yml").read_text() + INVENTORY_GROUP)
    return program(folder, "inventory.yml")


@pytest.fixture
def gpuops(lab, tmp_path):
    """Return a function that runs gpuops in a project whose hosts are untouched."""
    return project(tmp_path, lab)


@pytest.fixture(scope="module")
def first(running_lab, tmp_path_factory):
    """Return a project in which two healthy hosts were onboarded, and the output of that."""
    cluster.clear(running_lab.folder, [])
    folder = tmp_path_factory.mktemp("admitted")
    return SimpleNamespace(folder=folder, told=onboard(project(folder, running_lab), "gpu01", "gpu02"))


@pytest.fixture
def admitted(lab, first, tmp_path):
    """The program in a copy of that project."""
    shutil.copytree(first.folder, tmp_path, dirs_exist_ok=True)
    return program(tmp_path, "inventory.yml")


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """Onboard bare hosts with the built-in playbooks: gpu01, and two hosts with faults.

    The burn-in is skipped, because it takes long with any playbook.
    """
    folder = tmp_path_factory.mktemp("bare")
    lab = folder / ".gpuops" / "lab"
    cluster.up(lab, "hgx-h100", 3, ["gpu02:host:apt-fails=chrony", "gpu03:host:no-repository"], bare=True)
    gpuops = program(folder, ".gpuops/lab/inventory.yml")
    told = gpuops("onboard", "gpu01", "gpu02", "gpu03", "--without", "burn-in", code=1)
    yield SimpleNamespace(gpuops=gpuops, lab=lab, told=told, ran=cluster.audit(lab, "gpu01"))
    cluster.down(lab)


def present(gpuops):
    return {node: event["state"] for node, event in json.loads(gpuops("state", "list", "--json"))["hosts"].items()}


def onboard(gpuops, *nodes, code=0):
    return gpuops("onboard", *nodes, *WORDS.split(), code=code)


def passed(told, node):
    rows = (line.split() for line in told.splitlines() if line.startswith(f"{node} "))
    return {row[1]: " ".join(row[2:]) for row in rows}


def in_one_line(told):
    return " ".join(told.split())


def test_a_bare_host_is_admitted_and_a_second_time_only_looked_at(admitted, first, lab):
    gpuops = admitted
    before = (lab.folder / "inventory.yml").read_text() + INVENTORY_GROUP
    for node in ("gpu01", "gpu02"):
        assert passed(first.told, node) == dict.fromkeys(GATES, "passed"), first.told
    joined = gpuops.inventory.read_text().removeprefix(before).splitlines()
    assert sorted(joined) == ["    gpu01:", "    gpu02:"]
    history = json.loads(gpuops("state", "show", "gpu01", "--json"))["history"]
    assert [event["state"] for event in history] == ["new", "provisioned", "burned_in", "validated", "admitted"]
    assert history[-1]["fingerprint"]["GPU serials"]
    gpuops.inventory.write_text(before)
    again = onboard(gpuops, "gpu01")
    assert list(passed(again, "gpu01")) == ["facts", "preflight", "second-pass"]
    assert gpuops.inventory.read_text() == f"{before}    gpu01:\n"


def test_a_sick_card_stops_its_host_with_what_to_do_and_once_it_is_well_the_host_goes_on(gpuops, plant, lab):
    plant("gpu02:gpu3:ecc-uncorrectable=2")
    told = onboard(gpuops, "gpu01", "gpu02", code=1)
    assert passed(told, "gpu01")["admit"] == "passed"
    assert "gpu02 burn-in stopped: fails ecc-uncorrectable" in in_one_line(told)
    assert told.splitlines()[-2:] == [
        "stopped: gpu02 at burn-in",
        f"to go on from there: gpuops onboard gpu01 gpu02 {WORDS}",
    ]
    cluster.clear(lab.folder, [])
    told = onboard(gpuops, "gpu02")
    assert passed(told, "gpu02")["admit"] == "passed"


def test_who_is_sick_or_another_machine_takes_no_jobs(admitted, plant, lab):
    gpuops = admitted
    gpuops("drain", "gpu01", "gpu02", "--reason", "fan swap", code=3)  # both at once are above the cap
    gpuops("drain", "gpu01", "gpu02", "--reason", "fan swap", "--force")
    plant("gpu01:gpu2:lost", "gpu02:gpu3:ecc-uncorrectable=2")
    gpuops("admit", "gpu01", "gpu02", code=1)
    assert present(gpuops) == {"gpu01": "drained", "gpu02": "drained"}
    told = onboard(gpuops, "gpu02", code=1)
    assert "gpu02 burn-in passed before, on the same machine" in in_one_line(told)
    assert "gpu02 admit stopped: fails ecc-uncorrectable" in in_one_line(told)
    cluster.clear(lab.folder, [])
    gpuops("admit", "gpu01", "gpu02")
    assert present(gpuops) == {"gpu01": "admitted", "gpu02": "admitted"}
    plant("gpu01:host:driver-skew=580.65.06")
    told = onboard(gpuops, "gpu01", code=1)
    assert "facts stopped: no longer the machine that was tested" in in_one_line(told)
    assert present(gpuops)["gpu01"] == "provisioned"


def test_an_admitted_host_that_loses_a_card_is_closed_with_the_words_of_validate(admitted, plant, lab):
    gpuops = admitted
    plant("gpu01:gpu2:lost")
    told = in_one_line(onboard(gpuops, "gpu01", "gpu02", code=1))
    assert "gpu01 facts stopped: gpu-lost: " in told, told
    assert "gpu02 second-pass passed" in told
    assert present(gpuops) == {"gpu01": "drained", "gpu02": "admitted"}
    gpuops("admit", "gpu01", code=1)
    cluster.clear(lab.folder, [])
    gpuops("admit", "gpu01")
    assert present(gpuops)["gpu01"] == "admitted"


def test_two_at_once_do_not_decide_about_one_host(gpuops):
    words = [sys.executable, "-m", "gpuops", "onboard", "gpu01", "--playbook", "p.yml", "--burn-in", "60s",
             "--engine", "nccl-tests"]  # fmt: skip
    with subprocess.Popen(words, cwd=gpuops.inventory.parent, stdout=subprocess.PIPE, text=True) as first:
        try:
            while "second-pass" not in first.stdout.readline():
                assert first.poll() is None
            assert onboard(gpuops, "gpu01", code=4) == ""
            gpuops("drain", "gpu01", "--reason", "fan swap", code=4)
            gpuops("drain", "gpu02", "--reason", "fan swap")
        finally:
            first.terminate()
    assert first.returncode == 130
    gpuops("drain", "gpu01", "--reason", "fan swap")
    assert present(gpuops) == {"gpu01": "provisioned", "gpu02": "new"}


def test_what_cannot_be_read_is_refused_before_any_host_is_asked(gpuops):
    gpuops("onboard", "gpu01", "--playbook", "nobook", code=2)
    gpuops("onboard", "gpu01", "--playbook", "p.yml", "--group", "nobody", code=2)
    assert present(gpuops) == {}


def test_the_built_in_playbooks_take_a_bare_host_to_an_admitted_one_with_a_driver_that_stays(bare):
    gates = passed(bare.told, "gpu01")
    assert {gate for gate, told in gates.items() if told == "passed"} == {*GATES} - {"burn-in", "pair"}
    version = yaml.safe_load((builtin("playbooks") / "stacks" / "current.yml").read_text())["driver"]["version"]
    history = json.loads(bare.gpuops("state", "show", "gpu01", "--json"))["history"]
    assert history[-1]["fingerprint"]["driver"] == [version]
    done = [line for line in bare.ran if line.startswith(("apt-", "reboot")) and " -s " not in line]
    packages = (f"install -- nvidia-driver-pinning-{version}", f"install -- nvidia-open={version}-1")
    wanted = [*packages, "hold -- nvidia-open", "reboot"]
    assert [one for line in done for one in wanted if line.endswith(one)] == wanted


def test_a_bare_host_that_cannot_be_provisioned_stops_at_the_gate_that_tells_why(bare):
    told = in_one_line(bare.told)
    assert "gpu02 provision stopped:" in told
    assert "install chrony: ended with 100: dpkg: error processing archive" in told
    assert "gpu03 preflight stopped:" in told
    assert "a repository does not answer: Failed to fetch http://packages.lab" in told
    assert present(bare.gpuops) == {"gpu01": "admitted", "gpu02": "new", "gpu03": "new"}


def test_what_onboard_and_provision_propose_works_as_it_stands(bare):
    look, again = proposed(bare.told)
    assert look[:2] == ["provision", "onboard"]
    assert again == ["onboard", "gpu01", "gpu02", "gpu03", "--without", "burn-in"]
    assert "install chrony" in bare.gpuops(*look, code=1)
    (bare.gpuops.inventory.parents[2] / "time.yml").write_text(
        "- {hosts: gpu02, tasks: [{package: {names: [chrony]}}]}\n"
    )
    (resume,) = proposed(bare.gpuops("provision", "time.yml", code=1))
    assert "--resume" in resume
    cluster.clear(bare.lab, ["gpu02"])
    assert proposed(bare.gpuops(*resume)) == []

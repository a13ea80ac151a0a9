"""Leases on a real Slurm of four hosts: what is free is held, what others have is not, and all is given back."""

import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile

import pytest

from gpuops.collective.idleness.lease import Lease
from gpuops.collective.idleness.proof import NodeAllocation
from gpuops.collective.idleness.slurm import Slurm
from gpuops.document import Where
from gpuops.inventory import Host
from gpuops.shell import Completed

pytestmark = pytest.mark.usefixtures("slurm")
HOSTS = [Host(name, name, Where("inventory.yml")) for name in ("node2", "node10", "node3", "node11")]
TRIES = "for try in {1..600};"


class Login:
    """The machine where Slurm's controller runs, as a transport."""

    def __init__(self, lab):
        self.lab = lab

    def run(self, asked):
        done = self.lab.run(shlex.join(asked.words))
        return Completed("login", asked, done.returncode, done.stdout, done.stdout)

    def batch(self, asked):
        return [self.run(question) for question in asked]


@pytest.fixture
def job(shell):
    """A job that runs on node3, and is ended."""
    number = shell("sbatch --parsable -w node3 -J train --wrap 'sleep 600'").strip()
    shell(f"{TRIES} do squeue -h -t RUNNING -j {number} | grep -q . && exit; sleep 0.1; done; exit 1")
    yield number
    shell(f"scancel {number}; {TRIES} do squeue -h -j {number} | grep -q . || exit 0; sleep 0.1; done; exit 1")


def lease(lab, way, told):
    folder = pathlib.Path(tempfile.gettempdir(), f"gpuops-leases-{os.getuid()}", "leases")
    return Lease(way, Slurm(Login(lab)), told.append, folder)


def test_jobs_are_told_by_the_hosts_that_they_hold(lab, job):
    found = Slurm(Login(lab)).allocations([*HOSTS, Host("other", "other", Where("inventory.yml"))])
    assert found["node3"] == (NodeAllocation(f"Slurm job {job} train, user root", job),)
    assert found["node2"] == found["node10"] == found["node11"] == ()
    assert found["other"].why == "Slurm has no such node"


def test_a_reservation_keeps_jobs_away_and_leaves_running_ones_alone(lab, shell, job):
    told = []
    with lease(lab, "reservation", told) as held:
        refused = held.take(HOSTS)
        assert list(refused) == ["node3"]
        assert "Requested nodes are busy" in refused["node3"]
        assert shell("scontrol show reservation -o").count("ReservationName=gpuops-") == 3
        blocked = shell("sbatch --parsable -w node2 --wrap true").strip()
        shell("sleep 3")
        assert "PENDING" in shell(f"squeue -h -j {blocked} -o %T")
        with lease(lab, "reservation", told) as second:
            assert "overlaps with another reservation" in second.take(HOSTS[:1])["node2"]
    assert "ReservationName" not in shell("scontrol show reservation -o")
    shell(f"scancel {blocked}")
    assert f"{job} RUNNING" in shell("squeue -h -o '%A %T'")
    assert not told


def test_a_drain_is_known_again_and_others_stay(lab, shell, slurm_states):
    told = []
    shell("scontrol update NodeName=node3 State=DRAIN Reason='fan swap, T812'")
    try:
        with lease(lab, "drain", told) as held:
            assert held.take(HOSTS) == {"node3": "drained in Slurm: fan swap, T812"}
            assert {name for name, (state, _) in slurm_states().items() if state == "drained"} == {
                host.name for host in HOSTS
            }
            shell("scontrol update NodeName=node11 State=DRAIN Reason=smoke")
        assert slurm_states() == {
            "node2": ("idle", "none"),
            "node10": ("idle", "none"),
            "node3": ("drained", "fan swap, T812"),
            "node11": ("drained", "smoke"),
        }
    finally:
        shell("scontrol update NodeName=node3,node11 State=UNDRAIN")
    assert not told


@pytest.fixture
def project(lab, tmp_path):
    """A folder with an inventory of the hosts, and a project that leases them."""
    options = f"-o UserKnownHostsFile={lab.state}/known_hosts"
    login = {"ansible_user": "root", "ansible_ssh_private_key_file": f"{lab.state}/login"}
    hosts = {name: {"ansible_host": address} for name, address in lab.addresses.items()}
    inventory = {"all": {"vars": {**login, "ansible_ssh_common_args": options}, "hosts": hosts}}
    (tmp_path / "inventory.json").write_text(json.dumps(inventory))
    (tmp_path / "gpuops.yml").write_text("inventory: inventory.json\nscheduler: slurm\nlease: reservation\n")
    return tmp_path


def test_a_measurement_that_is_interrupted_gives_its_nodes_back(lab, shell, project):
    words = [sys.executable, "-m", "gpuops", "allreduce", "--engine", "tcp", "--seconds", "30"]
    process = subprocess.Popen(
        lab.words("env", "-C", project, *words),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    shell(f"{TRIES} do scontrol show reservation -o | grep -c gpuops- | grep -qx 4 && exit; sleep 0.1; done; exit 1")
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=40)
    assert "interrupted" in said
    assert "ReservationName" not in shell("scontrol show reservation -o")

"""Each obstacle to an installation is reported, and a second run succeeds once its cause is gone."""

import pytest

pytest.importorskip("asyncssh", reason="the lab's server is the extra gpuops[lab]")

from tests.program import run_gpuops

from gpuops.lab import cluster

PLAYBOOK = """\
- hosts: all
  tasks:
    - name: NCCL
      package: {versions: {libnccl2: "2.29.2-1+cuda13.0"}}
"""
FAULTS = {
    "gpu01": ("dpkg-locked", "Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 4242"),
    "gpu02": ("no-repository", "Could not resolve 'packages.lab'"),
    "gpu03": ("apt-fails=libnccl2", "dpkg: error processing archive /var/cache/apt/archives/libnccl2.deb"),
    "gpu04": ("no-sudo", "cannot lock the node: sudo: a password is required"),
    "gpu05": ("busy", "drain the node first, or use --force"),
    "gpu06": ("refuse", "connection refused"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("failures")
    lab = folder / ".gpuops" / "lab"
    cluster.up(lab, "hgx-h100", 7, [f"{host}:host:{fault}" for host, (fault, _) in FAULTS.items()])
    (folder / "p.yml").write_text(PLAYBOOK)
    yield folder
    cluster.down(lab)


def provision(folder, *words):
    done = run_gpuops("provision", "p.yml", "-i", ".gpuops/lab/inventory.yml", *words, cwd=folder)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout


def test_each_cause_is_told_by_its_node_and_who_has_none_is_served(folder):
    code, told = provision(folder)
    assert code == 1
    blocks = {block.split()[0]: " ".join(block.split()) for block in told.split("\n\n")}
    assert "changed NCCL install libnccl2" in blocks["gpu07"]
    for host, (_, said) in FAULTS.items():
        assert said in blocks[host], host
    assert "needs operator" in blocks["gpu05"]
    assert "unreachable" in blocks["gpu06"]


def test_once_the_causes_are_gone_a_second_run_heals_them_all(folder):
    provision(folder)
    cluster.clear(folder / ".gpuops" / "lab", [])
    code, told = provision(folder)
    assert (code, told.count("install libnccl2")) == (0, 1), told
    assert "7 nodes, 7 steps: 6 changed, 1 ok, 0 failed" in told
    assert provision(folder, "--check")[0] == 0

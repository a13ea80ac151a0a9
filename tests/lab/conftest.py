import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("asyncssh", reason="the lab's server is the extra gpuops[lab]")

from gpuops.lab import cluster


@pytest.fixture(scope="session")
def running_lab(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project") / ".gpuops" / "lab"
    hosts = cluster.up(folder, "hgx-h100", 3, ["gpu03:gpu2:lost"])

    def root(host):
        """The folder with a host's own files."""
        return Path(json.loads((folder / "state.json").read_text())["sandbox"]) / "hosts" / host / "root"

    yield SimpleNamespace(folder=folder, hosts={host.name: host for host in hosts}, root=root)
    cluster.down(folder)


@pytest.fixture
def lab(running_lab):
    """Start three healthy hosts, gpu01 to gpu03."""
    cluster.clear(running_lab.folder, [])
    for file in (running_lab.folder / ".gpuops").glob("state.db*"):  # what other tests saw
        file.unlink()
    return running_lab


@pytest.fixture
def plant(lab):
    """Return a function that injects faults into the running lab."""
    return lambda *faults: cluster.inject(lab.folder, faults)


@pytest.fixture
def ssh_words(lab):
    """Return a function for the words of an ssh command to a host, with strict key checks and no user configuration."""

    def words(host, *more, key=None):
        options = ("BatchMode=yes", "StrictHostKeyChecking=yes", f"UserKnownHostsFile={lab.folder / 'known_hosts'}")
        flags = [flag for option in options for flag in ("-o", option)]
        key = key or lab.folder / "id_ed25519"
        port = str(lab.hosts[host].port)
        return ["ssh", "-F", "none", *flags, "-i", str(key), "-p", port, *more, "lab@127.0.0.1"]

    return words


@pytest.fixture
def ssh(ssh_words):
    """Return a function that runs a command on a host with the system's ssh."""

    def run(host, command, *more, stdin=b"", timeout=20):
        words = [*ssh_words(host, *more), command]
        done = subprocess.run(words, input=stdin, capture_output=True, timeout=timeout, check=False)
        return SimpleNamespace(exit=done.returncode, out=done.stdout, err=done.stderr.decode())

    return run

"""Fabric's program ``fab`` on the lab: a playbook task, facts, and a function of the project."""

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpuops.lab import cluster

FAB = shutil.which("fab", path=f"{sys.prefix}/bin") or shutil.which("fab")
SYSCTL = ("sysctl", "--key", "vm.swappiness", "--value")
FUNCTION = '''
"""A greeting."""

def greet(c, word: str, times: int = 1):
    """Run on the node."""
    for _ in range(times):
        c.run(f"echo {word} >>greetings")
    c.run("test $(wc -l <greetings) -lt 3")
'''


@pytest.fixture(scope="module")
def running_lab(tmp_path_factory):
    """Start a separate lab, because its hosts stay changed."""
    folder = tmp_path_factory.mktemp("project") / ".gpuops" / "lab"
    hosts = cluster.up(folder, "hgx-h100", 3, [])
    yield SimpleNamespace(folder=folder, hosts={host.name: host for host in hosts})
    cluster.down(folder)


@pytest.fixture
def fab(lab, tmp_path):
    """Return a function that runs fab in a project with the lab's inventory and returns its output."""
    (tmp_path / "gpuops.yml").write_text(f"inventory: {lab.folder / 'inventory.yml'}\n")
    (tmp_path / "fabfile.py").write_text("from gpuops.fabfile import namespace\n")
    tasks = tmp_path / "playbooks" / "tasks"
    tasks.mkdir(parents=True)
    for folder in (tmp_path, tasks.parent, tasks):
        folder.chmod(0o755)
    (tasks / "greet.py").write_text(FUNCTION)

    def fab(*words, code=0):
        done = subprocess.run([FAB, *words], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return " ".join((done.stdout + done.stderr).split())

    return fab


def test_task_inspects_changes_and_inspects_again(fab, ssh):
    told = fab("--dry", "-H", "gpu01", *SYSCTL, "7")
    assert "would change sysctl write /etc/sysctl.d/90-gpuops.conf" in told
    assert ssh("gpu01", "sysctl -n vm.swappiness").out == b"60\n"
    told = fab("-H", "gpu01", *SYSCTL, "7")
    assert "vm.swappiness = 7 (was 60)" in told
    assert "1 node, 1 step: 1 changed, 0 ok, 0 failed" in told
    assert ssh("gpu01", "sysctl -n vm.swappiness").out == b"7\n"
    assert "1 node, 1 step: 1 ok, 0 failed" in fab("-H", "gpu01", *SYSCTL, "7")


def test_several_nodes_and_tasks_in_one_line(fab, ssh):
    told = fab(
        "-H",
        "gpu[01-02]",
        *SYSCTL,
        "9",
        "package",
        "--names",
        "pciutils",
        "--names",
        "libnccl2",
        "read",
        "--path",
        "/etc/x",
    )
    assert "2 nodes, 2 steps: 2 changed" in told
    assert "install pciutils" in told
    for host in ("gpu01", "gpu02"):
        assert ssh(host, "sysctl -n vm.swappiness; dpkg-query -W pciutils").out == b"9\npciutils\t1:3.7.0-6\n"
    assert ssh("gpu03", "dpkg-query -W pciutils").exit == 1


def test_facts_are_printed_with_units(fab):
    told = fab("-H", "gpu02", "facts.power", "facts.thermal", "facts.topology", "facts.driver")
    assert told.count("GPU 7 (") == 2
    for words in ("power_draw: 68.57 W", "temperature: 29 °C", "topo:", "nvlink:", "loaded_version: 580.105.08"):
        assert words in told


def test_lost_gpu_is_reported_in_place_of_its_power(fab, plant):
    plant("gpu02:gpu2:lost")
    assert "kind: gpu-lost" in fab("-H", "gpu02", "facts.power")


def test_a_function_of_the_project_is_called_with_the_connection(fab, ssh):
    assert "a function's effect is not known in advance" in fab("--dry", "-H", "gpu03", "greet", "--word", "hi")
    assert ssh("gpu03", "cat greetings").exit == 1
    fab("-H", "gpu03", "greet", "--word", "hi", "--times", "2")
    assert ssh("gpu03", "cat greetings").out == b"hi\nhi\n"
    assert "ended with 1: no output" in fab("-H", "gpu03", "greet", "--word", "hi", code=1)


def test_node_with_a_changed_key_is_sent_nothing(fab, plant, lab):
    plant("gpu01:host:wrong-key")
    before = cluster.audit(lab.folder, "gpu01")
    assert "host key changed" in fab("-H", "gpu01", *SYSCTL, "1", code=3)
    assert "host key changed" in fab("-H", "gpu01", "greet", "--word", "x", code=3)
    assert cluster.audit(lab.folder, "gpu01") == before


def test_without_an_inventory_the_name_is_an_address_and_its_key_must_be_known(fab, lab, tmp_path):
    (tmp_path / "gpuops.yml").unlink()
    port = lab.hosts["gpu01"].port
    told = fab("-H", f"lab@127.0.0.1:{port}", "-i", str(lab.folder / "id_ed25519"), *SYSCTL, "1", code=3)
    assert "host key unknown" in told
    assert f"127.0.0.1:{port}" in told


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("-H", "gpu99", *SYSCTL, "1"), 2, 'no host or group called "gpu99"; did you mean "gpu0'),
        (("-H", "gpu01", "sysctl", "--key", "a"), 2, '"sysctl" needs "value"'),
        (("-H", "gpu01", "user", "--name", "a", "--uid", "x"), 2, "uid is expected"),
        ((*SYSCTL, "1"), 2, "no nodes named; add -H NODE"),
        (("-H", "gpu01", "package", "--versions", "{a: 1"), 2, "--versions: did not find"),
    ],
)
def test_errors_are_one_sentence(fab, words, code, said):
    assert said in fab(*words, code=code)


def test_every_task_is_listed_with_its_options(fab):
    told = fab("--list")
    for name in ("sysctl", "package-hold", "greet", "facts.power", "facts.smi"):
        assert f" {name} " in told
    assert "--allow-downgrade[=STRING]" in fab("--help", "package")


def test_a_clone_has_the_tasks_without_further_ado():
    done = subprocess.run([FAB, "--list"], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert " sysctl " in done.stdout, done

"""Tests for testinfra as users have them, run unchanged over a real sshd: real packages, sockets, files and users."""

import pathlib
import shutil
import socket
import subprocess

import pytest

from gpuops.cluster import Cluster
from gpuops.secret import Secret

SPECIMENS = pathlib.Path(__file__).parents[1] / "specimens" / "testinfra"


@pytest.fixture
def project(tmp_path):
    """Write a project with the specimens, or with one file of tests."""

    def write(text=""):
        folder = tmp_path / "project" / "checks"
        folder.mkdir(parents=True)
        for file in () if text else SPECIMENS.glob("*.py"):
            shutil.copy(file, folder / f"test_{file.name}")
        if text:
            (folder / "test_own.py").write_text(text)
        return folder.parent

    return write


def verdicts_of(folder, *hosts):
    with Cluster.of(hosts, project=folder) as cluster:
        report = cluster.validate(only=["testinfra"], save_run=False)
    return {verdict.check: verdict for verdict in report.hosts[0].verdicts}


def line_of(file, words):
    lines = (SPECIMENS / file).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if words in line)


@pytest.fixture
def listener():
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(("127.0.0.1", 2812))
        except OSError:
            pytest.skip("something else listens on port 2812")
        server.listen()
        yield


def test_tests_of_public_roles_run_as_they_are(sshd, node_of, project, need, listener):
    need("dpkg-query", "ss", "getent")
    verdicts = verdicts_of(project(), node_of(sshd))
    passed = {"access-package", "access-release", "exporter-hosts-file", "exporter-socket"}
    assert {check for check, verdict in verdicts.items() if verdict.status == "pass"} == passed
    service = verdicts.pop("exporter-service")
    assert service.status in ("fail", "unknown")  # testinfra may not know how this machine starts services
    failed = {
        "access-version": ("access.py", 'startswith("0:")', ""),
        "access-files": ("access.py", "host.file(name).exists", "/etc/profile.d/gridenv.sh"),
        "accounts-account": ("accounts.py", "user.exists", "account2"),
        "exporter-binary": ("exporter.py", "binary.is_file", ""),
        "exporter-other-socket": ("exporter.py", "2813", ""),
    }
    assert set(verdicts) == {*passed, *failed}
    for check, (file, words, case) in failed.items():
        (finding,) = verdicts[check].findings
        assert finding.message.startswith(f"checks/test_{file}:{line_of(file, words)}: "), finding
        assert (finding.host, finding.code) == ("n1", case)


def test_they_go_over_the_jump_host_that_the_inventory_names(start_sshd, sshd, node_of, a_host, project, account):
    behind = start_sshd()
    inner = node_of(behind)
    known = pathlib.Path("~/.ssh/known_hosts").expanduser()
    known.write_text(behind.known("127.0.0.1") + sshd.known("127.0.0.2"))
    text = 'def test_way(host):\n    assert host.check_output("echo $SSH_CONNECTION").split()[3] == "%d"\n'
    fields = {"address": inner.address, "port": inner.port, "user": inner.user}
    far = a_host("n1", jump=f"{account.name}@127.0.0.2:{sshd.port}", **fields)
    assert verdicts_of(project(text % behind.port), far)["own-way"].status == "pass"
    assert "Accepted" in sshd.log()


SUDO = """
def test_root(host):
    with host.sudo():
        assert host.user().name == "root"
        assert host.file("/etc/shadow").content_string.startswith("root:")
        with host.sudo("daemon"):
            assert host.check_output("id -un; echo %s", "it's") == "daemon\\nit's"
    assert host.user().name != "root"

def test_other(host):
    with host.sudo("daemon"):
        assert host.check_output("id -un") == "daemon"

def test_without(host):
    assert host.file("/etc/passwd").exists
"""


@pytest.fixture
def allow(account):
    """Writes a rule of sudoers for the account."""
    path = pathlib.Path(f"/etc/sudoers.d/{account.name}")

    def write(rule):
        path.write_text(f"{account.name} {rule}\nDefaults:{account.name} !syslog\n")
        path.chmod(0o440)
        subprocess.run(["visudo", "-cqf", path], check=True)

    yield write
    path.unlink(missing_ok=True)


@pytest.mark.root("set sudo up")
@pytest.mark.parametrize(
    ("rule", "has_password", "statuses"),
    [
        ("ALL=(ALL:ALL) ALL", True, ("pass", "pass", "pass")),
        ("ALL=(ALL:ALL) NOPASSWD: ALL", False, ("pass", "pass", "pass")),
        ("ALL=(daemon) NOPASSWD: /bin/sh", False, ("unknown", "pass", "pass")),
        ("ALL=(ALL:ALL) ALL", False, ("unknown", "unknown", "pass")),
    ],
)
def test_sudo_of_testinfra_is_that_of_gpuops(  # noqa: PLR0917 - it takes the fixtures it needs
    sshd, node_of, project, need, allow, account, rule, has_password, statuses
):
    need("sudo")
    allow(rule)
    password = {"become_password": Secret(account.password)} if has_password else {}
    verdicts = verdicts_of(project(SUDO), node_of(sshd, **password))
    found = tuple(verdicts[f"own-{name}"].status for name in ("root", "other", "without"))
    assert found == statuses, [f.message for v in verdicts.values() for f in v.findings]
    for verdict in verdicts.values():
        assert verdict.status == "pass" or "sudo does not let the login user run /bin/sh as" in verdict.why

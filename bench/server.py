"""One real OpenSSH server on loopback that simulates many hosts: 127.0.1.2, 127.0.1.3, …"""

import contextlib
import getpass
import os
import pathlib
import pwd
import shutil
import socket
import subprocess
import tempfile
import time

USER = "gpuops-bench"
CONFIG = """
Port {port}
ListenAddress 0.0.0.0
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
StrictModes no
UsePAM no
UseDNS no
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 2000
MaxSessions 100
LogLevel ERROR
Subsystem sftp internal-sftp
"""


def address(number):
    return f"127.0.{number // 200 + 1}.{number % 200 + 2}"


class Server:
    """The running server: ``folder`` holds its keys, ``known_hosts`` and one inventory for each tool."""

    def __init__(self, folder, port, user):
        self.folder, self.port, self.user = folder, port, user
        self.key = folder / "client_key"

    def write_inventories(self, count):
        """Host lists for ``count`` hosts: gpuops and Ansible read inventory.yml, pyinfra hosts.py, clush a list."""
        hosts = [address(n) for n in range(count)]
        host_key = (self.folder / "host_key.pub").read_text().split()[:2]
        lines = [f"[{host}]:{self.port} {' '.join(host_key)}" for host in hosts]
        (self.folder / "known_hosts").write_text("\n".join(lines) + "\n")
        rows = "".join(f"    h{n}: {{ansible_host: {host}}}\n" for n, host in enumerate(hosts))
        (self.folder / "inventory.yml").write_text(
            f"all:\n  vars:\n    ansible_port: {self.port}\n    ansible_user: {self.user}\n"
            f"    ansible_ssh_private_key_file: {self.key}\n    ansible_python_interpreter: /usr/bin/python3\n"
            f'    ansible_ssh_common_args: "-o UserKnownHostsFile={self.folder}/known_hosts"\n  hosts:\n{rows}'
        )
        data = {"ssh_port": self.port, "ssh_user": self.user, "ssh_key": str(self.key),
                "ssh_known_hosts_file": str(self.folder / "known_hosts")}  # fmt: skip
        (self.folder / "hosts.py").write_text(f"hosts = {[(host, data) for host in hosts]!r}\n")
        (self.folder / "hosts.txt").write_text("\n".join(hosts) + "\n")
        return hosts


@contextlib.contextmanager
def running():
    """Start a server, and a user with a plain sh to log in as where we are root; leave nothing behind."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gpuops-bench-"))
    folder.chmod(0o755)
    user = _make_user() if os.geteuid() == 0 else getpass.getuser()
    port = _free_port()
    for name in ("host_key", "client_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    shutil.copy(folder / "client_key.pub", folder / "authorized_keys")
    (folder / "sshd_config").write_text(CONFIG.format(port=port, folder=folder))
    pathlib.Path("/run/sshd").mkdir(exist_ok=True)
    sshd = subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", folder / "sshd_config"])
    try:
        _await(port)
        yield Server(folder, port, user)
    finally:
        sshd.terminate()
        sshd.wait()
        shutil.rmtree(folder)
        if user == USER:
            subprocess.run(["pkill", "-u", USER], check=False)
            subprocess.run(["userdel", "-r", USER], check=False, capture_output=True)


def _make_user():
    try:
        pwd.getpwnam(USER)
    except KeyError:
        subprocess.run(["useradd", "-m", "-s", "/bin/sh", USER], check=True)
        subprocess.run(["usermod", "-p", "*", USER], check=True)  # not locked, and no password fits
    return USER


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _await(port):
    for _ in range(100):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            if connection.recv(4) == b"SSH-":
                return
        time.sleep(0.05)
    raise SystemExit("the bench's sshd did not start")

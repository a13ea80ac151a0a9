"""Nodes with systemd, apt, an OpenSSH server and a power switch, on this machine.

Nothing of them is left but the file system that they start with, which is made once: /var/tmp/gpuops-debian12-*.
"""

import contextlib
import functools
import hashlib
import http.server
import json
import os
import pathlib
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import pytest
import testinfra

HERE = pathlib.Path(__file__).parent
APART = "setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --mount-proc".split()
# where systemd has the groups of its units: in a machine's own, or machines would remove those of each other
GROUPS = [pathlib.Path("/sys/fs/cgroup", hierarchy) for hierarchy in ("", "systemd", "unified")]
# how commands begin that change nothing: testinfra's, and those of tasks that only root may ask
LOOKS = ("/bin/sh -c ", "/usr/bin/lspci ", "/usr/bin/stat ", "/usr/bin/sh -c 'for log in ")
# what the console script is
PROGRAM = "from gpuops.cli import main; main()"


@pytest.fixture(scope="session")
def base(need):
    """The file system that every node starts with; it is made once, and kept for the next time."""
    if os.geteuid() != 0:
        pytest.skip("only root can start machines")
    if platform.machine() != "x86_64":
        pytest.skip("the stand-ins for NVIDIA's packages are for x86_64")
    need(*"apt-ftparchive debootstrap dpkg-deb flock gpg ip ssh ssh-keygen systemd-nspawn unshare".split())
    if subprocess.run([*APART, "--net", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("machines need namespaces, which this container may not make")
    recipe = hashlib.sha256((HERE / "base.sh").read_bytes()).hexdigest()[:12]
    folder = pathlib.Path(f"/var/tmp/gpuops-debian12-{recipe}")
    line = '[ -d "$1" ] || exec "${@:2}"'
    words = ["flock", f"{folder}.lock", "bash", "-c", line, "bash", folder, *APART, "bash", HERE / "base.sh", folder]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    return folder


@pytest.fixture(scope="session")
def scratch():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gpuops-real-", dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder)


class Keyring:
    """Keys that sign repositories, by name."""

    def __init__(self, folder):
        folder.mkdir(0o700)
        self.gpg = ["gpg", "--homedir", folder, "--batch", "--quiet", "--passphrase", ""]
        for name in ("lab", "stranger"):
            self.run("--quick-gen-key", f"{name}@example.com", "ed25519", "sign", "never")

    def run(self, *words):
        return subprocess.run([*self.gpg, *words], check=True, capture_output=True, text=True).stdout

    def fingerprint(self, name):
        rows = self.run("--with-colons", "--list-keys", f"{name}@example.com").splitlines()
        return next(row.split(":")[9] for row in rows if row.startswith("fpr"))

    def public(self, name):
        return self.run("--armor", "--export", f"{name}@example.com")


@pytest.fixture(scope="session")
def keyring(scratch):
    ring = Keyring(scratch / "gpg")
    yield ring
    subprocess.run(["gpgconf", "--homedir", scratch / "gpg", "--kill", "all"], check=True)


@pytest.fixture(scope="session")
def mirrors(base, scratch, keyring):
    """All stand-ins, built, in the repositories that offer them."""
    subprocess.run([sys.executable, HERE / "packages.py", scratch / "packages"], check=True)
    (scratch / "mirrors").mkdir()
    return Mirrors(scratch / "mirrors", scratch / "packages", keyring)


@pytest.fixture(scope="session")
def layers(base, scratch):
    """The file systems that a node of some name starts with, the uppermost first."""

    @functools.cache
    def of(name):
        hardware = scratch / f"hardware-{name}"
        subprocess.run([sys.executable, HERE / "hardware.py", hardware, name], check=True)
        return f"{hardware}:{HERE / 'machine'}:{base}"

    return of


class Mirrors:
    """Folders that are laid out like the repositories of Debian and NVIDIA; ``first`` is what a new node finds."""

    def __init__(self, folder, packages, keyring):
        self.folder, self.packages, self.keyring = folder, packages, keyring
        self.first = self.make()

    def make(self, without="*.none", signed_by="lab", key="lab"):
        """A folder of all packages but those ``without``; who signs NVIDIA's, and whose key they offer."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        left_out = set(self.packages.rglob(without))
        for package in set(self.packages.rglob("*.deb")) - left_out:
            place = folder / package.relative_to(self.packages)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.hardlink_to(package)
        self._sign(folder / "debian", "lab")
        for place, key_file in (("debian12/x86_64", "3bf863cc.pub"), ("stable/deb/amd64", "../../../gpgkey")):
            self._sign(folder / place, signed_by)
            (folder / place / key_file).write_text(self.keyring.public(key))
        return folder

    def _sign(self, place, who):
        for name in ("Packages", "Release"):
            words = ["apt-ftparchive", "-o", "APT::FTParchive::Release::Origin=lab", name.lower(), "."]
            (place / name).write_bytes(subprocess.run(words, cwd=place, check=True, stdout=subprocess.PIPE).stdout)
        signer = ("--local-user", f"{who}@example.com", "--clearsign")
        self.keyring.run(*signer, "--output", place / "InRelease", place / "Release")


class Repository:
    """What a web server gives away, at ``folder``: a mirror; `publish` makes another one, as `Mirrors.make` does."""

    def __init__(self, folder, mirrors):
        self.folder, self.mirrors = folder, mirrors
        self.folder.symlink_to(mirrors.first)

    def publish(self, **how):
        mirror = self.mirrors.make(**how)  # younger than the last, which apt wants
        self.folder.unlink()
        self.folder.symlink_to(mirror)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def describe(path):
    if path.is_symlink():
        return f"-> {path.readlink()}"
    return f"{path.stat().st_mode:o} {path.read_bytes().decode(errors='backslashreplace')}"


def wait_until(holds, seconds=20):
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, f"not so after {seconds} s"
        time.sleep(0.05)


def removed(group):
    """Whether a cgroup and those below are gone: what has no process left may go."""
    with contextlib.suppress(OSError):
        for below in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
            below.rmdir()
        group.rmdir()
    return not group.exists()


class Node:
    """A machine of its own, the project from which it is provisioned, and a view of it that is not gpuops'."""

    def __init__(self, folder, layers, number, repository, name):
        self.folder, self.number, self.repository, self.name = folder, number, repository, name
        self.network = f"10.79.{os.getpid() % 256}.{8 * number}"
        self.port = f"gp{os.getpid()}n{number}"
        self.about = self._make_project(repository.mirrors.keyring)
        self.know(self)
        self.groups = [group / self.port for group in GROUPS if (group / "cgroup.procs").exists()]
        for group in self.groups:
            group.mkdir()
        script = HERE / "machine.sh"
        words = [*APART, "--net", "bash", script, layers, folder, name, f"{self.at(2)}/29", *self.groups]
        self.machine = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.machine.stdout.readline() == "ready\n"
        self._plug_in()
        self.seen = testinfra.get_host(
            f"ssh://{name}", ssh_config=str(folder / "ssh_config"), sudo=True, controlpersist=0
        )
        wait_until(self.answers)

    def at(self, number):
        """An address of the node's network: 1 is ours, 2 the node's, 3 the repository's."""
        front, _, last = self.network.rpartition(".")
        return f"{front}.{int(last) + number}"

    def _make_project(self, keyring):
        """Keys and playbooks, and what a bare node has of them; what the inventory says of it."""
        seed, ssh = self.folder / "seed/etc", self.folder / ".ssh"
        for folder in (seed / "ssh", seed / "apt/sources.list.d", seed / "apt/keyrings"):
            folder.mkdir(parents=True)
        ssh.mkdir(0o700)
        for key in (ssh / "id_ed25519", seed / "ssh/host"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        (ssh / "id_ed25519.pub").rename(seed / "ssh/login.pub")
        (seed / "apt/keyrings/debian.asc").write_text(keyring.public("lab"))
        url = f"http://{self.at(3)}:8080"
        (seed / "apt/sources.list.d/debian.sources").write_text(
            f"Types: deb\nURIs: {url}/debian/\nSuites: /\nSigned-By: /etc/apt/keyrings/debian.asc\n"
        )
        (self.folder / "ssh_config").write_text(
            f"Host {self.name}\nHostName {self.at(2)}\nUser ops\nIdentityFile {ssh}/id_ed25519\n"
            f"UserKnownHostsFile {ssh}/known_hosts\nStrictHostKeyChecking yes\nLogLevel ERROR\n"
        )
        shutil.copy(HERE / "node.yml", self.folder)
        mirror = {"url": url, "fingerprint": keyring.fingerprint("lab")}
        login = {"ansible_host": self.at(2), "ansible_user": "ops", "ansible_ssh_private_key_file": f"{ssh}/id_ed25519"}
        stack = {"cuda_repository": mirror, "container_repository": mirror}
        return {**login, "rack": "a", "mirror": mirror, "stack": stack}

    def know(self, *nodes):
        """From now on the project is of these nodes."""
        hosts = {node.name: node.about for node in nodes}
        (self.folder / "inventory.yml").write_text(json.dumps({"all": {"hosts": hosts}}))
        keys = [f"{node.at(2)} {(node.folder / 'seed/etc/ssh/host.pub').read_text()}" for node in nodes]
        (self.folder / ".ssh/known_hosts").write_text("".join(keys))

    def wire(self, other):
        """A network cable from this node to another, beside the one to us."""
        one, two = self.machine.pid, other.machine.pid
        words = f"ip link add wire netns {one} type veth peer name wire netns {two}"
        subprocess.run(words.split(), check=True)
        for node, peer in ((self, other), (other, self)):
            node.ip("link", "set", "wire", "up")
            node.ip("route", "add", peer.at(2), "dev", "wire", "src", node.at(2))

    def _plug_in(self):
        ip = ["ip", "link", "add", self.port, "type", "veth", "peer", "name", "eth0", "netns", str(self.machine.pid)]
        subprocess.run(ip, check=True)
        for number in (1, 3):
            subprocess.run(["ip", "address", "add", f"{self.at(number)}/29", "dev", self.port], check=True)
        self.link("up")
        handler = functools.partial(Quiet, directory=self.repository.folder)
        self.server = http.server.ThreadingHTTPServer((self.at(3), 8080), handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def link(self, state):
        """The node's network cable: up or down."""
        subprocess.run(["ip", "link", "set", self.port, state], check=True)

    def ip(self, *words):
        """Change the node's network."""
        inside = ["nsenter", "--target", str(self.machine.pid), "--net"]
        subprocess.run([*inside, "ip", *words], check=True)

    def cut_power(self):
        """The node dies, and is switched on again."""
        process = self.machine.pid
        for _ in range(3):  # what machine.sh runs in; systemd-nspawn; systemd
            process = int(pathlib.Path(f"/proc/{process}/task/{process}/children").read_text())
        os.kill(process, signal.SIGKILL)

    def answers(self):
        with contextlib.suppress(OSError, RuntimeError), socket.create_connection((self.at(2), 22), timeout=1):
            return self.seen.run("true").rc == 0
        return False

    wait_until = staticmethod(wait_until)

    def playbook(self, steps):
        """A playbook of these steps; its name."""
        (self.folder / "steps.yml").write_text("- hosts: all\n  tasks:\n" + steps)
        return "steps.yml"

    def start(self, *words, verb="provision", program=PROGRAM):
        """Begin to provision the node."""
        return subprocess.Popen(
            [sys.executable, "-c", program, verb, "-i", "inventory.yml", *words],
            cwd=self.folder, env={**os.environ, "HOME": str(self.folder)}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def provision(self, *words, code=0, **how):
        """Provision the node; what was said."""
        return self.finish(self.start(*words, **how), code)

    def finish(self, process, code=0):
        """What was said by the end, with every break as a blank."""
        said, _ = process.communicate(timeout=180)
        assert process.returncode == code, said
        return " ".join(said.split())

    @property
    def boot_id(self):
        return self.seen.file("/proc/sys/kernel/random/boot_id").content_string

    @property
    def disk(self):
        """The node's file system, as whoever holds its disk sees it."""
        return pathlib.Path(f"/proc/{self.machine.pid}/root{self.folder}/disk/root")

    def written(self, *but):
        """All files that differ from a bare node's, with mode and content; without those below ``but``."""
        upper = self.disk.with_name("upper")
        paths = [path for path in upper.rglob("*") if not path.is_dir() or path.is_symlink()]
        return {
            name: describe(path).replace(self.at(3), "REPOSITORY")
            for path in paths
            if not (name := str(path.relative_to(upper))).startswith(but)
        }

    def commands_of_root(self):
        """What sudo noted that somebody did as root, but for what only looks, as we do."""
        log = self.seen.check_output("journalctl --identifier=sudo --output=cat --no-pager")
        commands = [line.partition("COMMAND=")[2] for line in log.splitlines() if "COMMAND=" in line]
        return [command for command in commands if not command.startswith(LOOKS)]

    @property
    def last_run(self):
        return max(path.name for path in (self.folder / ".gpuops/runs").iterdir())

    @property
    def journal(self):
        """The lines of the last run's journal."""
        text = (self.folder / ".gpuops/runs" / self.last_run / "journal.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def end(self):
        self.machine.kill()
        self.machine.communicate()
        self.server.shutdown()
        self.server.server_close()
        wait_until(lambda: not pathlib.Path(f"/sys/class/net/{self.port}").exists())
        wait_until(lambda: all(map(removed, self.groups)))


@pytest.fixture(scope="session")
def new_node(layers, scratch, mirrors):
    """A context in which there is a bare node; nodes with different numbers may be there at once."""

    @contextlib.contextmanager
    def make(number=1, name="gpu01"):
        folder = pathlib.Path(tempfile.mkdtemp(dir=scratch))
        node = Node(folder, layers(name), number, Repository(folder / "repository", mirrors), name)
        try:
            yield node
        finally:
            node.end()

    return make


@pytest.fixture
def node(new_node):
    with new_node() as bare:
        yield bare

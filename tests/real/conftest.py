import contextlib
import fcntl
import getpass
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

import pytest

from gpuops.transport.connections import Connections

USER = f"gpuops-test{os.environ.get('PYTEST_XDIST_WORKER', '')}"  # tests beside these have another one
PASSWORD = "Xyzzy-plugh-2718"
SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


HERE = pathlib.Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("real")
    items.sort(key=lambda item: not item.path.is_relative_to(HERE / "launch"))  # what takes longest goes first


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Tests of one folder share its machines: they go to one worker."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFolder(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return nodeid.partition("::")[0].removeprefix("tests/real/").partition("/")[0]

    return ByFolder(config, log)


@dataclass
class Account:
    """Who logs in: a user made for the tests where root runs them, else whoever runs them."""

    name: str
    password: str | None
    uid: int


@pytest.fixture(scope="session")
def account():
    if os.geteuid() != 0:
        yield Account(getpass.getuser(), None, os.geteuid())
        return
    with one_at_a_time("users"):
        subprocess.run(["userdel", "-rf", USER], capture_output=True, check=False)
        subprocess.run(["useradd", "--create-home", "--shell", "/bin/sh", USER], check=True)
        subprocess.run(["chpasswd"], input=f"{USER}:{PASSWORD}\n", text=True, check=True)
    yield Account(USER, PASSWORD, pwd.getpwnam(USER).pw_uid)
    with one_at_a_time("users"):
        subprocess.run(["userdel", "-rf", USER], capture_output=True, check=False)


@contextlib.contextmanager
def one_at_a_time(what):
    """Tests in another process wait here."""
    with pathlib.Path(tempfile.gettempdir(), f"gpuops-tests-{what}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def keys():
    """A folder of key pairs that every user may read the public half of."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gpuops-keys-"))
    folder.chmod(0o755)
    for name, type_, phrase in [
        ("login", "ed25519", ""),
        ("rsa", "rsa", ""),
        ("ecdsa", "ecdsa", ""),
        ("encrypted", "ed25519", "a phrase"),
        *((f"wrong{n}", "ed25519", "") for n in range(8)),
        *((f"host_{t}", t, "") for t in ("ed25519", "ecdsa", "rsa")),
        ("other_ed25519", "ed25519", ""),
    ]:
        subprocess.run(["ssh-keygen", "-q", "-t", type_, "-N", phrase, "-f", folder / name], check=True)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def port():
    """A port of loopback at which nobody listens yet."""
    return free_port()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class Sshd:
    """One running sshd, which answers on every address 127.x.y.z."""

    port: int
    folder: pathlib.Path
    user: str
    keys: pathlib.Path
    host_keys: tuple[str, ...]
    process: subprocess.Popen = field(repr=False)

    def known(self, *addresses, keys=None):
        """known_hosts lines for ``addresses``."""
        return "".join(
            f"[{address}]:{self.port} {' '.join((self.keys / f'{key}.pub').read_text().split()[:2])}\n"
            for address in addresses
            for key in keys or self.host_keys
        )

    def log(self):
        return (self.folder / "log").read_text(errors="replace")


@pytest.fixture(scope="session")
def start_sshd(account, keys):
    """Starts OpenSSH servers; ``options`` are lines of sshd_config."""
    if not os.access(SSHD, os.X_OK):
        pytest.skip("there is no sshd on this machine")
    if os.geteuid() == 0:
        pathlib.Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    with contextlib.ExitStack() as at_the_end:

        def start(*options, host_keys=("host_ed25519", "host_ecdsa", "host_rsa")):
            folder = pathlib.Path(tempfile.mkdtemp(prefix="gpuops-sshd-"))
            at_the_end.callback(shutil.rmtree, folder)
            folder.chmod(0o755)
            names = ("login", "rsa", "ecdsa", "encrypted")
            (folder / "authorized").write_text("".join((keys / f"{name}.pub").read_text() for name in names))
            (folder / "authorized").chmod(0o644)
            port = free_port()
            lines = [
                *options,
                f"Port {port}",
                "ListenAddress 0.0.0.0",
                f"AllowUsers {account.name}@127.*",
                *(f"HostKey {keys}/{key}" for key in host_keys),
                f"AuthorizedKeysFile {folder}/authorized",
                "StrictModes no",
                "UsePAM no",
                "KbdInteractiveAuthentication no",
                *(["MaxStartups 300"] if "MaxStartups" not in "".join(options) else []),  # here the last one counts
                "LogLevel DEBUG1",
                "PidFile none",
                "UseDNS no",
                "PrintMotd no",
                "Subsystem sftp internal-sftp",
            ]
            (folder / "config").write_text("\n".join(lines) + "\n")
            process = subprocess.Popen([SSHD, "-D", "-f", folder / "config", "-E", folder / "log"])
            at_the_end.callback(process.wait)
            at_the_end.callback(process.terminate)
            wait_for(port)
            return Sshd(port, folder, account.name, keys, host_keys, process)

        yield start


def wait_for(port):
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise AssertionError("the server did not start")


@pytest.fixture(scope="session")
def sshd(start_sshd):
    return start_sshd()


@pytest.fixture
def trusted(home, keys):
    """Writes ~/.ssh/known_hosts, and puts the login key where it is found by default."""

    def write(text):
        (home / ".ssh" / "known_hosts").write_text(text)
        shutil.copy(keys / "login", home / ".ssh" / "id_ed25519")

    return write


@pytest.fixture
def node_of(a_host, trusted, account):
    """A host on a server, whose keys are recorded."""

    def make(server, address="127.0.0.1", name="n1", **fields):
        trusted(server.known(address))
        return a_host(name, address=address, **{"port": server.port, "user": account.name, **fields})

    return make


@pytest.fixture
def connect():
    """Opens transports, and hangs up at the end."""
    made = []

    def open_one(host, connect_seconds=10.0):
        made.append(Connections(connect_seconds))
        return made[-1].group().open(host)

    yield open_one
    for connections in made:
        connections.close()


@pytest.fixture
def processes(account):
    """Lists the arguments of what runs as the account that logs in, less what sshd itself runs."""

    def listing():
        words = ["ps", "-u", str(account.uid), "-o", "stat=,args="]
        said = subprocess.run(words, capture_output=True, text=True, check=False).stdout
        rows = [line.split(maxsplit=1) for line in said.splitlines()]
        return [args for state, args in rows if state[0] != "Z" and not args.startswith(("sshd", "ps "))]

    return listing


PATH = f"{pathlib.Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = {
    "PATH": PATH,
    "HOME": "/root",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "TORCH_CPP_LOG_LEVEL": "ERROR",  # that addresses have no names
}
"""What every login finds on every host of a network."""
NETWORK = HERE / "network"


@pytest.fixture(scope="session")
def need():
    """Skips where a program is missing."""

    def look(*tools):
        missing = [tool for tool in tools if shutil.which(tool, path=PATH) is None]
        if missing:
            pytest.skip(f"there is no {', '.join(missing)} on this machine")

    return look


@dataclass(frozen=True)
class Network:
    """Running hosts by name, with their addresses; ``state`` is a folder that all of them see."""

    state: pathlib.Path
    switch: int
    addresses: dict

    def words(self, *command):
        """The words that run a command where their network is, apart from any host."""
        return ["nsenter", "--target", str(self.switch), "--net", "--uts", "--mount", "--pid", *map(str, command)]

    def run(self, command, folder="/", host=None, seconds=90):
        """Runs a command line on a host, or on another machine of their network; its output is one text."""
        line = f"cd {folder} && {command}"
        words = ["timeout", "--kill-after=5", str(seconds), *(["ssh", host, line] if host else ["bash", "-c", line])]
        return subprocess.run(
            self.words(*words),
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )


def write_state(state, addresses):
    for key in ("login", "host"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", state / key], check=True)
    (state / "tmp").mkdir()
    login = next(iter(addresses.values())).rpartition(".")[0] + ".254"
    hosts = [f"{address} {name}" for name, address in addresses.items()]
    (state / "hosts").write_text("\n".join(["127.0.0.1 localhost", f"{login} login", *hosts]) + "\n")
    public = " ".join((state / "host.pub").read_text().split()[:2])
    (state / "known_hosts").write_text("".join(f"{n},{a} {public}\n" for n, a in addresses.items()))
    (state / "ssh_config").write_text(
        f"IdentityFile {state}/login\nIdentitiesOnly yes\nUserKnownHostsFile {state}/known_hosts\n"
        "StrictHostKeyChecking yes\nConnectTimeout 5\nLogLevel ERROR\n"
    )
    settings = " ".join(f"{name}={value}" for name, value in ENVIRONMENT.items() if name != "HOME")
    (state / "sshd_config").write_text(
        f"HostKey {state}/host\nAuthorizedKeysFile {state}/login.pub\nStrictModes no\nUsePAM no\nUseDNS no\n"
        f"PidFile none\nMaxStartups 100\nPrintMotd no\nPermitRootLogin prohibit-password\nSetEnv {settings}\n"
    )


def children(process):
    """What unshare started: the first process of its namespaces, with which all others end."""
    path = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


def running(process, state, addresses):
    """The network, when every host lets one in."""
    for _ in range(100):
        assert process.poll() is None, (state / "log").read_text()
        if children(process):
            network = Network(state, children(process)[0], addresses)
            if all(network.run("true", host=host).returncode == 0 for host in addresses):
                return network
        time.sleep(0.1)
    raise AssertionError((state / "log").read_text())


@pytest.fixture(scope="session")
def start_network(need):
    """Starts hosts on a network of their own; it and all that runs on them end with the tests.

    Every host has its network, host name, processes, /tmp, /run and sshd; the rest of this machine it shares, as over
    NFS. ``shared`` are folders that are seen on every host even if they lie in /tmp.
    """
    if os.geteuid() != 0:
        pytest.skip("only root can make network namespaces")
    need(*"ip nsenter unshare setpriv ssh ssh-keygen sshd".split())
    with contextlib.ExitStack() as at_the_end:

        def start(addresses, shared=()):
            state = pathlib.Path(tempfile.mkdtemp(prefix="gpuops-network-", dir="/var/tmp"))
            at_the_end.callback(shutil.rmtree, state)
            write_state(state, addresses)
            apart = "unshare --net --uts --mount --pid --fork --kill-child --mount-proc".split()
            hosts = [f"{name}={address}" for name, address in addresses.items()]
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *apart, "bash", NETWORK / "switch.sh", state, *hosts],
                env={**ENVIRONMENT, "SHARED": " ".join(map(str, (*shared, sys.prefix, sys.base_prefix)))},
                stdin=subprocess.DEVNULL,
                stdout=(state / "log").open("w"),
                stderr=subprocess.STDOUT,
            )
            at_the_end.callback(process.wait)
            at_the_end.callback(lambda: [os.kill(pid, signal.SIGKILL) for pid in children(process)])
            return running(process, state, addresses)

        yield start

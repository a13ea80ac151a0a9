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
from dataclasses import dataclass, field

import pytest

from gpuops.transport.reach import Reach

USER = "gpuops-test"
PASSWORD = "Xyzzy-plugh-2718"
SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


def pytest_collection_modifyitems(items):
    for item in items:
        if pathlib.Path(__file__).parent in item.path.parents:
            item.add_marker("real")


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
    subprocess.run(["userdel", "-rf", USER], capture_output=True, check=False)
    subprocess.run(["useradd", "--create-home", "--shell", "/bin/sh", USER], check=True)
    subprocess.run(["chpasswd"], input=f"{USER}:{PASSWORD}\n", text=True, check=True)
    yield Account(USER, PASSWORD, pwd.getpwnam(USER).pw_uid)
    subprocess.run(["userdel", "-rf", USER], capture_output=True, check=False)


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
    opened = []

    def open_one(host, connect_seconds=10.0):
        opened.append(Reach(connect_seconds)(host))
        return opened[-1]

    yield open_one
    for transport in opened:
        transport.close()


@pytest.fixture
def processes(account):
    """Lists the arguments of what runs as the account that logs in, less what sshd itself runs."""

    def listing():
        words = ["ps", "-u", str(account.uid), "-o", "stat=,args="]
        said = subprocess.run(words, capture_output=True, text=True, check=False).stdout
        rows = [line.split(maxsplit=1) for line in said.splitlines()]
        return [args for state, args in rows if state[0] != "Z" and not args.startswith(("sshd", "ps "))]

    return listing

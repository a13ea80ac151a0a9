"""Four hosts on a network of their own, and jobs that are launched on them from rendered files.

Every host has its network, host name, processes, /tmp, /run and sshd; the rest of this machine it shares, as over NFS.
"""

import importlib.util
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuops.layout import parse_layout
from gpuops.placement import GpuShape, NodeShape, place
from gpuops.render import Job, environment_of, find_target, render, start_command, write

HERE = Path(__file__).parent
ADDRESSES = {"node2": "10.77.0.11", "node10": "10.77.0.12", "node3": "10.77.0.13", "node11": "10.77.0.14"}
"""In the order of ranks, which the leaves below make another one than that of the names."""
PATH = f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = {
    "PATH": PATH,
    "HOME": "/root",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "TORCH_CPP_LOG_LEVEL": "ERROR",  # that addresses have no names
}
"""What every login finds on every host."""
TOOLS = "ip nsenter unshare setpriv ssh ssh-keygen sshd".split()
GPUS = {(0, 1): "NV18", (1, 0): "NV18"}


def shape(name, address):
    gpus = (
        GpuShape(n, f"GPU-{name}-{n}", f"0000:{n:02x}:00.0", numa=None, nic=f"mlx5_{n}", clique=0) for n in range(2)
    )
    leaf = "L0" if name in {"node2", "node10"} else "L1"
    return NodeShape(name, address, tuple(gpus), (leaf,), None, name, GPUS)


SHAPES = [shape(name, address) for name, address in sorted(ADDRESSES.items())]


@dataclass(frozen=True)
class Lab:
    """The running hosts; ``state`` is a folder that all of them see."""

    state: Path
    switch: int

    def run(self, command, folder="/", host=None):
        """Runs a command line on a host, or on another machine of their network; its output is one text."""
        line = f"cd {folder} && {command}"
        words = ["timeout", "--kill-after=5", "90", *(["ssh", host, line] if host else ["bash", "-c", line])]
        return subprocess.run(
            ["nsenter", "--target", str(self.switch), "--net", "--uts", "--mount", "--pid", *words],
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )


def need(*tools):
    """Skips where a program is missing."""
    missing = [tool for tool in tools if shutil.which(tool, path=PATH) is None]
    if missing:
        pytest.skip(f"there is no {', '.join(missing)} on this machine")


def write_state(state):
    for key in ("login", "host"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", state / key], check=True)
    (state / "tmp").mkdir()
    hosts = [f"{address} {name}" for name, address in ADDRESSES.items()]
    (state / "hosts").write_text("\n".join(["127.0.0.1 localhost", "10.77.0.254 login", *hosts]) + "\n")
    public = " ".join((state / "host.pub").read_text().split()[:2])
    (state / "known_hosts").write_text("".join(f"{n},{a} {public}\n" for n, a in ADDRESSES.items()))
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
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


def running(process, state):
    """The lab, when every host lets one in."""
    for _ in range(100):
        assert process.poll() is None, (state / "log").read_text()
        if children(process):
            lab = Lab(state, children(process)[0])
            if all(lab.run("true", host=host).returncode == 0 for host in ADDRESSES):
                return lab
        time.sleep(0.1)
    raise AssertionError((state / "log").read_text())


@pytest.fixture(scope="session")
def lab():
    """Four hosts; what is started on them ends with them."""
    if os.geteuid() != 0:
        pytest.skip("only root can make network namespaces")
    need(*TOOLS)
    if importlib.util.find_spec("torch") is None:
        pytest.skip("there is no torch here, which is the extra gpuops[launch]")
    state = Path(tempfile.mkdtemp(prefix="gpuops-launch-", dir="/var/tmp"))
    write_state(state)
    apart = "unshare --net --uts --mount --pid --fork --kill-child --mount-proc".split()
    hosts = [f"{name}={address}" for name, address in ADDRESSES.items()]
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *apart, "bash", HERE / "switch.sh", state, *hosts],  # it ends with the tests
        env={**ENVIRONMENT, "SHARED": f"{HERE} {sys.prefix} {sys.base_prefix}"},
        stdin=subprocess.DEVNULL,
        stdout=(state / "log").open("w"),
        stderr=subprocess.STDOUT,
    )
    try:
        yield running(process, state)
    finally:
        for pid in children(process):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(state)


@pytest.fixture(scope="session")
def slurm(lab):
    """A Slurm of the four hosts."""
    need("slurmctld", "slurmd", "munged", "sbatch")
    key = lab.state / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    for host in (None, *ADDRESSES):
        done = lab.run(f"bash {HERE}/slurm.sh {'slurmd' if host else 'slurmctld'} {key}", host=host)
        assert done.returncode == 0, done.stdout
    idle = lab.run('for try in {1..100}; do [ "$(sinfo -h -t idle -o %D)" = 4 ] && exit; sleep 0.1; done; exit 1')
    assert idle.returncode == 0, lab.run("sinfo -R; cat /run/slurmctld.log").stdout


@pytest.fixture
def launch(lab):
    """Renders a target, starts it with its own command or another, and returns the plan and what every rank found."""

    def start(target_name, layout="dp=2,pp=2,tp=2", *, needs=(), host=None, command=None):
        need(*needs)
        target = find_target(target_name)
        placement = place(parse_layout(layout), SHAPES)
        folder = Path(tempfile.mkdtemp(prefix=f"{target_name}-", dir=lab.state))
        found = folder / "found"
        found.mkdir()
        env = environment_of(placement, target.engine)
        job = Job(str(HERE / "dist_check.py"), ("--plan", str(folder / "plan.json"), "--found", str(found)), env=env)
        plan = {**placement.to_document(), "env": {variable.name: variable.value for variable in env}}
        (folder / "plan.json").write_text(json.dumps(plan))
        write(render(target, placement, job), folder)
        done = lab.run(command or start_command(target, placement, job), folder, host)
        assert done.returncode == 0, done.stdout
        return plan, {int(path.stem): json.loads(path.read_text()) for path in found.iterdir()}

    return start

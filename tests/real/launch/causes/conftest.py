"""Three hosts with a Python environment, limits and names of their own, and a job of one rank on each."""

import importlib.util
import json
import shutil
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from tests.real.launch.causes.carrying_out import carry_out

ADDRESSES = {"n1": "10.79.0.11", "n2": "10.79.0.12", "n3": "10.79.0.13"}
HERE = Path(__file__).parent
JOB = "/run/job"
"""The directory of the job: each host has its own /run."""
ENVIRONMENT = "/run/env"
PORT = 29500
SSHD_PORT = 2222


def write_wheels(folder):
    """Two wheels called torch for the hosts' own pip: one is the torch of these tests, one is older and no use."""
    folder.mkdir()
    site = {"torch_of_the_tests.pth": f"{sysconfig.get_path('purelib')}\n"}
    stub = {"torch/__init__.py": "__version__ = '2.12.1'\n\nclass version:\n    cuda = None\n"}
    for version, files in {torch_version(): site, "2.12.1": stub}.items():
        info = f"torch-{version}.dist-info"
        own = {
            **files,
            f"{info}/entry_points.txt": "[console_scripts]\ntorchrun = torch.distributed.run:main\n",
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        record = "".join(f"{name},,\n" for name in (*own, f"{info}/RECORD"))
        with zipfile.ZipFile(folder / f"torch-{version}-py3-none-any.whl", "w") as wheel:
            for name, text in {**own, f"{info}/RECORD": record}.items():
                wheel.writestr(name, text)


def torch_version():
    import torch

    return torch.__version__.partition("+")[0]


class Hosts:
    """The hosts, and the machine beside them on which gpuops runs; ``state`` is a folder that all of them see."""

    def __init__(self, network):
        self.network = network
        self.state = network.state
        self.inventory = self.state / "inventory.json"
        self.pip_settings = f"export PATH={ENVIRONMENT}/bin:$PATH PIP_NO_INDEX=1 PIP_FIND_LINKS={self.state}/wheels;"

    def run(self, command, host=None, *, check=True):
        """What a command line prints on ``host``, or on the machine beside the hosts."""
        if host:
            command = f"ssh -F {self.state}/ssh_config -p 22 {host} {quoted(command)}"
        done = self.network.run(command)
        assert not check or done.returncode == 0, f"{host}: {command}\n{done.stdout}"
        return done.stdout

    def gpuops(self, words, folder="/run"):
        """The exit code of gpuops and its JSON document."""
        done = self.network.run(f"{sys.executable} -m gpuops {words} 2>{self.state}/stderr", folder)
        assert done.stdout.startswith("{"), done.stdout + (self.state / "stderr").read_text()
        return done.returncode, json.loads(done.stdout)

    def copy(self, path, hosts=tuple(ADDRESSES)):
        """Copy a file or directory of the machine beside the hosts to the same place on them."""
        for host in hosts:
            self.run(f"tar -C / -cf - {path[1:]} | ssh -F {self.state}/ssh_config -p 22 {host} tar -C / -xf -")


def quoted(command):
    return "'" + command.replace("'", "'\\''") + "'"


@pytest.fixture(scope="session")
def hosts(start_network, need):
    """Hosts whose sshd at `SSHD_PORT` logs in as on a real node: with PAM's limits and the user's own keys."""
    need("nft")
    if importlib.util.find_spec("torch") is None:
        pytest.skip("there is no torch here, which is the extra gpuops[launch]")
    hosts = Hosts(start_network(ADDRESSES))
    write_wheels(hosts.state / "wheels")
    write_settings(hosts)
    for path in (HERE / "host.sh", HERE / "machine.sh"):
        shutil.copy(path, hosts.state)
    hosts.run(f"bash {hosts.state}/machine.sh {hosts.state} {' '.join(ADDRESSES)}")
    for host in ADDRESSES:
        hosts.run(f"bash {hosts.state}/host.sh {hosts.state} {sys.executable} {torch_version()}", host)
    return hosts


def write_settings(hosts):
    path = f"{ENVIRONMENT}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    wheels = f"PIP_NO_INDEX=1 PIP_FIND_LINKS={hosts.state}/wheels PIP_DISABLE_PIP_VERSION_CHECK=1"
    settings = f"PATH={path} {wheels} TORCH_CPP_LOG_LEVEL=ERROR"
    (hosts.state / "user_sshd_config").write_text(
        f"Port {SSHD_PORT}\nHostKey {hosts.state}/host\nStrictModes no\nUsePAM yes\nUseDNS no\n"
        "PidFile /run/user_sshd.pid\nAuthorizedKeysFile .ssh/authorized_keys\nMaxStartups 100\nPrintMotd no\n"
        f"SetEnv {settings}\n"
    )
    public = " ".join((hosts.state / "host.pub").read_text().split()[:2])
    lines = (f"[{place}]:{SSHD_PORT} {public}\n" for pair in ADDRESSES.items() for place in pair)
    (hosts.state / "user_known_hosts").write_text("".join(lines))
    common = {
        "ansible_user": "root",
        "ansible_port": SSHD_PORT,
        "ansible_ssh_private_key_file": f"{hosts.state}/login",
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={hosts.state}/user_known_hosts",
    }
    inventory = {name: {"ansible_host": address} for name, address in ADDRESSES.items()}
    hosts.inventory.write_text(json.dumps({"all": {"vars": common, "hosts": inventory}}))


class Job:
    """A job that gpuops renders for torchrun and starts; ``options`` are those of gpuops launch."""

    def __init__(self, hosts):
        self.hosts = hosts
        self.options = []
        self.hides_gpus = True
        self.nodes = "n[1-3]:1"

    def render(self, options="", nodes=""):
        """Write the files of the job, and copy them to every host."""
        self.nodes = nodes or self.nodes
        options = options if "--port" in options else f"{options} --port {PORT}"
        words = f"render -i {self.hosts.inventory} -t torchrun {self.nodes} {options} -o {JOB} -- train.py"
        self.hosts.run(f"rm -rf {JOB}; mkdir {JOB}; cp {HERE}/reducing.py {JOB}/train.py")
        self.hosts.run(f"{sys.executable} -m gpuops {words}")
        if self.hides_gpus:
            self.hosts.run(f"sed -i 's/^export CUDA_VISIBLE_DEVICES=.*/export CUDA_VISIBLE_DEVICES=/' {JOB}/*.sh")
        self.hosts.copy(JOB)

    def launch(self):
        """Run gpuops launch; its exit code and document."""
        words = f"launch {JOB} -i {self.hosts.inventory} --json --grace 1 {' '.join(self.options)}"
        return self.hosts.gpuops(words)

    def filled(self, text):
        """Return a text of the table with what only this machine knows."""
        import torch

        values = {"state": self.hosts.state, "torch": torch_version(), "full": torch.__version__}
        for name, value in values.items():
            text = text.replace(f"{{{name}}}", str(value))
        return text

    def run_lines(self, lines):
        """Run a command line on each host, or beside them."""
        for host, line in lines.items():
            self.hosts.run(self.filled(line), host, check=False)

    def carry_out(self, cause):
        carry_out(cause["fix"], cause["nodes"], self)


@pytest.fixture
def job(hosts):
    return Job(hosts)

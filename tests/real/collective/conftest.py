"""Eight hosts whose links are shaped, so that the network and not this machine's cores is what is measured."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
DRIVE = HERE / "drive.py"
BUSY_BYTES = 4 << 20
ADDRESSES = {f"n{number}": f"10.78.0.{10 + number}" for number in range(1, 9)}


class Links:
    """The hosts with their links, each shaped in both directions by a token bucket, and gpuops beside them."""

    def __init__(self, network, folder):
        self.network = network
        self.folder = folder

    def inventory(self, *names):
        """An inventory of all hosts, or of those named."""
        options = f"-o UserKnownHostsFile={self.network.state}/known_hosts"
        common = {"ansible_user": "root", "ansible_ssh_private_key_file": f"{self.network.state}/login"}
        hosts = {name: {"ansible_host": ADDRESSES[name]} for name in names or ADDRESSES}
        path = self.folder / "inventory.yml"
        path.write_text(json.dumps({"all": {"vars": {**common, "ansible_ssh_common_args": options}, "hosts": hosts}}))
        return path

    def shape(self, mbit, **slow):
        for name in ADDRESSES:
            for place in (f"ip netns exec {name} tc qdisc replace dev eth0", f"tc qdisc replace dev port-{name}"):
                self.run(f"{place} root tbf rate {slow.get(name, mbit)}mbit burst 128k latency 50ms")

    def run(self, command):
        done = self.network.run(command)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def start(self, *words):
        """A program beside the hosts, on the same network."""
        return subprocess.Popen(
            self.network.words(sys.executable, *words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def interrupt(self, program):
        """Ctrl-C for what `start` gave: for the program itself, not for what brought it there."""
        children = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text()
        for pid in children.split():
            os.kill(int(pid), signal.SIGINT)

    def stop_worker(self, name):
        """Stops what measures on a host, which is the youngest of our processes there."""
        self.run(f"ssh {name} pkill -STOP --newest --full '[M]ARK=sys'")

    def kill_worker(self, name):
        """Kills what measures on a host."""
        self.run(f"ssh {name} pkill -KILL --newest --full '[M]ARK=sys'")

    def worker_port(self, name):
        """The port on which what measures on a host is called."""
        lines = self.run(f"ip netns exec {name} ss -Hltn").splitlines()
        ports = {int(line.split()[3].rpartition(":")[2]) for line in lines} - {22}
        return max(ports)

    def processes(self):
        """What runs on the hosts for gpuops: every process that has the mark of ours in its arguments."""
        return [line for line in self.run("ps -e -o args").splitlines() if "MARK=sys" in line]

    def are_left_alone(self, seconds=5):
        """Whether nothing of gpuops is on any host, ``seconds`` from now at the latest."""
        ends = time.monotonic() + seconds
        while self.processes() and time.monotonic() < ends:
            time.sleep(0.1)
        return not self.processes()

    def wait_until_busy(self, process, name):
        """Waits until ``name`` is being measured."""
        enough = self.sent_bytes(name) + BUSY_BYTES
        while self.sent_bytes(name) < enough:
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)

    def filter(self, name, *rules):
        """Rules of a firewall on a host, for what comes in; without rules, there is none."""
        own = f"ip netns exec {name} nft"
        self.run(f"{own} flush ruleset")
        if rules:
            chain = "\n".join(("type filter hook input priority 0;", *rules))
            self.run(f"{own} 'table inet t {{\nchain i {{\n{chain}\n}}\n}}'")

    def report(self, process):
        """The JSON document of ``gpuops allreduce``."""
        out, err = process.communicate(timeout=300)
        assert out, err
        return json.loads(out)

    def accused(self, told):
        """The nodes that are blamed, and of what."""
        return {part["part"].partition(":")[0]: part["kind"] for part in told["accused"]}

    def sent_bytes(self, name):
        """What went to a host since its link exists."""
        return json.loads(self.run(f"ip -s -j link show port-{name}"))[0]["stats64"]["tx"]["bytes"]


@pytest.fixture(scope="session")
def network(start_network, need):
    need("tc")
    return start_network(ADDRESSES)


@pytest.fixture
def links(network, tmp_path):
    """All links up, at 200 Mbit/s."""
    links = Links(network, tmp_path)
    links.shape(200)
    yield links
    for name in ADDRESSES:
        links.run(f"ip link set port-{name} up; ip -n {name} link set eth0 up")


@pytest.fixture
def allreduce(links):
    """Starts the verb on all hosts, or on those named, and ends it."""
    started = []

    def start(*more, on=()):
        words = ("-m", "gpuops", "allreduce", "-i", links.inventory(*on), "--engine", "tcp", "--json", *more)
        started.append(links.start(*words))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


class Drive:
    """Starts rounds of pairs by the tcp engine alone, and reads what it says."""

    def __init__(self, links):
        self.links = links
        self.started = []
        self.seen = []

    def __call__(self, rounds, seconds, *names):
        self.started.append(self.links.start(DRIVE, self.links.inventory(*names), rounds, seconds))
        assert json.loads(self.started[-1].stdout.readline()) == {"lost": {}}
        return self.started[-1]

    def wait_for_round(self, process):
        """Waits until a round has begun and is being measured."""
        while "round" not in (line := json.loads(process.stdout.readline())):
            self.seen.append(line)
        time.sleep(1)

    def figures(self, process):
        """The results of all rounds."""
        late = threading.Timer(90, os.killpg, (process.pid, signal.SIGKILL))
        late.start()
        self.seen += map(json.loads, process.stdout)  # "communicate" would lose what was read ahead with a line
        late.cancel()
        assert process.wait(timeout=30) == 0, process.stderr.read()
        found = [figure for figure in self.seen if "nodes" in figure]
        self.seen = []
        return found


@pytest.fixture
def drive(links):
    """Rounds of pairs, which end with the test."""
    drive = Drive(links)
    yield drive
    for process in drive.started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

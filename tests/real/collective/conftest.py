"""Eight hosts whose links are shaped, so that the network and not this machine's cores is what is measured."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
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

    def processes(self):
        """What runs on the hosts for gpuops: every process that has the mark of ours in its arguments."""
        return [line for line in self.run("ps -e -o args").splitlines() if "MARK=sys" in line]

    def are_left_alone(self, seconds=5):
        """Whether nothing of gpuops is on any host, ``seconds`` from now at the latest."""
        ends = time.monotonic() + seconds
        while self.processes() and time.monotonic() < ends:
            time.sleep(0.1)
        return not self.processes()

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

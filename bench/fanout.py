"""Compare gpuops with its peers on many hosts behind one real sshd: paired runs (A B A B), as ratios.

    python bench/fanout.py [--hosts 64,256] [--rounds 2] [--peers ansible,pyinfra,clush,paramiko] [--lost-runs 20]

Client and server share this machine, so every row includes the server's work. Absolute figures mean little; ratios
within one run are valid. Ansible and pyinfra are installed into .bench/, apart from gpuops' own environment.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

import server
from ClusterShell.NodeSet import NodeSet

HERE = pathlib.Path(__file__).parent
PEERS = HERE.parent / ".bench"
CLIENT = HERE / "client.py"
PYINFRA_FACTS = ("server.Hostname", "server.Kernel", "server.Arch", "server.LinuxDistribution", "server.Mounts")
CHEAP = "KexAlgorithms=curve25519-sha256"


@dataclass
class Run:
    """One process: wall and client CPU seconds, its largest memory, and the hosts that answered whole."""

    wall: float
    cpu: float
    mib: float
    whole: int
    warm: float = 0.0


class Bench:
    """The commands of every tool against one server."""

    def __init__(self, ssh, count):
        self.ssh, self.count = ssh, count
        ssh.write_inventories(count)
        self.options = ["-i", ssh.key, "-o", f"UserKnownHostsFile={ssh.folder}/known_hosts", "-o", "IdentitiesOnly=yes",
                        "-o", "StrictHostKeyChecking=yes", "-p", str(ssh.port)]  # fmt: skip

    def client(self, way):
        return [sys.executable, CLIENT, way, self.ssh.folder, self.ssh.port, self.ssh.user]

    def clush(self, *more):
        options = " ".join(map(str, [*self.options, *more]))
        return [pathlib.Path(sys.executable).with_name("clush"), "-q", "-f", 64, "-l", self.ssh.user, "-o", options,
                "--hostfile", self.ssh.folder / "hosts.txt", "-b", "sh -s"]  # fmt: skip

    def ansible(self):
        return [PEERS / "bin" / "ansible", "all", "-i", self.ssh.folder / "inventory.yml", "-m", "setup", "-f", 64]

    def pyinfra(self):
        return [PEERS / "bin" / "pyinfra", "-y", "--parallel", 64, self.ssh.folder / "hosts.py", "fact", *PYINFRA_FACTS]

    def run(self, name):
        """Run one tool once."""
        words, stdin = self.command(name)
        environment = {**os.environ, "ANSIBLE_PIPELINING": "True", "ANSIBLE_LOAD_CALLBACK_PLUGINS": "1",
                       "ANSIBLE_STDOUT_CALLBACK": "oneline", "PYTHONWARNINGS": "ignore"}  # fmt: skip
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        said = subprocess.run(
            ["/usr/bin/time", "-f", "peak %M", *map(str, words)],
            input=stdin, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, check=False,
        ).stdout  # fmt: skip
        wall = time.monotonic() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        peak = re.search(r"peak (\d+)", said)
        warm = re.search(r"warm seconds ([\d.]+)", said)
        return Run(
            wall, cpu, int(peak[1]) / 1024 if peak else 0, self.whole(name, said), float(warm[1]) if warm else 0.0
        )

    def command(self, name):
        """A tool's words and its stdin."""
        payload = (HERE / "payload.sh").read_text()
        if name in ("clush", "clush, cheap key exchange"):
            return self.clush(*(["-o", CHEAP] if "cheap" in name else [])), payload
        if name == "ansible setup":
            return self.ansible(), ""
        if name == "pyinfra, five facts":
            return self.pyinfra(), ""
        return self.client(name), ""

    def whole(self, name, said):
        """How many hosts answered whole, by what each tool prints."""
        if name.startswith("clush"):  # -b folds equal answers under a line that names the hosts
            heads = re.findall(r"^-+\n(127\.\S+)(?: \(\d+\))?\n-+\n\{", said, re.MULTILINE)
            return sum(len(NodeSet(head)) for head in heads)
        if name == "ansible setup":
            return said.count("| SUCCESS")
        if name.startswith("pyinfra"):
            loaded = [set(re.findall(rf"\[(127\.[\d.]+)\]\s+Loaded fact {fact}\b", said)) for fact in PYINFRA_FACTS]
            return len(set.intersection(*loaded))
        found = re.search(r"whole answers (\d+)", said)
        return int(found[1]) if found else 0


def pair(bench, ours, theirs, rounds):
    """A B A B …; the medians of both and the ratio of each pair."""
    runs = [(bench.run(ours), bench.run(theirs)) for _ in range(rounds)]
    ratios = [b.wall / a.wall for a, b in runs]
    row = {
        "peer": theirs,
        "hosts": bench.count,
        "ours": describe([a for a, _ in runs], bench.count),
        "theirs": describe([b for _, b in runs], bench.count),
        "times_faster": [round(r, 2) for r in ratios],
    }
    print(
        f"  {theirs:<28} {row['ours']['wall']:7.2f} s  {row['theirs']['wall']:7.2f} s"
        f"   {statistics.median(ratios):6.2f} x   cpu/host {row['ours']['cpu_ms_per_host']:6.1f} "
        f"{row['theirs']['cpu_ms_per_host']:7.1f} ms   whole {row['ours']['whole']} {row['theirs']['whole']}",
        flush=True,
    )
    return row


def describe(runs, count):
    middle = statistics.median
    return {
        "wall": middle(r.wall for r in runs),
        "cpu_ms_per_host": middle(r.cpu for r in runs) / count * 1000,
        "mib": max(r.mib for r in runs),
        "whole": min(r.whole for r in runs),
    }


def install_peers():
    """Ansible and pyinfra in an environment of their own; pyinfra needs an older paramiko than gpuops."""
    if not (PEERS / "bin" / "pyinfra").exists():
        subprocess.run([sys.executable, "-m", "venv", PEERS], check=True)
        subprocess.run([PEERS / "bin" / "pip", "install", "-q", "ansible-core", "pyinfra"], check=True)


TRANSPORT = ("paramiko_payload", "clush", "clush, cheap key exchange", "pyinfra, five facts", "ansible setup")
FACTS = ("paramiko_agent", "ansible setup")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", default="64,256")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--peers", default="ansible,pyinfra,clush,paramiko")
    parser.add_argument("--lost-runs", type=int, default=20)
    parser.add_argument("--json", type=pathlib.Path, help="write every figure there")
    options = parser.parse_args()
    wanted = tuple(options.peers.split(","))
    install_peers()
    rows = []
    with server.running() as ssh:
        for count in map(int, options.hosts.split(",")):
            bench = Bench(ssh, count)
            bench.run("gpuops_payload")  # warm the machine's caches
            print(f"\n{count} hosts, the same 3 KB payload: ours, theirs, times faster")
            rows += [pair(bench, "gpuops_payload", p, options.rounds) for p in TRANSPORT if p.startswith(wanted)]
            print(f"\n{count} hosts, full facts: ours, theirs, times faster")
            rows += [pair(bench, "gpuops_facts", p, options.rounds) for p in FACTS if p.startswith(wanted)]
            rows.append(report_alone(bench))
        rows.append(report_lost(bench, options.lost_runs))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


def report_alone(bench):
    """What has no peer: a second round over kept connections, and memory."""
    warm, facts = bench.run("gpuops_warm"), bench.run("gpuops_facts")
    per_host = warm.warm / bench.count * 1000
    print(f"\n  warm second round {warm.warm:.2f} s = {per_host:.2f} ms a host, whole {warm.whole}")
    print(f"  memory {warm.mib:.0f} MiB with all connections kept, {facts.mib:.0f} MiB for full facts")
    return {"hosts": bench.count, "warm_ms_per_host": per_host, "mib_kept": warm.mib, "mib_facts": facts.mib}


def report_lost(bench, runs):
    lost = [bench.count - bench.run("gpuops_payload").whole for _ in range(runs)]
    print(f"\n  {runs} runs of {bench.count} hosts: {sum(lost)} answers lost")
    return {"hosts": bench.count, "runs": runs, "lost": sum(lost)}


if __name__ == "__main__":
    main()

"""Compare the tcp engine with iperf3 on the same link: paired runs (A B A B), as ratios. Needs root and iperf3.

    python bench/ring.py [--mbit 1000,400] [--rounds 5] [--seconds 2]

The link connects two network namespaces and is rate-limited at both ends; it is removed when the program ends. Both
tools send in both directions at once, so the bus bandwidth of two ranks corresponds to iperf3's rate of one direction.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from functools import partial

from gpuops.cancellation import CancelToken
from gpuops.collective.engines import Load
from gpuops.collective.engines.tcp import TcpEngine
from gpuops.document import Where
from gpuops.inventory import Host
from gpuops.isolation.rounds import RankGroup, Round
from gpuops.transport.agent import AgentTransport
from gpuops.transport.local import ProcessStream

ADDRESSES = {"a": "10.79.0.1", "b": "10.79.0.2"}
APART = "unshare --net --mount --pid --fork --kill-child --mount-proc".split()
SIZE_BYTES = 8 << 20


def sh(line):
    subprocess.run(line, shell=True, check=True)


def join():
    """Two namespaces with one link between them."""
    sh("mount -t tmpfs tmpfs /run")  # where ip keeps its namespaces
    for name in ADDRESSES:
        sh(f"ip netns add {name}")
    sh("ip link add eth0 netns a type veth peer name eth0 netns b")
    for name, address in ADDRESSES.items():
        sh(f"ip -n {name} address add {address}/24 dev eth0; ip -n {name} link set eth0 up")


def shape(mbit):
    for name in ADDRESSES:
        sh(f"ip netns exec {name} tc qdisc replace dev eth0 root tbf rate {mbit}mbit burst 128k latency 50ms")


def unshape():
    for name in ADDRESSES:
        sh(f"ip netns exec {name} tc qdisc delete dev eth0 root")


class Namespaces:
    """Opens transports into the namespaces."""

    def __init__(self):
        self.transports, self.cancel = [], CancelToken()

    def open(self, host):
        inside = ["ip", "netns", "exec", host.name, "/bin/sh", "-c"]
        self.transports.append(AgentTransport(host.name, lambda line: ProcessStream(host.name, [*inside, line])))
        return self.transports[-1]

    def close(self):
        for transport in self.transports:
            transport.close()


def engine_for(addresses, opener, seconds):
    hosts = [Host(name, address, Where("bench", 1, 1)) for name, address in addresses.items()]
    engine = TcpEngine(hosts, opener, Load(size_bytes=SIZE_BYTES, seconds=seconds))
    lost = engine.open()
    assert not lost, lost
    return engine


def ours(engine):
    """GB/s that two ranks measure."""
    (figure,) = engine.measure(Round("pair", (RankGroup(("a", "b")),)))
    assert figure.gb_per_s, figure
    return figure.gb_per_s


def iperf3(seconds):
    """GB/s of one direction, both being sent at once."""
    server = subprocess.Popen(["ip", "netns", "exec", "b", "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
    sh("until ip netns exec b ss -ltn | grep -q :5201; do sleep 0.05; done")
    client = ["ip", "netns", "exec", "a", "iperf3", "-c", ADDRESSES["b"], "--bidir", "-J", "-t", str(seconds)]
    said = json.loads(subprocess.run(client, check=True, stdout=subprocess.PIPE, text=True).stdout)["end"]
    server.wait()
    rates = [said["sum_received"]["bits_per_second"], said["sum_received_bidir_reverse"]["bits_per_second"]]
    return statistics.fmean(rates) / 8e9


def compare(label, measure, rival, rounds):
    runs = [(measure(), rival()) for _ in range(rounds)]
    ratios = [mine / theirs for mine, theirs in runs]
    mine, theirs = (statistics.median(column) * 1000 for column in zip(*runs, strict=True))
    print(f"{label:<12} {mine:8.1f} MB/s {theirs:10.1f} MB/s   {statistics.median(ratios):.3f}"
          f"   ({min(ratios):.3f} to {max(ratios):.3f})", flush=True)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbit", default="1000,400")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    options = parser.parse_args()
    if os.environ.get("GPUOPS_BENCH_APART") != "1":
        sys.exit(subprocess.call([*APART, sys.executable, *sys.argv], env={**os.environ, "GPUOPS_BENCH_APART": "1"}))
    join()
    engine = engine_for(ADDRESSES, Namespaces(), options.seconds)
    rival = partial(iperf3, options.seconds)
    print(f"{'link':<12} {'tcp engine':>13} {'iperf3 --bidir':>15}   ratio")
    for mbit in map(int, options.mbit.split(",")):
        shape(mbit)
        compare(f"{mbit} Mbit/s", partial(ours, engine), rival, options.rounds)
    unshape()
    compare("no limit", partial(ours, engine), rival, options.rounds)
    engine.close()


if __name__ == "__main__":
    main()

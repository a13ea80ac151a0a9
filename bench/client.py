"""One method to query many hosts, as a separate process: client.py METHOD FOLDER COUNT PORT USER.

Prints the number of hosts with a complete answer; for ``warm`` also the seconds of a second round on open connections.
"""

import pathlib
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

FANOUT = 64
PAYLOAD = (pathlib.Path(__file__).parent / "payload.sh").read_bytes()
WHOLE = b'"probe": 1'


def gpuops_hosts(folder):
    from gpuops.inventory import Inventory

    return Inventory.load(folder / "inventory.yml").select("all")


def gpuops_payload(folder):
    """The payload through gpuops' own connections, host keys verified."""
    from gpuops import fleet
    from gpuops.transport.connections import Connections

    group = Connections().group()

    def visit(host):
        transport = group.open(host)
        try:
            stream = transport._start("sh -s")
            stream.write(PAYLOAD)
            stream._channel.shutdown_write()
            return read_all(stream)
        finally:
            transport.close()

    outcomes = fleet.each(gpuops_hosts(folder), visit, fanout=FANOUT)
    return sum(WHOLE in (outcome.value or b"") for outcome in outcomes)


def read_all(stream):
    parts = []
    while data := stream.read(30):
        parts.append(data)
    return b"".join(parts)


def gpuops_facts(folder):
    """Every probe of every built-in check through the agent, parsed."""
    from gpuops import assessment, facts, fleet
    from gpuops.catalogue import Catalogue
    from gpuops.transport.connections import Connections

    group, probes = Connections().group(), assessment.probes_for(Catalogue().checks().values())

    def visit(host):
        transport = group.open(host)
        try:
            return facts.gather(host.name, transport.batch, probes)
        finally:
            transport.close()

    return sum(o.value is not None for o in fleet.each(gpuops_hosts(folder), visit, fanout=FANOUT))


def gpuops_warm(folder):
    """A first round that keeps its connections, and a second one over them."""
    from gpuops import fleet
    from gpuops.shell import Command
    from gpuops.transport.connections import Connections

    group, kept = Connections().group(), {}

    def visit(host):
        transport = kept.get(host.name) or kept.setdefault(host.name, group.open(host))
        return transport.run(Command(("sh", "-c", "echo here")))

    hosts = gpuops_hosts(folder)
    fleet.each(hosts, visit, fanout=FANOUT)
    began = time.monotonic()
    outcomes = fleet.each(hosts, visit, fanout=FANOUT)
    print("warm seconds", time.monotonic() - began)
    return sum(o.value is not None and o.value.out == "here\n" for o in outcomes)


def paramiko_many(folder, port, user, work):
    import paramiko

    key = paramiko.PKey.from_path(folder / "client_key")

    def visit(host):
        client = paramiko.SSHClient()
        client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
        client.connect(
            host, port, user, pkey=key, look_for_keys=False, allow_agent=False, timeout=30, banner_timeout=60
        )
        try:
            return work(client)
        finally:
            client.close()

    threading.stack_size(512 * 1024)
    with ThreadPoolExecutor(FANOUT) as pool:
        return list(pool.map(visit, (folder / "hosts.txt").read_text().split()))


def paramiko_payload(folder, port, user):
    """Plain paramiko in a pool of threads; it verifies no host key."""

    def work(client):
        into, out, _ = client.exec_command("sh -s")
        into.write(PAYLOAD)
        into.channel.shutdown_write()
        return out.read()

    return sum(WHOLE in answer for answer in paramiko_many(folder, port, user, work))


def paramiko_agent(folder, port, user):
    """Plain paramiko that sends gpuops' own agent and all its questions, and reads the whole answer unparsed."""
    from gpuops import assessment, facts
    from gpuops.catalogue import Catalogue
    from gpuops.transport import agent

    questions = facts.questions(assessment.probes_for(Catalogue().checks().values()))
    request = repr((200.0, "", [agent._asked(question) for question in questions])).encode()
    program = agent._program(*agent.AGENT)
    line = agent.start_line("bench-mark", "/usr/bin/python3")

    def work(client):
        into, out, _ = client.exec_command(line)
        into.write(b"%b%d\n%b" % (program, len(request), request))
        into.channel.shutdown_write()
        return out.read()

    return sum(answer.count(b"bench-mark") == 2 for answer in paramiko_many(folder, port, user, work))


METHODS = {
    method.__name__: method for method in (gpuops_payload, gpuops_facts, gpuops_warm, paramiko_payload, paramiko_agent)
}

if __name__ == "__main__":
    name, folder, port, user = sys.argv[1:5]
    method = METHODS[name]
    place = pathlib.Path(folder)
    print("whole answers", method(place, int(port), user) if name.startswith("paramiko") else method(place))

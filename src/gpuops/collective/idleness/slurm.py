"""Slurm's view of hosts: node names, states and jobs, read through one machine for all hosts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from gpuops.collective.idleness.drain_reason import DrainOwner, DrainReason, parse_drain_reason
from gpuops.collective.idleness.proof import Allocation, NodeAllocation, NoSuchNode
from gpuops.inventory import Host
from gpuops.inventory.patterns import split
from gpuops.probing import Unknown
from gpuops.shell import Command, Completed
from gpuops.transport import Transport

_WITH_SLURM = 'PATH=$PATH:/opt/slurm/bin:/usr/local/slurm/bin; exec "$@"'  # a non-login shell lacks these directories
_SECONDS = 20.0


def slurm_command(*words: str) -> Command:
    """Return the command that runs one of Slurm's programs."""
    return Command(("sh", "-c", _WITH_SLURM, "sh", *words), timeout_seconds=_SECONDS)


NODES = slurm_command("sinfo", "--noheader", "--all", "--Node", "--format=%N|%n|%o|%T|%E")
JOBS = slurm_command(
    "squeue",
    "--noheader",
    "--all",
    "--states=RUNNING,SUSPENDED,COMPLETING,CONFIGURING,STOPPED,SIGNALING",
    "--format=%N|%A|%u|%j",
)


_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"\s*(\d+)-(\d+)")
_DIGITS = re.compile(r"\d{10}")
_MOST_NODES = 65_536
"""The most nodes that Slurm supports in one partition (MaxNodeCount); ClusterShell would build any number of names."""
NO_SUCH_NODE = NoSuchNode("Slurm has no such node")


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node as Slurm lists it: ``state`` in its words (``idle``, ``mixed``, ``drained*``), and the drain reason."""

    name: str
    state: str
    reason: DrainReason = field(default_factory=DrainReason)

    @property
    def drained_by(self) -> DrainOwner:
        """The owner of the drain reason; empty without one."""
        return self.reason.owner


class Slurm:
    """Slurm, queried on ``machine``. ``own_job`` is the ID of the job in which gpuops runs; it does not count."""

    def __init__(self, machine: Transport, own_job: str = "") -> None:
        self.machine = machine
        self._own_job = own_job

    def nodes(self, hosts: Sequence[Host]) -> dict[str, SlurmNode] | Unknown:
        """Return the Slurm nodes of ``hosts``, matched by name or address, keyed by the hosts' names."""
        rows = _rows(self.machine.run(NODES), 5)
        if isinstance(rows, Unknown):
            return rows
        by_alias: dict[str, SlurmNode] = {}
        for name, *aliases, state, reason in rows:
            by_alias |= dict.fromkeys((*aliases, name), SlurmNode(name, state, parse_drain_reason(reason)))
        nodes = {host.name: by_alias.get(host.name) or by_alias.get(host.address) for host in hosts}
        return {host: node for host, node in nodes.items() if node}

    def allocations(self, hosts: Sequence[Host]) -> Mapping[str, Allocation]:
        """Return the jobs that hold each of ``hosts``; `NoSuchNode` for a host that Slurm does not list."""
        nodes = self.nodes(hosts)
        if isinstance(nodes, Unknown):
            return dict.fromkeys((host.name for host in hosts), nodes)
        jobs = self._jobs()
        if isinstance(jobs, Unknown):
            return dict.fromkeys((host.name for host in hosts), jobs)
        return {
            host.name: jobs.get(nodes[host.name].name, ()) if host.name in nodes else NO_SUCH_NODE for host in hosts
        }

    def _jobs(self) -> dict[str, tuple[NodeAllocation, ...]] | Unknown:
        """Return the jobs of each node that has any."""
        rows = _rows(self.machine.run(JOBS), 4)
        if isinstance(rows, Unknown):
            return rows
        held: dict[str, tuple[NodeAllocation, ...]] = {}
        for nodes, job, user, name in rows:
            for node in unfolded(nodes) if job != self._own_job else ():
                held[node] = (*held.get(node, ()), NodeAllocation(f"Slurm job {job} {name}, user {user}", job))
        return held


def _rows(answer: Completed, columns: int) -> list[list[str]] | Unknown:
    """Return the rows of an answer whose first column is a set of nodes."""
    program = answer.question.words[4] if isinstance(answer.question, Command) else ""
    if answer.missing:
        return Unknown(f"{program} is not installed on {answer.node}")
    if answer.exit or answer.timed_out or answer.truncated:
        return Unknown(f"{program} failed on {answer.node}: {answer.last_words() or 'no output'}")
    rows = [line.split("|", columns - 1) for line in answer.out.splitlines()]
    if any(len(row) < columns or not unfolded(row[0]) for row in rows):
        return Unknown(f"cannot parse {program}'s answer: {answer.out[:80]!r}")
    return rows


def _count(name: str) -> int:
    """Return how many names a folded name stands for: ``gpu[01-03,7]`` for four."""
    brackets = _BRACKETS.findall(name)
    return math.prod(sum(_size(part) for part in inside.split(",")) for inside in brackets)


def _size(part: str) -> int:
    match = _RANGE.match(part)
    return max(1, int(match[2]) - int(match[1]) + 1) if match else 1


def unfolded(nodes: str) -> list[str]:
    """Return the names in Slurm's ``gpu[01-03,7]``; an empty list if it cannot be parsed."""
    if _DIGITS.search(nodes) or sum(map(_count, split(nodes, ","))) > _MOST_NODES:
        return []
    try:
        return list(NodeSet(nodes, resolver=RESOLVER_NOGROUP))
    except (NodeSetException, ValueError, AssertionError):  # the last two: a range that ends below its beginning
        return []

"""Slurm: which of its nodes a host is, and whose jobs hold it; two questions to one machine tell it of all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from gpuops.collective.idleness import Allocation
from gpuops.inventory import Host
from gpuops.probing import Unknown
from gpuops.shell import Command, Completed

_SECONDS = 20.0
_WITH_SLURM = 'PATH=$PATH:/opt/slurm/bin:/usr/local/slurm/bin; exec "$@"'  # a login without a profile lacks them
Run = Callable[[Command], Completed]


def slurm_command(*words: str) -> Command:
    """One of Slurm's programs."""
    return Command(("sh", "-c", _WITH_SLURM, "sh", *words), timeout_seconds=_SECONDS)


NODES = slurm_command("sinfo", "--noheader", "--all", "--Node", "--format=%N|%n|%o")
JOBS = slurm_command(
    "squeue",
    "--noheader",
    "--all",
    "--states=RUNNING,SUSPENDED,COMPLETING,CONFIGURING,STOPPED,SIGNALING",
    "--format=%N|%A|%u|%j",
)


class Slurm:
    """Asks Slurm where ``run`` runs commands. ``own_job`` is the id of the job that gpuops itself runs in."""

    def __init__(self, run: Run, own_job: str = "") -> None:
        self.run = run
        self._own_job = own_job

    def names(self, hosts: Sequence[Host]) -> dict[str, str] | Unknown:
        """What Slurm calls those of ``hosts`` that it knows, by name or by address."""
        rows = _rows(self.run(NODES), 3)
        if isinstance(rows, Unknown):
            return rows
        known = {alias: node for aliases in rows for node in aliases[:1] for alias in reversed(aliases)}
        found = {host.name: known.get(host.name) or known.get(host.address) for host in hosts}
        return {name: node for name, node in found.items() if node}

    def allocations(self, hosts: Sequence[Host]) -> Mapping[str, Allocation]:
        """Whose jobs hold each of ``hosts``; it is unknown of a host that Slurm does not know."""
        names = self.names(hosts)
        if isinstance(names, Unknown):
            return dict.fromkeys((host.name for host in hosts), names)
        jobs = self._jobs()
        if isinstance(jobs, Unknown):
            return dict.fromkeys((host.name for host in hosts), jobs)
        none = Unknown("Slurm has no such node")
        return {host.name: jobs.get(names[host.name], ()) if host.name in names else none for host in hosts}

    def _jobs(self) -> dict[str, tuple[str, ...]] | Unknown:
        """The jobs of each node that has any."""
        rows = _rows(self.run(JOBS), 4)
        if isinstance(rows, Unknown):
            return rows
        held: dict[str, tuple[str, ...]] = {}
        for nodes, job, user, name in rows:
            for node in _expanded(nodes) if job != self._own_job else ():
                held[node] = (*held.get(node, ()), f"Slurm job {job} {name}, user {user}")
        return held


def _rows(answer: Completed, columns: int) -> list[list[str]] | Unknown:
    """The rows of an answer whose first column is a set of nodes."""
    program = answer.question.words[4] if isinstance(answer.question, Command) else ""
    if answer.missing:
        return Unknown(f"there is no {program} on {answer.node}")
    if answer.exit or answer.timed_out or answer.truncated:
        return Unknown(f"{program} on {answer.node} says: {answer.last_words() or 'nothing'}")
    rows = [line.split("|", columns - 1) for line in answer.out.splitlines()]
    if any(len(row) < columns or not _expanded(row[0]) for row in rows):
        return Unknown(f"{program}'s answer cannot be read: {answer.out[:80]!r}")
    return rows


def _expanded(nodes: str) -> list[str]:
    """The names in Slurm's ``gpu[01-03,7]``; empty where it cannot be read."""
    try:
        return list(NodeSet(nodes, resolver=RESOLVER_NOGROUP))
    except NodeSetException:
        return []

"""The search for why a job cannot start, on its own nodes and started its own way; each cause comes with its fix."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, get_args

from gpuops.collective.idleness.monitor import IdleMonitor
from gpuops.collective.idleness.proof import Idleness
from gpuops.collective.idleness.slurm import NO_SUCH_NODE, Slurm
from gpuops.collective.network_tests.ladder import Ladder
from gpuops.collective.network_tests.mesh import mesh
from gpuops.collective.network_tests.verdicts import NetworkFailure, NetworkTest
from gpuops.collective.pool import Pool
from gpuops.collective.preflight import causes, firewall, logins, node_causes
from gpuops.collective.preflight import job_environment as survey
from gpuops.collective.preflight.causes import EACH, LISTED, Cause
from gpuops.collective.preflight.diagnosis import Diagnosis, StepLog
from gpuops.collective.preflight.job_environment import JobEnvironment, parse_survey
from gpuops.collective.preflight.launch_command import LaunchCommand, NodeCommand
from gpuops.collective.preflight.rendezvous import NO_ROUTE, Rendezvous, route_to
from gpuops.errors import CancelledError, LostError, NodeError, format_count
from gpuops.facts import Facts
from gpuops.isolation.rounds import GroupResult
from gpuops.judging import Verdict
from gpuops.probes.host.pci import pci_vendors
from gpuops.probes.network.gids import Gid, gids
from gpuops.probes.network.ib import IbPort, ib_ports
from gpuops.probes.nvidia.driver import driver
from gpuops.probes.nvidia.nvidia_smi import smi
from gpuops.probes.nvidia.presence import NO_GPU, has_no_gpu
from gpuops.probing import Probe, Unknown
from gpuops.proposal import propose, propose_again
from gpuops.reasons import Excluded, excluded_by
from gpuops.shell import Command, Completed
from gpuops.transport.agent import AgentTransport
from gpuops.transport.worker import NO_PYTHON

_READ: tuple[Probe[Any], ...] = (ib_ports, gids)
_EXCLUDING = frozenset({"reach", *get_args(NetworkTest)})
"""The tests that exclude the nodes that fail them."""


@dataclass
class Preflight:
    """One preflight of ``pool``, which holds the nodes of ``command``.

    ``slurm`` is set if srun starts the job. ``measure`` runs one all-reduce on the remaining nodes and returns its
    result and the engine, after ``monitor`` has proved them idle. ``judge`` judges the facts that ``probes`` collect;
    ``prevents`` tells which of its checks fail only if programs cannot use the GPUs. If there are more nodes than the
    command needs, those to ``avoid``, which an earlier run found faulty, are the last to choose. ``activity`` receives
    the current step in a few words; ``log`` may contain earlier steps. ``here`` runs a command on this machine, on
    which the launch command is typed in the environment ``environ``.
    """

    command: LaunchCommand
    pool: Pool
    monitor: IdleMonitor
    measure: Callable[[Pool], tuple[GroupResult, str]]
    slurm: Slurm | None = None
    activity: Callable[[str], None] = lambda _words: None
    log: StepLog = field(default_factory=StepLog)
    probes: Sequence[Probe[Any]] = ()
    judge: Callable[[Mapping[str, Facts]], Sequence[Verdict]] = lambda _facts: ()
    prevents: Callable[[str], bool] = lambda _check: True
    avoid: Collection[str] = ()
    here: Callable[[Command], Completed] | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    _also_failing: list[Verdict] = field(default_factory=list)
    _unhealthy: dict[str, Excluded] = field(default_factory=dict)
    _in_use: dict[str, Excluded] = field(default_factory=dict)
    _chains: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The chains of each node's firewall."""
    _addresses: dict[str, str] = field(default_factory=dict)
    """The address of each node that its peers use."""
    _bare: tuple[str, ...] = ()
    """The nodes, if none of them has a GPU."""

    def run(self) -> Diagnosis:
        """Run every step that is still possible after a failure. On Ctrl-C return the results so far."""
        hosts, interrupted = list(self.pool.hosts), False
        try:
            self._run_steps()
        except (KeyboardInterrupt, CancelledError):
            interrupted = True
        self.log.amend("gpus", causes.no_gpu(self.command, self._bare))  # last, since the job may not need one
        excluded = {**self._unhealthy, **self._in_use, **self.pool.excluded}
        if not any(cause.test == "hosts" for cause in self.log.causes):
            usable = sorted((host for host in hosts if host not in excluded), key=self.avoid.__contains__)
            self.log.put_first("hosts", causes.count(self.command, hosts, usable))
        also: dict[str, tuple[str, ...]] = {}
        for verdict in self._also_failing:
            also[verdict.node] = (*also.get(verdict.node, ()), verdict.check)
        return self.log.diagnosis(self.command, hosts, excluded, interrupted=interrupted, also_failing=also)

    def _run_steps(self) -> None:
        self.activity("environment")
        surveys = self._surveys()
        self._check_logins()
        facts = self.pool.facts((*_READ, *self.probes))
        self._check_gpus(facts)
        rails = {name: _up(own) for name, own in facts.items()}
        with_rdma = [name for name, ports in rails.items() if ports]
        of_nodes = (node_causes.environment(self.command, surveys), node_causes.limits(self.command, surveys))
        self.log.add("environment", chain(*of_nodes), _versions(surveys))
        self.log.add(
            "memlock", node_causes.memory(self.command, surveys, with_rdma), "" if with_rdma else "no RDMA on the nodes"
        )
        self._chains = {name: own.input_chains for name, own in surveys.items()}
        settings = {name: {**own.environment, **self.command.environment_on(name)} for name, own in surveys.items()}
        self._check_rendezvous(settings)
        tables = {name: _table(own) for name, own in facts.items()}
        self.log.add("rdma", causes.rails(self.command, settings, rails), "" if with_rdma else "no RDMA on the nodes")
        self.log.add("gid", causes.gid(self.command, settings, rails, tables))
        self._test_network(over_rdma=bool(with_rdma))
        self._account_for_all()
        self._all_reduce()

    def _surveys(self) -> dict[str, JobEnvironment]:
        """Return the job's environment on each node, started the job's own way; exclude nodes without an answer."""
        texts = self._by_srun(self.slurm) if self.slurm else self._by_ssh()
        surveys = {name: parse_survey(text) for name, text in texts.items()}
        self.pool.exclude(Excluded(n, "unknown", own.why) for n, own in surveys.items() if isinstance(own, Unknown))
        self.log.add("reach", self._gone(), f"{self._count()} by {'srun' if self.slurm else 'ssh'}")
        return {name: own for name, own in surveys.items() if isinstance(own, JobEnvironment)}

    def _count(self) -> str:
        return format_count(len(self.pool.hosts), "node")

    def _gone(self) -> list[Cause]:
        """Return the excluded nodes that no cause names yet; causes of other tests exclude no node."""
        named = {node for cause in self.log.causes if cause.test in _EXCLUDING for node in cause.nodes}
        missing = [reason for node, reason in self.pool.excluded.items() if node not in named]
        return [Cause("reach", (reason.host,), reason.why, _bring_back(reason)) for reason in missing]

    def _by_ssh(self) -> dict[str, str]:
        return self.pool.each(lambda transport, host: _answer(transport, self.command.on(host.name)))

    def _by_srun(self, slurm: Slurm) -> dict[str, str]:
        """Return the same through one Slurm step; exclude nodes where it does not run, with Slurm's reason."""
        nodes = slurm.nodes(list(self.pool.hosts.values()))
        if isinstance(nodes, Unknown):
            self.pool.exclude([Excluded(name, "unknown", nodes.why) for name in self.pool.hosts])
            return {}
        names = {node.name: name for name, node in nodes.items()}
        answer = slurm.machine.run(survey.by_srun(self.command.program, list(names), self.command.files))
        texts = {names[node]: text for node, text in survey.by_node(answer).items() if node in names}
        why = f"srun does not start here: {answer.last_words() or 'no output'}"
        silent = {name: why if name in nodes else NO_SUCH_NODE.why for name in self.pool.hosts if name not in texts}
        self.pool.exclude([excluded_by(name, NodeError(name, reason)) for name, reason in silent.items()])
        return texts

    def _check_logins(self) -> None:
        """Test that the launcher can log in to the nodes, on this machine if it has the launcher, else on the first."""
        addresses = [host.address for host in self.pool.hosts.values()]
        question = logins.question(self.command, addresses, self.environ)
        if question is None or self.here is None or not addresses:
            return
        where, answer = "this machine", self.here(question)
        if answer.missing:
            where = next(iter(self.pool.hosts))
            answer = next((answer for (answer,) in self.pool.ask([question], [where]).values()), answer)
        if answer.missing or answer.timed_out:
            why = "no answer in time" if answer.timed_out else f"neither this machine nor {where} has the launcher"
            self.log.skip("ssh", why)
            return
        names = {alias: name for name, host in self.pool.hosts.items() for alias in (host.address, name)}
        self.log.add("ssh", logins.causes(self.command, answer, where, names), f"from {where} to all")

    def _check_gpus(self, facts: Mapping[str, Facts]) -> None:
        """Test that programs can use the GPUs; nodes where they cannot stay in the pool for the other steps."""
        if self.command.hides_gpus:
            self.log.skip("gpus", "the job uses none: it sets CUDA_VISIBLE_DEVICES")
            return
        judged = [verdict for verdict in self.judge(facts) if verdict.status == "fail" and verdict.node]
        self._also_failing = [verdict for verdict in judged if not self.prevents(verdict.check)]
        failing = [verdict for verdict in judged if self.prevents(verdict.check)]
        bare = [name for name, own in facts.items() if _lacks_gpus(own)]
        if bare and len(bare) == len(facts):
            self._bare = tuple(bare)
            self.log.skip("gpus", "no NVIDIA GPU on these nodes")
            return
        counts = {name: count for name, own in facts.items() if (count := _usable_gpus(own))}
        too_many = causes.processes(self.command, counts)
        self.log.add("gpus", [*causes.gpus(failing), *causes.without_gpu(bare, list(facts)), *too_many])
        for node in dict.fromkeys(verdict.node for verdict in failing):
            checks = tuple(verdict.check for verdict in failing if verdict.node == node)
            self._unhealthy[node] = Excluded(node, "unhealthy", f"fails {', '.join(checks)}", checks=checks)
        self._unhealthy = {**{node: Excluded(node, "unhealthy", NO_GPU) for node in bare}, **self._unhealthy}

    def _check_rendezvous(self, settings: Mapping[str, Mapping[str, str]]) -> None:
        self.activity("interfaces and the rendezvous")
        with mesh(self.pool) as ask:
            rendezvous = Rendezvous(self.pool, self.command, ask, self._chains)
            self._addresses = rendezvous.addresses
            self.log.add("interface", rendezvous.interfaces(settings))
            where = f"{self.command.master}:{self.command.port}" if self.command.master else ""
            self.log.add("meeting", rendezvous.place(), where)

    def _test_network(self, *, over_rdma: bool) -> None:
        """Test names, clocks, TCP between all nodes, full-size packets, and identical rails."""
        ladder = Ladder(self.pool, over_rdma=over_rdma, writes=False, on_test=self.activity)
        failures = [self._cause(failure) for failure in ladder.run() if failure.test != "memlock"]
        self.log.amend("rdma", [cause for cause in failures if cause.test == "rdma"])
        others = [cause for cause in failures if cause.test != "rdma"]
        alone = len(self.pool.hosts) == 1
        self.log.add(
            "network", others, f"{self._count()}{', so no network between nodes' if alone else ' reach each other'}"
        )

    def _cause(self, failure: NetworkFailure) -> Cause:
        """Return the cause, with the fix of the check that found the same device at fault, which knows more of it."""
        for verdict in self._also_failing if failure.device else ():
            fixes = [finding.fix for finding in verdict.findings if finding.part == failure.device and finding.fix]
            if verdict.node in failure.nodes and fixes:
                self._also_failing.remove(verdict)
                return Cause(failure.test, failure.nodes, failure.why, fixes[0])
        return Cause(failure.test, failure.nodes, failure.why, self._opening(failure) or failure.do)

    def _opening(self, failure: NetworkFailure) -> str:
        """Return how to let other nodes connect to one node; empty if it is not known to be that."""
        targets = {to for _, to, _ in failure.blocked}
        if failure.test != "tcp" or len(targets) != 1:
            return ""
        (node,) = targets
        sources = {source: why for source, _, why in failure.blocked}
        if NO_ROUTE & {*sources.values()}:
            return route_to(self._addresses.get(node, node), next(iter(sources)), node)
        addresses = [self._addresses[source] for source in sources if source in self._addresses]
        return firewall.opening(self._chains.get(node, ()), addresses, node)

    def _account_for_all(self) -> None:
        """Add nodes that were lost in the meantime: they prevent the job from starting too."""
        lost = self._gone()
        if lost:
            self.log.add("reach", lost)

    def _check_idle(self) -> None:
        """Test that nothing runs on the nodes; of one whose GPUs fail that cannot be known, and it is named already."""
        not_idle = {name: idleness for name, idleness in self.monitor.prove().items() if idleness.excluded}
        unproved = {name for name in self._unhealthy if name in not_idle and not_idle[name].state == "unproved"}
        not_idle = {name: idleness for name, idleness in not_idle.items() if name not in unproved}
        self._in_use = {name: reason for name, idleness in not_idle.items() if (reason := idleness.excluded)}
        self._account_for_all()
        if not_idle:
            self.log.add("idle", [_not_idle(idleness) for idleness in not_idle.values()])

    def _all_reduce(self) -> None:
        """Run one all-reduce on exactly the nodes of the job, unless another process uses one of them."""
        self.activity("all-reduce")
        self._check_idle()
        if self.pool.excluded or self._unhealthy:
            self.log.skip("all-reduce", "not on all nodes of the job")
            return
        if self._in_use:
            is_busy = any(reason.kind == "busy" for reason in self._in_use.values())
            self.log.skip("all-reduce", "a node is in use" if is_busy else "not all nodes are proved idle")
            return
        figure, engine = self.measure(self.pool)
        if figure.gb_per_s is not None:
            self.log.add("all-reduce", (), f"{figure.gb_per_s:.1f} GB/s over {self._count()} by {engine}")
        elif figure.trouble:
            why, fix = (
                f"{figure.trouble} by {engine}: {figure.detail}",
                f"to find the part: {propose_again('allreduce')}",
            )
            self.log.add("all-reduce", [Cause("all-reduce", figure.absent, why, fix)])
        else:
            self.log.skip("all-reduce", figure.detail)


def _answer(transport: AgentTransport, job: NodeCommand) -> str:
    """Return the answer to the survey; raise `LostError` without Python, with which all later steps ask the node."""
    (answer,) = transport.batch([survey.by_ssh(job)])
    if not transport.has_python:
        raise LostError(transport.node, NO_PYTHON)
    return answer.out


def _bring_back(reason: Excluded) -> str:
    """Return what to do about a node that does not answer."""
    if reason.why == NO_PYTHON:
        return f"install Python 3 on {EACH}, or set ansible_python_interpreter to its path"
    if reason.unreachable == "host_key":
        return f"compare its host key on its console, then {propose('trust', reason.host, '--replace')}"
    return "bring the node back, or remove it from the job"


def _not_idle(idleness: Idleness) -> Cause:
    """Return the cause for a node that is busy, or not proved idle."""
    nodes = (idleness.node,)
    if idleness.state == "busy":
        return Cause("busy", nodes, str(idleness), f"wait for it, or remove {EACH} from the job")
    fix = f"--force-busy {LISTED}   if you know that nothing runs there"
    return Cause("idle", nodes, f"not proved idle: {idleness.who}", fix)


def _lacks_gpus(facts: Facts) -> bool:
    vendors, loaded, listing = facts[pci_vendors], facts[driver], facts[smi]
    return has_no_gpu(vendors, loaded, listing)


def _usable_gpus(facts: Facts) -> int:
    """Return the number of GPUs that a process could use; 0 also if it is unknown."""
    listing = facts[smi]
    return 0 if isinstance(listing, Unknown) else sum(bool(gpu.uuid) for gpu in listing.gpus)


def _up(facts: Facts) -> tuple[IbPort, ...]:
    ports = facts[ib_ports]
    return () if isinstance(ports, Unknown) else tuple(port for port in ports if port.state == "Active")


def _table(facts: Facts) -> tuple[Gid, ...]:
    table = facts[gids]
    return () if isinstance(table, Unknown) else table


def _versions(surveys: Mapping[str, JobEnvironment]) -> str:
    """Return the versions that all nodes have in common."""
    first = next(iter(surveys.values()), JobEnvironment())
    versions = (("", first.program), ("Python", first.python), ("torch", first.torch), ("NCCL", first.nccl))
    return ", ".join(f"{label} {version}".strip() for label, version in versions if version)

"""Preflight: why can't this job start? On its own nodes, in its own way; each cause with the line to change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gpuops.collective.idleness.monitor import IdleMonitor
from gpuops.collective.idleness.slurm import NO_SUCH_NODE, Slurm
from gpuops.collective.network_tests.ladder import Ladder
from gpuops.collective.network_tests.mesh import mesh
from gpuops.collective.pool import Pool
from gpuops.collective.preflight import causes
from gpuops.collective.preflight import job_environment as survey
from gpuops.collective.preflight.causes import Cause
from gpuops.collective.preflight.job_environment import JobEnvironment, parse_survey
from gpuops.collective.preflight.launch_command import LaunchCommand
from gpuops.collective.preflight.rendezvous import Rendezvous
from gpuops.errors import NodeError
from gpuops.facts import Facts
from gpuops.isolation.rounds import GroupResult
from gpuops.probes.network.gids import Gid, gids
from gpuops.probes.network.ib import IbPort, ib_ports
from gpuops.probing import Probe, Unknown
from gpuops.reasons import Excluded, excluded_by

State = Literal["ok", "fail", "skipped"]
_READ: tuple[Probe[Any], ...] = (ib_ports, gids)


@dataclass(frozen=True)
class PreflightStep:
    """One thing that was tried, how it went, and what was found in a few words."""

    name: str
    state: State
    said: str = ""


@dataclass
class Diagnosis:
    """All that was tried, in order, and the causes that were found, the first to mend first."""

    steps: list[PreflightStep] = field(default_factory=list)
    causes: list[Cause] = field(default_factory=list)

    def add(self, name: str, found: Iterable[Cause], said: str = "") -> None:
        """One more step, which failed where it found a cause."""
        new = _merged(found)
        self.causes += new
        self.steps.append(PreflightStep(name, "fail", new[0].why) if new else PreflightStep(name, "ok", said))

    @property
    def exit_code(self) -> int:
        """0: nothing is in the way; 1: something is; 3: only that a node does not answer."""
        if all(cause.rung == "reach" for cause in self.causes):
            return 3 if self.causes else 0
        return 1

    def skip(self, name: str, why: str) -> None:
        """A step that was not tried."""
        self.steps.append(PreflightStep(name, "skipped", why))


@dataclass
class Preflight:
    """One look at ``pool``, which holds the nodes of ``command``.

    ``slurm`` is given where the job is started by srun. ``measure`` runs one all-reduce on the nodes that are left, and
    says by which engine, once ``watch`` has proved that nobody else computes there. ``tell`` hears of each step.
    """

    command: LaunchCommand
    pool: Pool
    watch: IdleMonitor
    measure: Callable[[Pool], tuple[GroupResult, str]]
    slurm: Slurm | None = None
    tell: Callable[[str], None] = lambda _step: None
    report: Diagnosis = field(default_factory=Diagnosis)

    def run(self) -> Diagnosis:
        """Try everything; what can still be tried after a failure is."""
        self.tell("environment")
        surveys = self._surveys()
        facts = self.pool.facts(_READ)
        rails = {name: _up(told) for name, told in facts.items()}
        with_rdma = [name for name, ports in rails.items() if ports]
        self.report.add("environment", causes.environment(self.command, surveys), _versions(surveys))
        self.report.add("memlock", causes.memory(surveys, with_rdma), "" if with_rdma else "no RDMA on the nodes")
        settings = {n: {**found.environment, **self.command.environment} for n, found in surveys.items()}
        self._meet(settings)
        tables = {name: _table(told) for name, told in facts.items()}
        self.report.add("rdma", causes.rails(settings, rails), "" if with_rdma else "no RDMA on the nodes")
        self.report.add("gid", causes.gid(self.command, settings, rails, tables))
        self._climb(over_rdma=bool(with_rdma))
        self._account_for_all()
        self._all_reduce()
        return self.report

    def _surveys(self) -> dict[str, JobEnvironment]:
        """What the job would find on each node, in its own way; a node that cannot be looked at leaves."""
        told = self._by_srun(self.slurm) if self.slurm else self._by_ssh()
        found = {name: parse_survey(text) for name, text in told.items()}
        self.pool.exclude(
            Excluded(n, "unknown", survey.why) for n, survey in found.items() if isinstance(survey, Unknown)
        )
        self.report.add("reach", self._gone(), f"{len(self.pool.hosts)} nodes by {'srun' if self.slurm else 'ssh'}")
        return {name: survey for name, survey in found.items() if isinstance(survey, JobEnvironment)}

    def _gone(self) -> list[Cause]:
        """The nodes that left and that no cause names yet."""
        named = {node for cause in self.report.causes for node in cause.nodes}
        change = "bring these nodes back, or take them out of the job"
        return [
            Cause("reach", (name,), reason.why, change)
            for name, reason in self.pool.excluded.items()
            if name not in named
        ]

    def _by_ssh(self) -> dict[str, str]:
        answers = self.pool.ask([survey.by_ssh(self.command.program)])
        return {name: answer.out for name, (answer,) in answers.items()}

    def _by_srun(self, slurm: Slurm) -> dict[str, str]:
        """The same as one step of Slurm's; nodes where it does not run leave with Slurm's word."""
        nodes = slurm.nodes(list(self.pool.hosts.values()))
        if isinstance(nodes, Unknown):
            self.pool.exclude([Excluded(name, "unknown", nodes.why) for name in self.pool.hosts])
            return {}
        names = {node.name: name for name, node in nodes.items()}
        answer = slurm.machine.run(survey.by_srun(self.command.program, list(names)))
        told = {names[node]: text for node, text in survey.by_node(answer).items() if node in names}
        why = f"srun does not start there: {answer.last_words() or 'it says nothing'}"
        mute = [name for name in self.pool.hosts if name not in told]
        self.pool.exclude(
            excluded_by(name, NodeError(name, why if name in nodes else NO_SUCH_NODE.why)) for name in mute
        )
        return told

    def _meet(self, settings: Mapping[str, Mapping[str, str]]) -> None:
        self.tell("interfaces and the place to meet")
        with mesh(self.pool) as ask:
            meeting = Rendezvous(self.pool, self.command, ask)
            self.report.add("interface", meeting.interfaces(settings))
            where = f"{self.command.master}:{self.command.port}" if self.command.master else ""
            self.report.add("meeting", meeting.place(), where)

    def _climb(self, *, over_rdma: bool) -> None:
        """Names, clocks, TCP between all, whole packets, and rails that agree."""
        ladder = Ladder(self.pool, over_rdma=over_rdma, writes=False, watch=self.tell)
        found = [Cause(f.rung, f.nodes, f.why, f.do) for f in ladder.climb() if f.rung != "memlock"]
        self.report.add("network", found, f"{len(self.pool.hosts)} nodes reach each other")

    def _account_for_all(self) -> None:
        """A node that was lost on the way is in the way too."""
        lost = self._gone()
        if lost:
            self.report.add("reach", lost)

    def _all_reduce(self) -> None:
        """One all-reduce on exactly the nodes of the job, unless somebody else computes on one of them."""
        self.tell("all-reduce")
        if self.pool.excluded:
            self.report.skip("all-reduce", "not on all nodes of the job")
            return
        busy = {name: str(found) for name, found in self.watch.prove().items() if found.state != "idle"}
        if busy:
            who = (Cause("busy", (n,), why, f"wait for it, or take {n} out of the job") for n, why in busy.items())
            self.report.add("idle", who)
            self.report.skip("all-reduce", "somebody computes there")
            return
        figure, engine = self.measure(self.pool)
        if figure.gb_per_s is not None:
            self.report.add(
                "all-reduce", (), f"{figure.gb_per_s:.1f} GB/s over {len(self.pool.hosts)} nodes by {engine}"
            )
        elif figure.trouble:
            why = f"{figure.trouble} by {engine}: {figure.detail}"
            self.report.add("all-reduce", (Cause("all-reduce", figure.absent, why, "gpuops allreduce names the part"),))
        else:
            self.report.skip("all-reduce", figure.detail)


def _merged(found: Iterable[Cause]) -> list[Cause]:
    """What several nodes have in common is told once."""
    nodes: dict[tuple[str, str, str], tuple[str, ...]] = {}
    for cause in found:
        key = (cause.rung, cause.why, cause.change)
        nodes[key] = (*nodes.get(key, ()), *cause.nodes)
    return [Cause(rung, tuple(dict.fromkeys(named)), why, change) for (rung, why, change), named in nodes.items()]


def _up(facts: Facts) -> tuple[IbPort, ...]:
    told = facts[ib_ports]
    return () if isinstance(told, Unknown) else tuple(port for port in told if port.state == "Active")


def _table(facts: Facts) -> tuple[Gid, ...]:
    told = facts[gids]
    return () if isinstance(told, Unknown) else told


def _versions(surveys: Mapping[str, JobEnvironment]) -> str:
    """What all nodes have alike."""
    one = next(iter(surveys.values()), JobEnvironment())
    told = (("", one.program), ("Python", one.python), ("torch", one.torch), ("NCCL", one.nccl))
    return ", ".join(f"{label} {version}".strip() for label, version in told if version)

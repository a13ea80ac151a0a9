"""Diagnosis: why a job cannot start, looked for on its own nodes as it would be started; each cause with its fix."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from gpuops.collective.idleness.monitor import IdleMonitor
from gpuops.collective.idleness.slurm import NO_SUCH_NODE, Slurm
from gpuops.collective.measurement import excluded_document
from gpuops.collective.network_tests.ladder import Ladder
from gpuops.collective.network_tests.mesh import mesh
from gpuops.collective.pool import Pool
from gpuops.collective.preflight import causes
from gpuops.collective.preflight import job_environment as survey
from gpuops.collective.preflight.causes import Cause
from gpuops.collective.preflight.job_environment import JobEnvironment, parse_survey
from gpuops.collective.preflight.launch_command import LaunchCommand
from gpuops.collective.preflight.rendezvous import Rendezvous
from gpuops.errors import CancelledError, NodeError
from gpuops.facts import Facts
from gpuops.isolation.rounds import GroupResult
from gpuops.probes.network.gids import Gid, gids
from gpuops.probes.network.ib import IbPort, ib_ports
from gpuops.probing import Probe, Unknown
from gpuops.proposal import propose
from gpuops.reasons import Conclusion, Excluded, FailOn, Result, excluded_by
from gpuops.secret import redact

State = Literal["ok", "fail", "skipped"]
_READ: tuple[Probe[Any], ...] = (ib_ports, gids)


@dataclass(frozen=True)
class PreflightStep:
    """One step, its outcome, and what was found in a few words."""

    name: str
    state: State
    detail: str = ""


@dataclass(frozen=True)
class Diagnosis(Result):
    """Why a job cannot start: every step in order, and the causes, the first to fix first.

    ``hosts`` are those of the job, ``excluded`` those of them that could not take part to the end. ``seconds`` is wall
    time.
    """

    SCHEMA: ClassVar[str] = "gpuops.preflight/1"
    """Within one number, fields may be added; none changes its meaning or goes away."""

    command: LaunchCommand
    hosts: tuple[str, ...]
    steps: tuple[PreflightStep, ...] = ()
    causes: tuple[Cause, ...] = ()
    excluded: Mapping[str, Excluded] = field(default_factory=dict)
    interrupted: bool = False
    seconds: float = 0.0

    def conclusion(self, fail_on: FailOn = "fail") -> Conclusion:  # noqa: ARG002 - every result has it
        """``failed`` if anything keeps the job from starting, ``incomplete`` if only nodes do not answer."""
        if self.interrupted:
            return "interrupted"
        if any(cause.test != "reach" for cause in self.causes):
            return "failed"
        return "incomplete" if self.causes else "ok"

    def to_document(self) -> dict[str, Any]:
        """Plain data for JSON, secrets masked."""
        return {
            "schema": self.SCHEMA,
            "launcher": self.command.launcher,
            "hosts": list(self.hosts),
            "steps": [_step(step) for step in self.steps],
            "causes": [_cause(cause) for cause in self.causes],
            "excluded": excluded_document(self.excluded),
            "interrupted": self.interrupted,
        }


def _step(step: PreflightStep) -> dict[str, Any]:
    detail = redact(step.detail)
    return {"name": step.name, "state": step.state, "detail": detail, "said": detail}  # its former name


def _cause(cause: Cause) -> dict[str, Any]:
    fix = redact(cause.fix)
    document = {"test": cause.test, "nodes": list(cause.nodes), "why": redact(cause.why), "fix": fix}
    return {**document, "rung": cause.test, "change": fix}  # their former names


@dataclass
class StepLog:
    """The steps of a preflight and the causes that they find, as it goes; ``began`` is of `time.monotonic`."""

    steps: list[PreflightStep] = field(default_factory=list)
    causes: list[Cause] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def add(self, name: str, causes: Iterable[Cause], detail: str = "") -> None:
        """Add a step, which failed if it found a cause."""
        new = _merged(causes)
        self.causes += new
        self.steps.append(PreflightStep(name, "fail", new[0].why) if new else PreflightStep(name, "ok", detail))

    def skip(self, name: str, why: str) -> None:
        """Add a step that was not tried."""
        self.steps.append(PreflightStep(name, "skipped", why))

    def diagnosis(
        self,
        command: LaunchCommand,
        hosts: Iterable[str],
        excluded: Mapping[str, Excluded] | None = None,
        *,
        interrupted: bool = False,
    ) -> Diagnosis:
        """Return what was found so far, for the job that ``command`` starts on ``hosts``."""
        seconds = time.monotonic() - self.began
        return Diagnosis(
            command, tuple(hosts), tuple(self.steps), tuple(self.causes), dict(excluded or {}), interrupted, seconds
        )


@dataclass
class Preflight:
    """One look at ``pool``, which holds the nodes of ``command``.

    ``slurm`` is given if srun starts the job. ``measure`` runs one all-reduce on the nodes that remain and returns its
    result and the engine, once ``monitor`` has proved them idle. ``activity`` gets what is tried, in a few words;
    ``log`` may have steps before.
    """

    command: LaunchCommand
    pool: Pool
    monitor: IdleMonitor
    measure: Callable[[Pool], tuple[GroupResult, str]]
    slurm: Slurm | None = None
    activity: Callable[[str], None] = lambda _words: None
    log: StepLog = field(default_factory=StepLog)
    _in_use: dict[str, Excluded] = field(default_factory=dict)

    def run(self) -> Diagnosis:
        """Try everything, also after a failure what is still possible. On Ctrl-C return what was found until then."""
        hosts, interrupted = list(self.pool.hosts), False
        try:
            self._run_steps()
        except (KeyboardInterrupt, CancelledError):
            interrupted = True
        excluded = {**self.pool.excluded, **self._in_use}
        return self.log.diagnosis(self.command, hosts, excluded, interrupted=interrupted)

    def _run_steps(self) -> None:
        self.activity("environment")
        surveys = self._surveys()
        facts = self.pool.facts(_READ)
        rails = {name: _up(own) for name, own in facts.items()}
        with_rdma = [name for name, ports in rails.items() if ports]
        self.log.add("environment", causes.environment(self.command, surveys), _versions(surveys))
        self.log.add("memlock", causes.memory(surveys, with_rdma), "" if with_rdma else "no RDMA on the nodes")
        settings = {name: {**own.environment, **self.command.environment} for name, own in surveys.items()}
        self._check_rendezvous(settings)
        tables = {name: _table(own) for name, own in facts.items()}
        self.log.add("rdma", causes.rails(settings, rails), "" if with_rdma else "no RDMA on the nodes")
        self.log.add("gid", causes.gid(self.command, settings, rails, tables))
        self._test_network(over_rdma=bool(with_rdma))
        self._account_for_all()
        self._all_reduce()

    def _surveys(self) -> dict[str, JobEnvironment]:
        """What the job would find on each node, started its own way; a node that cannot be surveyed is excluded."""
        texts = self._by_srun(self.slurm) if self.slurm else self._by_ssh()
        surveys = {name: parse_survey(text) for name, text in texts.items()}
        self.pool.exclude(Excluded(n, "unknown", own.why) for n, own in surveys.items() if isinstance(own, Unknown))
        self.log.add("reach", self._gone(), f"{len(self.pool.hosts)} nodes by {'srun' if self.slurm else 'ssh'}")
        return {name: own for name, own in surveys.items() if isinstance(own, JobEnvironment)}

    def _gone(self) -> list[Cause]:
        """The nodes that are excluded and that no cause names yet."""
        named = {node for cause in self.log.causes for node in cause.nodes}
        fix = "bring these nodes back, or take them out of the job"
        missing = [reason for node, reason in self.pool.excluded.items() if node not in named]
        return [Cause("reach", (reason.host,), reason.why, fix) for reason in missing]

    def _by_ssh(self) -> dict[str, str]:
        answers = self.pool.ask([survey.by_ssh(self.command.program)])
        return {name: answer.out for name, (answer,) in answers.items()}

    def _by_srun(self, slurm: Slurm) -> dict[str, str]:
        """The same as one step of Slurm's; nodes where it does not run are excluded with Slurm's reason."""
        nodes = slurm.nodes(list(self.pool.hosts.values()))
        if isinstance(nodes, Unknown):
            self.pool.exclude([Excluded(name, "unknown", nodes.why) for name in self.pool.hosts])
            return {}
        names = {node.name: name for name, node in nodes.items()}
        answer = slurm.machine.run(survey.by_srun(self.command.program, list(names)))
        texts = {names[node]: text for node, text in survey.by_node(answer).items() if node in names}
        why = f"srun does not start there: {answer.last_words() or 'it says nothing'}"
        silent = {name: why if name in nodes else NO_SUCH_NODE.why for name in self.pool.hosts if name not in texts}
        self.pool.exclude([excluded_by(name, NodeError(name, reason)) for name, reason in silent.items()])
        return texts

    def _check_rendezvous(self, settings: Mapping[str, Mapping[str, str]]) -> None:
        self.activity("interfaces and the rendezvous")
        with mesh(self.pool) as ask:
            rendezvous = Rendezvous(self.pool, self.command, ask)
            self.log.add("interface", rendezvous.interfaces(settings))
            where = f"{self.command.master}:{self.command.port}" if self.command.master else ""
            self.log.add("meeting", rendezvous.place(), where)

    def _test_network(self, *, over_rdma: bool) -> None:
        """Names, clocks, TCP between all, whole packets, and rails that agree."""
        ladder = Ladder(self.pool, over_rdma=over_rdma, writes=False, on_test=self.activity)
        failures = [Cause(f.test, f.nodes, f.why, f.do) for f in ladder.run() if f.test != "memlock"]
        self.log.add("network", failures, f"{len(self.pool.hosts)} nodes reach each other")

    def _account_for_all(self) -> None:
        """A node that was lost meanwhile keeps the job from starting too."""
        lost = self._gone()
        if lost:
            self.log.add("reach", lost)

    def _all_reduce(self) -> None:
        """One all-reduce on exactly the nodes of the job, unless another process uses one of them."""
        self.activity("all-reduce")
        if not self.pool.excluded:
            self._in_use = {n: reason for n, idleness in self.monitor.prove().items() if (reason := idleness.excluded)}
            self._account_for_all()
        if self.pool.excluded:
            self.log.skip("all-reduce", "not on all nodes of the job")
            return
        if self._in_use:
            fix = "wait for it, or take {} out of the job"
            self.log.add("idle", [Cause("busy", (n,), used.why, fix.format(n)) for n, used in self._in_use.items()])
            self.log.skip("all-reduce", "somebody computes there")
            return
        figure, engine = self.measure(self.pool)
        if figure.gb_per_s is not None:
            self.log.add("all-reduce", (), f"{figure.gb_per_s:.1f} GB/s over {len(self.pool.hosts)} nodes by {engine}")
        elif figure.trouble:
            why, fix = f"{figure.trouble} by {engine}: {figure.detail}", f"to find the part: {propose('allreduce')}"
            self.log.add("all-reduce", [Cause("all-reduce", figure.absent, why, fix)])
        else:
            self.log.skip("all-reduce", figure.detail)


def _merged(causes: Iterable[Cause]) -> list[Cause]:
    """One cause for all nodes that have it in common."""
    nodes: dict[Cause, tuple[str, ...]] = {}
    for cause in causes:
        key = replace(cause, nodes=())
        nodes[key] = (*nodes.get(key, ()), *cause.nodes)
    return [replace(cause, nodes=tuple(dict.fromkeys(own))) for cause, own in nodes.items()]


def _up(facts: Facts) -> tuple[IbPort, ...]:
    ports = facts[ib_ports]
    return () if isinstance(ports, Unknown) else tuple(port for port in ports if port.state == "Active")


def _table(facts: Facts) -> tuple[Gid, ...]:
    table = facts[gids]
    return () if isinstance(table, Unknown) else table


def _versions(surveys: Mapping[str, JobEnvironment]) -> str:
    """What all nodes have in common."""
    first = next(iter(surveys.values()), JobEnvironment())
    versions = (("", first.program), ("Python", first.python), ("torch", first.torch), ("NCCL", first.nccl))
    return ", ".join(f"{label} {version}".strip() for label, version in versions if version)

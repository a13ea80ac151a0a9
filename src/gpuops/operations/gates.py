"""Gates of onboarding, built from the playbooks, checks and measurements that other operations use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from gpuops.assessment import assess
from gpuops.cancellation import CancelToken
from gpuops.collective.measurement import Measurement
from gpuops.collective.request import MeasureRequest
from gpuops.errors import CancelledError, UnfinishedError
from gpuops.facts import Facts
from gpuops.inventory import Host
from gpuops.isolation.rounds import Scope
from gpuops.judging import Level, Verdict, choose, probes_of, waive
from gpuops.lifecycle.fingerprint import NEEDS, fingerprint_of
from gpuops.lifecycle.gates import PAIR
from gpuops.lifecycle.life import Attempt, NodeLifecycle
from gpuops.lifecycle.states import state_of
from gpuops.operations import burn_in, measure
from gpuops.operations.health import profiles_of, quick_probes, unhealthy, without_gpus
from gpuops.operations.provision import carry_out, plan
from gpuops.operations.reopening import not_passing_now, still_unproved
from gpuops.playbook.play import Playbook, Step
from gpuops.playbook.record import Record
from gpuops.probes.host.lspci import gpu_functions
from gpuops.probes.nvidia.nvidia_smi import smi
from gpuops.probing import Probe, Unknown
from gpuops.proposal import propose
from gpuops.reasons import Excluded, Objection
from gpuops.requests import OnboardRequest, ProvisionRequest
from gpuops.workspace import Workspace

Objections = Mapping[str, Objection]
_ASKED_FIRST = "preflight"
"""The tag of the playbook steps that must succeed before anything is changed."""
_MOST_NEIGHBOURS = 4
"""Admitted nodes to try as partners: one idle node is enough, but some may be busy."""


@dataclass
class Gates:
    """Gates of one run over the hosts of ``work``; neighbours come from its whole inventory.

    ``stopping`` ends what is asked and measured, and lets running changes complete. Several threads may use it, each
    for other hosts.
    """

    work: Workspace
    life: NodeLifecycle
    request: OnboardRequest
    stopping: CancelToken = field(default_factory=CancelToken)
    asks_first: bool = field(default=False, init=False)
    steps: int = field(default=0, init=False)
    _book: Playbook = field(init=False)
    _abandoning: CancelToken = field(default_factory=CancelToken, init=False)
    _pairing: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        """Raise `InputError` if the playbook does not fit the hosts, before any host is asked."""
        chosen = plan(self.work, ProvisionRequest(self.request.playbook))
        self.steps = sum(isinstance(step, Step) for play in chosen.plays for step in play.steps)
        self.asks_first, self._book = _ASKED_FIRST in chosen.tags, chosen.book

    def cancel_all(self) -> None:
        """End everything, also running changes."""
        self.stopping.cancel()
        self._abandoning.cancel()

    @property
    def attempts(self) -> dict[str, Attempt]:
        """Every gate by name, except those that the request skips."""
        attempts: dict[str, Attempt] = {
            "facts": self.facts,
            "preflight": self.preflight,
            "provision": self.provision,
            "second-pass": self.second_pass,
            "burn-in": self.burn_in,
            "validate": self.validate,
            "pair": self.pair,
            "admit": self.admit,
        }
        return {name: attempt for name, attempt in attempts.items() if name not in self.request.without}

    def facts(self, hosts: Sequence[Host]) -> Objections:
        """Check that hosts answer, close admitted ones that are ill or another machine, and keep jobs from starting."""
        known = self._facts_of_admitted(hosts)
        objections = self._ill_though_admitted(known) if known else {}
        objections |= self._compare_fingerprints([host for host in hosts if host.name not in objections], known)
        return {**objections, **self.life.drain([h for h in hosts if h.name not in objections], "onboarding")}

    def preflight(self, hosts: Sequence[Host]) -> Objections:
        """Check that all GPUs are on the bus and that the playbook's steps tagged preflight succeed."""
        objections = _objections(self._play(hosts, check=True, tags=(_ASKED_FIRST,))) if self.asks_first else {}
        return {**objections, **self._without_gpus(hosts)}

    def provision(self, hosts: Sequence[Host]) -> Objections:
        """Run the playbook; every step must take effect."""
        return _objections(self._play(hosts, check=False), self._what_is_left)

    def _what_is_left(self, node: str) -> str:
        words = ("--limit", node, "--check", "--diff")
        return propose("provision", self.request.playbook, *words)

    def second_pass(self, hosts: Sequence[Host]) -> Objections:
        """Check that check mode would change nothing, and read the nodes' fingerprints again."""
        record = self._play(hosts, check=True)
        drifted = _drift(record, self._what_is_left)
        return {**drifted, **self._compare_fingerprints(hosts), **_objections(record)}

    def burn_in(self, hosts: Sequence[Host]) -> Objections:
        """Burn in the nodes and judge the result with the burn-in checks."""
        work = self._of(hosts)
        gathered = work.nodes.gather(measure.probes(work))
        gathered.raise_if_interrupted()
        request = MeasureRequest(engine=self.request.engine)
        result = burn_in.burn(work, request, gathered.values, self.request.burn_in)
        _stop_if(interrupted=result.interrupted)
        excluded = {**gathered.excluded, **result.excluded}
        judged = {
            **_without_any_gpu(work, result.facts),
            **self._judged("burn-in", work, result.facts, "burnin", ("burnin",)),
        }
        return _together(judged, excluded)

    def validate(self, hosts: Sequence[Host]) -> Objections:
        """Run every check, and the all-reduce within each node that has several GPUs."""
        work = self._of(hosts)
        probes = probes_of(choose(work.catalogue.checks(), "standard"))
        measurement = self._measured(work, ("node",), [probe for probe in probes if probe.cost != "heavy"])
        if not measurement.evidence.rounds:
            work.note("no all-reduce was measured within these nodes")
        skip = () if measurement.evidence.rounds else ("all-reduce-bandwidth",)
        facts = measurement.facts
        judged = {**_without_any_gpu(work, facts), **self._judged("validate", work, facts, "standard", skip=skip)}
        return _together(judged, measurement.excluded)

    def pair(self, hosts: Sequence[Host]) -> Objections:
        """Run the all-reduce between each node and an admitted one, or between the nodes if none is admitted."""
        neighbours = self._neighbours(hosts)
        if len(hosts) + len(neighbours) < 2:
            why = "left out: no node is admitted yet, so there is no partner for the pair test"
            return {host.name: Objection(why, severity="left_out") for host in hosts}
        names, work = {host.name for host in hosts}, self._of((*hosts, *neighbours))
        with self._pairing:  # two groups may have the same neighbours
            measurement = self._measured(work, ("rail", "pair"))
        excluded = measurement.excluded
        if neighbours and all(host.name in excluded for host in neighbours):
            reasons = "; ".join(f"{host.name} {excluded[host.name].why}" for host in neighbours)
            why = f"no admitted neighbour could take part: {reasons}"
            return {name: Objection(why, severity="incomplete") for name in names}
        judged = self._judged(PAIR, work, measurement.facts, "standard", only=("all-reduce-bandwidth",))
        return {name: why for name, why in _together(judged, excluded).items() if name in names}

    def admit(self, hosts: Sequence[Host]) -> Objections:
        """Check the nodes once more, and let jobs start."""
        objections = self._unhealthy(hosts) if "validate" not in self.request.without else self._unproved(hosts)
        complaints = self.life.scheduler.resume([host for host in hosts if host.name not in objections])
        return {**objections, **{name: Objection(why) for name, why in complaints.items()}}

    def _unproved(self, hosts: Sequence[Host]) -> dict[str, Objection]:
        """Object to nodes with a check that closed them and has not passed since."""
        return still_unproved({host.name: self.life.unproved(host.name) for host in hosts}, (), ())

    def _unhealthy(self, hosts: Sequence[Host]) -> dict[str, Objection]:
        """Object to nodes that now fail a quick check: they may have passed their gates weeks ago."""
        work = self._of(hosts)
        gathered = work.nodes.gather(quick_probes(work.catalogue), "checking once more")
        gathered.raise_if_interrupted()
        profiles = profiles_of(work.hosts, gathered.values, work.catalogue)
        failing = unhealthy(gathered.values, profiles, work.catalogue, (), work.waivers())
        excluded = {**gathered.excluded, **failing}
        unproved = {node: self.life.unproved(node) for node in gathered.values}
        not_shown = not_passing_now(work, gathered.values, unproved)
        return {**not_shown, **{node: _untested(each) for node, each in excluded.items()}}

    def _facts_of_admitted(self, hosts: Sequence[Host]) -> dict[str, Facts]:
        """Return what the quick checks need of the admitted nodes that answer, and their fingerprints."""
        events = self.life.store.latest_by_node()
        admitted = [host for host in hosts if state_of(events.get(host.name)) == "admitted"]
        if not admitted:
            return {}
        gathered = self._of(admitted).nodes.gather(quick_probes(self.work.catalogue, *NEEDS), "checking admitted nodes")
        gathered.raise_if_interrupted()
        return gathered.values

    def _ill_though_admitted(self, facts_by_node: Mapping[str, Facts]) -> dict[str, Objection]:
        """Close admitted nodes that fail a quick check; return the objections to them."""
        work = self.work.of(facts_by_node)
        judged = self._judged("facts", work, facts_by_node, "quick")
        failed = [host for host in work.hosts if host.name in judged and judged[host.name].severity == "failed"]
        return {host.name: self.life.close(host, "facts", judged[host.name]) for host in failed}

    def _without_gpus(self, hosts: Sequence[Host]) -> dict[str, Objection]:
        """Object to nodes that do not have their profile's number of GPUs; lspci counts them even without a driver."""
        work = self._of(hosts)
        gathered = work.nodes.gather([gpu_functions, smi], "counting GPUs")
        gathered.raise_if_interrupted()
        profiles = profiles_of(work.hosts, gathered.values, work.catalogue)
        expected = {name: profile.get("gpu.count") for name, profile in profiles.items()}
        miscounts = {name: _miscounted(gathered.values[name], count) for name, count in expected.items() if count}
        return {**_silent(gathered.excluded), **{name: each for name, each in miscounts.items() if each}}

    def _compare_fingerprints(
        self, hosts: Sequence[Host], known: Mapping[str, Facts] = MappingProxyType({})
    ) -> dict[str, Objection]:
        """Object to nodes that do not answer or whose fingerprint has changed; of ``known`` facts nothing is asked."""
        gathered = self._of(hosts).nodes.gather(NEEDS, "reading fingerprints", facts=known)
        gathered.raise_if_interrupted()
        fingerprints = {node: fingerprint_of(facts) for node, facts in gathered.values.items()}
        return {**_silent(gathered.excluded), **self.life.compare_fingerprints(hosts, fingerprints)}

    def _of(self, hosts: Iterable[Host]) -> Workspace:
        return self.work.of((host.name for host in hosts), self.stopping)

    def _play(self, hosts: Sequence[Host], *, check: bool, tags: tuple[str, ...] = ()) -> Record:
        asked = ProvisionRequest(self._book, check=check, tags=tags, break_lock=self.request.break_lock)
        work = self.work.of((host.name for host in hosts), self._abandoning)
        record = carry_out(work, plan(work, asked), asked, cancel=self.stopping, announces=False)
        if record.interrupted:
            raise UnfinishedError(_interrupted_in(record))
        return record

    def _measured(self, work: Workspace, scopes: tuple[Scope, ...], more: Sequence[Probe[Any]] = ()) -> Measurement:
        """Measure the all-reduce in ``scopes``; the facts include the answers to ``more``."""
        measurement = measure.measure_asking(work, MeasureRequest(engine=self.request.engine, scopes=scopes), more)
        _stop_if(interrupted=measurement.interrupted)
        return measurement

    def _judged(
        self,
        gate: str,
        work: Workspace,
        facts_by_node: Mapping[str, Facts],
        level: Level,
        only: tuple[str, ...] = (),
        skip: tuple[str, ...] = (),
    ) -> dict[str, Objection]:
        """Object to nodes that fail a check of ``level`` or cannot be judged by it.

        As in `validate`, what the profile does not require may stay unknown, unless a load was to show it. A check that
        closed a node at this ``gate`` has to pass.
        """
        checks, known = choose(work.catalogue.checks(), level, only, skip), work.catalogue.checks()
        unproved = {node: [u for u in self.life.unproved(node) if u.check.gate == gate] for node in facts_by_node}
        chosen = {check.name for check in checks}
        again = {each.check.name for own in unproved.values() for each in own} - chosen
        profiles = profiles_of(work.hosts, facts_by_node, work.catalogue)
        judged = assess([*checks, *(known[name] for name in sorted(again))], facts_by_node, profiles)
        verdicts = [verdict for verdict in waive(judged, work.waivers()) if verdict.node]
        counted = (
            v
            for v in verdicts
            if v.check in chosen and (v.status != "unknown" or v.not_measured or v.check in profiles[v.node].required)
        )
        not_shown = still_unproved(unproved, verdicts, [each for own in unproved.values() for each in own])
        return {**not_shown, **dict(_first_of_each(counted, level))}

    def _neighbours(self, hosts: Sequence[Host]) -> list[Host]:
        """Return admitted nodes with the same profiles, those in the same racks first."""
        events = self.life.store.latest_by_node()
        names, profiles = {host.name for host in hosts}, {host.profile for host in hosts}
        racks = {host.rack for host in hosts}
        peers = [
            host
            for host in self.work.whole.hosts
            if host.name not in names and host.profile in profiles and not host.unusable_reason
            if host.name in events and events[host.name].state == "admitted"
        ]
        return sorted(peers, key=lambda host: host.rack not in racks)[:_MOST_NEIGHBOURS]


def _without_any_gpu(work: Workspace, facts_by_node: Mapping[str, Facts]) -> dict[str, Objection]:
    """Object to nodes that have no GPU if nothing says that they should have none."""
    return _silent(without_gpus(facts_by_node, profiles_of(work.hosts, facts_by_node, work.catalogue)))


def _silent(excluded: Mapping[str, Excluded]) -> dict[str, Objection]:
    return {node: Objection(each.why, severity="incomplete", excluded=each) for node, each in excluded.items()}


def _miscounted(facts: Facts, expected: int) -> Objection | None:
    """Object to a node if the number of GPUs on its bus is not ``expected`` or is unknown."""
    functions = facts[gpu_functions]
    if isinstance(functions, Unknown):
        return Objection(f"cannot count its GPUs: {functions.why}", severity="incomplete")
    count = sum(function.is_gpu and not function.off_the_bus for function in functions)
    if count == expected:
        return None
    why = f"{count} GPUs on its bus (its profile expects {expected})"
    return Objection(why, "power-cycle it; reseat missing GPUs")


def _stop_if(*, interrupted: bool) -> None:
    if interrupted:
        raise CancelledError("interrupted")


def _interrupted_in(record: Record) -> str:
    """Return the step during which a playbook was interrupted, and what became of it; empty between two steps."""
    return next((f"{each.name}: {each.why}" for each in record.results if each.status == "interrupted"), "")


def _together(judged: Objections, excluded: Mapping[str, Excluded]) -> dict[str, Objection]:
    """Return failed checks, else the exclusion of a node, which explains what could not be judged."""
    failed = {node: objection for node, objection in judged.items() if objection.severity == "failed"}
    return {**judged, **{node: _untested(each) for node, each in excluded.items()}, **failed}


def _untested(excluded: Excluded) -> Objection:
    """Return the objection to an excluded node: it is unhealthy, or it was not measured."""
    do = propose("validate", "--limit", excluded.host)
    severity: Literal["failed", "incomplete"] = "failed" if excluded.kind == "unhealthy" else "incomplete"
    return Objection(excluded.why, do, severity, excluded, excluded.checks)


def _first_of_each(verdicts: Iterable[Verdict], level: Level) -> Iterator[tuple[str, Objection]]:
    """Yield the objections to each node, the most severe last, so that a dict keeps it, with all checks that fail."""
    order, verdicts = ("unknown", "fail"), list(verdicts)
    failed: dict[str, list[str]] = {}
    for verdict in verdicts:
        failed.setdefault(verdict.node, []).extend([verdict.check] if verdict.status == "fail" else [])
    for verdict in sorted((v for v in verdicts if v.status in order), key=lambda v: order.index(v.status)):
        finding = next(iter(verdict.findings), None)
        what = finding.message if finding else verdict.why
        where = f" ({finding.part})" if finding else ""
        do = finding.fix if finding else f"gpuops checks explain {verdict.check}"
        why = f"{verdict.check}: {what}{where}"
        severity: Literal["failed", "incomplete"] = "failed" if verdict.status == "fail" else "incomplete"
        yield verdict.node, Objection(why, do, severity, checks=tuple(failed[verdict.node]), level=level)


def _objections(record: Record, advice: Callable[[str], str] = lambda _: "") -> dict[str, Objection]:
    """Object to nodes that did not finish a playbook; ``advice`` is for a node on which a step failed."""
    locked = "; ".join(map(str, record.locked))
    stopped = Objection(record.stopped or "the playbook has no step for it")
    objections = dict.fromkeys(record.untouched, Objection(locked, severity="locked") if locked else stopped)
    for result in record.results:
        if result.out:
            why = f"{result.name}: {result.why}"
            failed = Objection(why, advice(result.node))
            objections[result.node] = failed if result.status == "failed" else Objection(why, severity="incomplete")
    return objections


def _drift(record: Record, advice: Callable[[str], str]) -> dict[str, Objection]:
    """Object to nodes on which check mode would change something, or cannot predict it."""
    steps: dict[str, list[str]] = {}
    for result in record.results:
        if result.status in ("would_change", "later"):
            steps.setdefault(result.node, []).append(result.name)
    return {
        node: Objection(f"differs from the playbook: {', '.join(names)}", advice(node)) for node, names in steps.items()
    }

"""How each gate of onboarding is tried: with the playbooks, checks and measurements that other operations have too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpuops.assessment import assess
from gpuops.collective.measurement import Measurement
from gpuops.collective.request import MeasureRequest
from gpuops.errors import CancelledError
from gpuops.facts import Facts
from gpuops.inventory import Host
from gpuops.isolation.rounds import Scope
from gpuops.judging import Level, Verdict, choose
from gpuops.lifecycle.fingerprint import NEEDS, fingerprint_of
from gpuops.lifecycle.life import Attempt, NodeLifecycle
from gpuops.operations import burn_in, measure
from gpuops.operations.health import profiles_of, quick_probes, unhealthy, without_gpus
from gpuops.operations.provision import plan, provision
from gpuops.playbook.record import Record
from gpuops.probes.host.lspci import gpu_functions
from gpuops.probes.nvidia.nvidia_smi import smi
from gpuops.probing import Unknown
from gpuops.reasons import Excluded, Objection
from gpuops.requests import OnboardRequest, ProvisionRequest
from gpuops.workspace import Workspace

Objections = Mapping[str, Objection]
_ASKED_FIRST = "preflight"
"""The tag of a playbook's steps that must hold before anything is changed."""
_WHAT_IS_LEFT = "--limit {} --check --diff tells what is left"
_MOST_NEIGHBOURS = 4
"""Admitted nodes that are asked for a pair: some may be busy, and one that is idle is enough."""


@dataclass
class Gates:
    """The gates of one run over ``work``'s hosts; neighbours are sought among all of its hosts."""

    work: Workspace
    life: NodeLifecycle
    request: OnboardRequest
    asks_first: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Check that the playbook fits the hosts; `InputError` otherwise, before any is asked."""
        self.asks_first = _ASKED_FIRST in plan(self.work, ProvisionRequest(self.request.playbook)).tags

    @property
    def attempts(self) -> dict[str, Attempt]:
        """Every gate by name, without those that are left out."""
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
        """They answer; one that is another machine than the one that was admitted is demoted; no job starts."""
        objections = self._compare_fingerprints(hosts)
        return {**objections, **self.life.drain([h for h in hosts if h.name not in objections], "onboarding")}

    def preflight(self, hosts: Sequence[Host]) -> Objections:
        """All GPUs are on the bus, and the playbook's steps tagged preflight hold."""
        objections = _objections(self._play(hosts, check=True, tags=(_ASKED_FIRST,))) if self.asks_first else {}
        return {**objections, **self._without_gpus(hosts)}

    def provision(self, hosts: Sequence[Host]) -> Objections:
        """Every step took effect."""
        return _objections(self._play(hosts, check=False), f"gpuops provision {self.request.playbook} {_WHAT_IS_LEFT}")

    def second_pass(self, hosts: Sequence[Host]) -> Objections:
        """Check mode finds nothing; what the nodes are from now on is asked again."""
        record = self._play(hosts, check=True)
        drifted = _drift(record, f"gpuops provision {self.request.playbook} {_WHAT_IS_LEFT}")
        return {**drifted, **self._compare_fingerprints(hosts), **_objections(record)}

    def burn_in(self, hosts: Sequence[Host]) -> Objections:
        """The checks of the burn-in, on what it showed."""
        work = self._of(hosts)
        gathered = work.nodes.gather(measure.probes(work))
        gathered.raise_if_interrupted()
        request = MeasureRequest(engine=self.request.engine)
        result = burn_in.burn(work, request, gathered.values, self.request.burn_in)
        _stop_if(interrupted=result.interrupted)
        excluded = {**gathered.excluded, **result.excluded}
        return _together(self._judged(work, result.facts, "burnin", only=("burnin",)), excluded)

    def validate(self, hosts: Sequence[Host]) -> Objections:
        """Every check, and the all-reduce within each node that has several GPUs."""
        work = self._of(hosts)
        measurement = self._measured(work, ("node",))
        if not measurement.evidence.rounds:
            work.note("no all-reduce within these nodes was measured")
        skip = () if measurement.evidence.rounds else ("all-reduce-bandwidth",)
        return _together(self._judged(work, measurement.facts, "standard", skip=skip), measurement.excluded)

    def pair(self, hosts: Sequence[Host]) -> Objections:
        """The all-reduce between each node and one that is admitted; while none is, between the nodes themselves."""
        neighbours = self._neighbours(hosts)
        if len(hosts) + len(neighbours) < 2:
            why = "left out: no node is admitted yet, so there is nobody to be measured with"
            return {host.name: Objection(why, severity="left_out") for host in hosts}
        names, work = {host.name for host in hosts}, self._of((*hosts, *neighbours))
        measurement = self._measured(work, ("rail", "pair"))
        excluded = measurement.excluded
        if neighbours and all(host.name in excluded for host in neighbours):
            reasons = "; ".join(f"{host.name} {excluded[host.name].why}" for host in neighbours)
            why = f"no admitted neighbour could take part: {reasons}"
            return {name: Objection(why, severity="incomplete") for name in names}
        judged = self._judged(work, measurement.facts, "standard", only=("all-reduce-bandwidth",))
        return {name: why for name, why in _together(judged, excluded).items() if name in names}

    def admit(self, hosts: Sequence[Host]) -> Objections:
        """Look once more, and let jobs start."""
        objections = self._unhealthy(hosts) if "validate" not in self.request.without else {}
        complaints = self.life.scheduler.resume([host for host in hosts if host.name not in objections])
        return {**objections, **{name: Objection(why) for name, why in complaints.items()}}

    def _unhealthy(self, hosts: Sequence[Host]) -> dict[str, Objection]:
        """Object to nodes that fail a quick check by now: what they passed may be weeks old."""
        work = self._of(hosts)
        gathered = work.nodes.gather(quick_probes(work.catalogue), "looking once more")
        gathered.raise_if_interrupted()
        profiles = profiles_of(work.hosts, gathered.values, work.catalogue)
        excluded = {**gathered.excluded, **unhealthy(gathered.values, profiles, work.catalogue)}
        return {node: _untested(each) for node, each in excluded.items()}

    def _without_gpus(self, hosts: Sequence[Host]) -> dict[str, Objection]:
        """Object to nodes with another number of GPUs than their profile; without a driver, lspci alone has it."""
        work = self._of(hosts)
        gathered = work.nodes.gather([gpu_functions, smi], "counting GPUs")
        gathered.raise_if_interrupted()
        profiles = profiles_of(work.hosts, gathered.values, work.catalogue)
        expected = {name: profile.get("gpu.count") for name, profile in profiles.items()}
        miscounts = {name: _miscounted(gathered.values[name], count) for name, count in expected.items() if count}
        return {**_silent(gathered.excluded), **{name: each for name, each in miscounts.items() if each}}

    def _compare_fingerprints(self, hosts: Sequence[Host]) -> dict[str, Objection]:
        """Object to nodes that do not answer, and to those that are not what they were."""
        gathered = self._of(hosts).nodes.gather(NEEDS, "what the nodes are")
        gathered.raise_if_interrupted()
        fingerprints = {node: fingerprint_of(facts) for node, facts in gathered.values.items()}
        return {**_silent(gathered.excluded), **self.life.compare_fingerprints(hosts, fingerprints)}

    def _of(self, hosts: Iterable[Host]) -> Workspace:
        return self.work.of(host.name for host in hosts)

    def _play(self, hosts: Sequence[Host], *, check: bool, tags: tuple[str, ...] = ()) -> Record:
        asked = ProvisionRequest(self.request.playbook, check=check, tags=tags, break_lock=self.request.break_lock)
        record = provision(self._of(hosts), asked)
        _stop_if(interrupted=record.interrupted)
        return record

    def _measured(self, work: Workspace, scopes: tuple[Scope, ...]) -> Measurement:
        """What the all-reduce shows of the nodes."""
        measurement = measure.measure(work, MeasureRequest(engine=self.request.engine, scopes=scopes))
        _stop_if(interrupted=measurement.interrupted)
        return measurement

    def _judged(
        self,
        work: Workspace,
        facts_by_node: Mapping[str, Facts],
        level: Level,
        only: tuple[str, ...] = (),
        skip: tuple[str, ...] = (),
    ) -> dict[str, Objection]:
        """What the checks of a level object to, or cannot judge."""
        checks = choose(work.catalogue.checks(), level, only, skip)
        profiles = profiles_of(work.hosts, facts_by_node, work.catalogue)
        verdicts = assess(checks, facts_by_node, profiles)
        objections = dict(_first_of_each(verdict for verdict in verdicts if verdict.node))
        return {**_silent(without_gpus(facts_by_node, profiles)), **objections}

    def _neighbours(self, hosts: Sequence[Host]) -> list[Host]:
        """Admitted nodes of the same profiles, those of the same racks first."""
        events = self.life.store.latest_by_node()
        names, profiles = {host.name for host in hosts}, {host.profile for host in hosts}
        racks = {host.rack for host in hosts}
        peers = [
            host
            for host in self.work.whole.hosts
            if host.name not in names and host.profile in profiles
            if host.name in events and events[host.name].state == "admitted"
        ]
        return sorted(peers, key=lambda host: host.rack not in racks)[:_MOST_NEIGHBOURS]


def _silent(excluded: Mapping[str, Excluded]) -> dict[str, Objection]:
    return {node: Objection(each.why, severity="incomplete", excluded=each) for node, each in excluded.items()}


def _miscounted(facts: Facts, expected: int) -> Objection | None:
    """Object to a node without the ``expected`` number of GPUs on its bus, or whose GPUs cannot be counted."""
    functions = facts[gpu_functions]
    if isinstance(functions, Unknown):
        return Objection(f"its GPUs cannot be counted: {functions.why}", severity="incomplete")
    count = sum(function.is_gpu and not function.off_the_bus for function in functions)
    if count == expected:
        return None
    why = f"{count} GPUs are on its bus, and its profile has {expected}"
    return Objection(why, "power-cycle it; reseat what is missing")


def _stop_if(*, interrupted: bool) -> None:
    if interrupted:
        raise CancelledError("interrupted")


def _together(judged: Objections, excluded: Mapping[str, Excluded]) -> dict[str, Objection]:
    """Failures of the checks, else why nodes were ``excluded``, which explains what could not be judged."""
    failed = {node: objection for node, objection in judged.items() if objection.severity == "failed"}
    return {**judged, **{node: _untested(each) for node, each in excluded.items()}, **failed}


def _untested(excluded: Excluded) -> Objection:
    """What objects to a node that took no part: that it is unhealthy, or that nothing was measured of it."""
    do = f"gpuops validate --limit {excluded.host} tells more"
    return Objection(excluded.why, do, "failed" if excluded.kind == "unhealthy" else "incomplete", excluded)


def _first_of_each(verdicts: Iterable[Verdict]) -> Iterator[tuple[str, Objection]]:
    """The objections of each node, the gravest last: that one counts in a dict."""
    order = ("unknown", "fail")
    for verdict in sorted((v for v in verdicts if v.status in order), key=lambda v: order.index(v.status)):
        finding = next(iter(verdict.findings), None)
        what = finding.message if finding else verdict.why
        where = f" ({finding.part})" if finding else ""
        do = finding.fix if finding else f"gpuops checks explain {verdict.check}"
        why = f"{verdict.check}: {what}{where}"
        yield verdict.node, Objection(why, do, "failed" if verdict.status == "fail" else "incomplete")


def _objections(record: Record, advice: str = "") -> dict[str, Objection]:
    """Object to nodes that did not come to the end of a playbook; ``advice`` has a place for a failed node."""
    locked = "; ".join(map(str, record.locked))
    stopped = Objection(record.stopped or "the playbook has no step for it")
    objections = dict.fromkeys(record.untouched, Objection(locked, severity="locked") if locked else stopped)
    for result in record.results:
        if result.out:
            why = f"{result.name}: {result.why}"
            failed = Objection(why, advice.format(result.node))
            objections[result.node] = failed if result.status == "failed" else Objection(why, severity="incomplete")
    return objections


def _drift(record: Record, advice: str) -> dict[str, Objection]:
    """Object to nodes on which check mode would change something, or cannot tell."""
    steps: dict[str, list[str]] = {}
    for result in record.results:
        if result.status in ("would_change", "later"):
            steps.setdefault(result.node, []).append(result.name)
    return {
        node: Objection(f"not as the playbook says: {', '.join(names)}", advice.format(node))
        for node, names in steps.items()
    }

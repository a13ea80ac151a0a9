"""Attempts at the gates of onboarding, with the playbooks, checks and measurements that other verbs have too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuops.cli._life import fingerprints, with_hosts
from gpuops.cli._options import Target, tell
from gpuops.lifecycle.life import Attempt, NodeLifecycle
from gpuops.reasons import Excluded, Objection

if TYPE_CHECKING:
    from pathlib import Path

    from gpuops.collective.measurement import Measurement
    from gpuops.facts import Facts
    from gpuops.inventory import Host
    from gpuops.isolation.rounds import Scope
    from gpuops.judging import Level, Verdict
    from gpuops.playbook.provisioning import PlaybookRun
    from gpuops.playbook.running import RunState

Objections = Mapping[str, Objection]
_PREFLIGHT_TAG = "preflight"
"""Tag of a playbook's steps that must hold before anything is changed."""
_SHOW_REST = "--limit {} --check --diff tells what is left"
_MOST_NEIGHBOURS = 4
"""Admitted nodes that may take part in a pair: some may be busy, and one that is idle is enough."""


@dataclass
class Gates:
    """Gates of one run over nodes of ``target``; those in ``without`` are left out."""

    target: Target
    life: NodeLifecycle
    playbook: str
    engine: str = "auto"
    burn_seconds: float = 1800.0
    group: str = ""
    without: frozenset[str] = frozenset()
    break_lock: bool = False

    has_preflight: bool = field(default=False, init=False)

    def check(self, hosts: Sequence[Host]) -> None:
        """Raise `InputError` if the playbook does not fit ``hosts`` or the group is missing; no node is asked."""
        from gpuops.cli._play import tags_of

        self.has_preflight = _PREFLIGHT_TAG in tags_of(self._target_of(hosts), self.playbook)
        if self.group:
            self._inventory_with(hosts[0].name)

    @property
    def attempts(self) -> dict[str, Attempt]:
        """The attempt at each gate by its name."""
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
        return {name: attempt for name, attempt in attempts.items() if name not in self.without}

    def facts(self, hosts: Sequence[Host]) -> Objections:
        """Compare fingerprints and drain; an admitted node that is another machine is demoted."""
        objections = self._compare_fingerprints(hosts)
        return {**objections, **self.life.drain([h for h in hosts if h.name not in objections], "onboarding")}

    def preflight(self, hosts: Sequence[Host]) -> Objections:
        """Require all GPUs on the bus, and the playbook's steps tagged preflight."""
        objections = _objections(*self._play(hosts, check=True, tags=(_PREFLIGHT_TAG,))) if self.has_preflight else {}
        return {**objections, **self._without_gpus(hosts)}

    def provision(self, hosts: Sequence[Host]) -> Objections:
        """Run the playbook; every step must take effect."""
        return _objections(*self._play(hosts, check=False), f"gpuops provision {self.playbook} {_SHOW_REST}")

    def second_pass(self, hosts: Sequence[Host]) -> Objections:
        """Run check mode, which must find nothing, and read the fingerprints that the nodes have now."""
        record, work = self._play(hosts, check=True)
        drift = _drift(record, f"gpuops provision {self.playbook} {_SHOW_REST}")
        return {**drift, **self._compare_fingerprints(hosts), **_objections(record, work)}

    def burn_in(self, hosts: Sequence[Host]) -> Objections:
        """Burn in, and judge what it showed."""
        from gpuops.cli._burning import burn
        from gpuops.cli._measuring import gather
        from gpuops.collective.request import MeasureRequest

        target = self._target_of(hosts)
        facts_by_node, silent = gather(target)
        result = burn(target, facts_by_node, MeasureRequest(self.engine), self.burn_seconds)
        _stop_if(interrupted=result.interrupted)
        excluded = {**silent, **result.excluded}
        return _together(self._judged(target, result.facts, "burnin", only=("burnin",)), excluded)

    def validate(self, hosts: Sequence[Host]) -> Objections:
        """Run every check, and the all-reduce within each node that has several GPUs."""
        target = self._target_of(hosts)
        measurement = self._measured(target, ("node",))
        if not measurement.evidence.rounds:
            tell("no all-reduce within these nodes was measured")
        skip = () if measurement.evidence.rounds else ("all-reduce-bandwidth",)
        return _together(self._judged(target, measurement.facts, "standard", skip=skip), measurement.excluded)

    def pair(self, hosts: Sequence[Host]) -> Objections:
        """Measure the all-reduce between each node and an admitted one, or between the nodes if none is admitted."""
        neighbours = self._neighbours(hosts)
        if len(hosts) + len(neighbours) < 2:
            alone = Objection(
                "left out: no node is admitted yet, so there is nobody to be measured with", severity="left_out"
            )
            return {host.name: alone for host in hosts}
        names, target = {host.name for host in hosts}, self._target_of((*hosts, *neighbours))
        measurement = self._measured(target, ("rail", "pair"))
        excluded = measurement.excluded
        if neighbours and all(host.name in excluded for host in neighbours):
            why = "; ".join(f"{host.name} {excluded[host.name].why}" for host in neighbours)
            return {
                name: Objection(f"no admitted neighbour could take part: {why}", severity="incomplete")
                for name in names
            }
        judged = self._judged(target, measurement.facts, "standard", only=("all-reduce-bandwidth",))
        return {name: objection for name, objection in _together(judged, excluded).items() if name in names}

    def admit(self, hosts: Sequence[Host]) -> Objections:
        """Run the quick checks once more, and let jobs start."""
        objections = self._quick_checks(hosts) if "validate" not in self.without else {}
        complaints = self.life.scheduler.resume([host for host in hosts if host.name not in objections])
        return {**objections, **{name: Objection(why) for name, why in complaints.items()}}

    def _quick_checks(self, hosts: Sequence[Host]) -> dict[str, Objection]:
        """Object to nodes that fail a quick check by now: what they passed may be weeks old."""
        from gpuops.cli._health import profiles_of, quick_probes, unhealthy
        from gpuops.cli._outcomes import gathered

        target = self._target_of(hosts)
        facts_by_node, silent = gathered(target, quick_probes(), "looking once more")
        failing = unhealthy(facts_by_node, profiles_of(target.judged_hosts, facts_by_node))
        return {node: _untested(reason) for node, reason in {**silent, **failing}.items()}

    def join(self, host: Host) -> None:
        """Write an admitted node into its group of the inventory; only warn if that fails."""
        from gpuops.errors import InputError
        from gpuops.replacing import file_lock, write_atomic

        try:
            with file_lock(self.life.store.path.with_name("inventory.lock")):
                path, text, new_text = self._inventory_with(host.name)
                if new_text != text:
                    write_atomic(path, new_text.encode(), path.stat().st_mode & 0o777)
        except (InputError, OSError) as error:
            tell(f"{host.name} is admitted, and the inventory does not say so: {error}")

    def _inventory_with(self, name: str) -> tuple[Path, str, str]:
        """Return the inventory's file, its text, and that with the node in the group; `InputError` if it cannot be."""
        from gpuops.inventory.editing import add_host_to_group
        from gpuops.inventory.inventory import find

        path = find(self.target.name).resolve()
        text = path.read_text("utf-8")
        return path, text, add_host_to_group(text, str(path), self.group, name)

    def _without_gpus(self, hosts: Sequence[Host]) -> dict[str, Objection]:
        """Object to nodes with another number of GPUs than their profile; without a driver, lspci alone has it."""
        from gpuops.cli._health import profiles_of
        from gpuops.cli._outcomes import facts_of
        from gpuops.probes.host.lspci import gpu_functions
        from gpuops.probes.nvidia.nvidia_smi import smi

        target = self._target_of(hosts)
        facts_by_node, silent = facts_of(target, [gpu_functions, smi], "counting GPUs")
        profiles = profiles_of(target.judged_hosts, facts_by_node)
        expected = {name: profile.get("gpu.count") for name, profile in profiles.items()}
        miscounts = {name: _miscounted(facts_by_node[name], count) for name, count in expected.items() if count}
        return {**_silent(silent), **{name: objection for name, objection in miscounts.items() if objection}}

    def _compare_fingerprints(self, hosts: Sequence[Host]) -> dict[str, Objection]:
        """Object to nodes that do not answer, and to those that are not what they were."""
        fingerprint_by_node, silent = fingerprints(self._target_of(hosts))
        return {**_silent(silent), **self.life.compare_fingerprints(hosts, fingerprint_by_node)}

    def _target_of(self, hosts: Iterable[Host]) -> Target:
        return with_hosts(self.target, list(hosts))

    def _play(self, hosts: Sequence[Host], *, check: bool, tags: tuple[str, ...] = ()) -> tuple[RunState, PlaybookRun]:
        from gpuops.cli._play import play

        record, work = play(self._target_of(hosts), self.playbook, check=check, tags=tags, break_lock=self.break_lock)
        _stop_if(interrupted=record.interrupted)
        return record, work

    def _measured(self, target: Target, scopes: tuple[Scope, ...]) -> Measurement:
        """Return what the all-reduce shows of the nodes; those that do not answer are excluded."""
        from dataclasses import replace

        from gpuops.cli._measuring import gather, measure
        from gpuops.collective.request import MeasureRequest

        facts_by_node, silent = gather(target)
        measurement = measure(target, facts_by_node, MeasureRequest(self.engine, scopes))
        _stop_if(interrupted=measurement.interrupted)
        return replace(measurement, excluded={**silent, **measurement.excluded})

    def _judged(
        self,
        target: Target,
        facts: Mapping[str, Facts],
        level: Level,
        only: tuple[str, ...] = (),
        skip: tuple[str, ...] = (),
    ) -> dict[str, Objection]:
        """Return what the checks of a level object to, or cannot judge."""
        from gpuops import assessment, judging
        from gpuops.cli._health import profiles_of

        checks = judging.choose(judging.discover(), level, only, skip)
        verdicts = assessment.assess(checks, facts, profiles_of(target.judged_hosts, facts))
        return dict(_first_of_each(verdict for verdict in verdicts if verdict.node))

    def _neighbours(self, hosts: Sequence[Host]) -> list[Host]:
        """Return admitted nodes of the same profiles, those of the same racks first."""
        events = self.life.store.latest_by_node()
        names, kinds = {host.name for host in hosts}, {host.profile for host in hosts}
        racks = {host.rack for host in hosts}
        peers = [
            host
            for host in self.target.hosts
            if host.name not in names and host.profile in kinds
            if host.name in events and events[host.name].state == "admitted"
        ]
        return sorted(peers, key=lambda host: host.rack not in racks)[:_MOST_NEIGHBOURS]


def _silent(silent: Mapping[str, str]) -> dict[str, Objection]:
    return {node: Objection(why, severity="incomplete") for node, why in silent.items()}


def _miscounted(facts: Facts, expected: int) -> Objection | None:
    """Object to a node without the ``expected`` number of GPUs on its bus, or whose GPUs cannot be counted."""
    from gpuops.probes.host.lspci import gpu_functions
    from gpuops.probing import Unknown

    functions = facts[gpu_functions]
    if isinstance(functions, Unknown):
        return Objection(f"its GPUs cannot be counted: {functions.why}", severity="incomplete")
    count = sum(function.is_gpu and not function.off_the_bus for function in functions)
    if count == expected:
        return None
    why = f"{count} GPUs are on its bus, and its profile has {expected}"
    return Objection(why, "power-cycle it; reseat what is missing")


def _stop_if(*, interrupted: bool) -> None:
    from gpuops.errors import CancelledError

    if interrupted:
        raise CancelledError("interrupted")


def _together(judged: Objections, excluded: Mapping[str, Excluded]) -> dict[str, Objection]:
    """Return failures of the checks, else why nodes were ``excluded``, which explains what could not be judged."""
    failed = {node: objection for node, objection in judged.items() if objection.severity == "failed"}
    return {**judged, **{node: _untested(reason) for node, reason in excluded.items()}, **failed}


def _untested(excluded: Excluded) -> Objection:
    """Return what objects to a node that took no part: that it is unhealthy, or that nothing was measured of it."""
    do = f"gpuops validate --limit {excluded.host} tells more"
    return Objection(excluded.why, do, "failed" if excluded.kind == "unhealthy" else "incomplete")


def _first_of_each(verdicts: Iterable[Verdict]) -> Iterator[tuple[str, Objection]]:
    """Yield the objections of each node, the gravest last: that one counts in a dict."""
    order = ("unknown", "fail")
    for verdict in sorted((v for v in verdicts if v.status in order), key=lambda v: order.index(v.status)):
        finding = next(iter(verdict.findings), None)
        what = finding.message if finding else verdict.why
        where = f" ({finding.part_label or finding.part})" if finding else ""
        do = finding.fix if finding else f"gpuops checks explain {verdict.check}"
        why = f"{verdict.check}: {what}{where}"
        yield verdict.node, Objection(why, do, "failed" if verdict.status == "fail" else "incomplete")


def _objections(record: RunState, work: PlaybookRun, advice: str = "") -> dict[str, Objection]:
    """Object to nodes that did not come to the end of a playbook; ``advice`` has a place for a failed node."""
    locked = "; ".join(map(str, record.locked))
    stopped = Objection(record.stopped or "the playbook has no step for it")
    objections = dict.fromkeys(work.untouched(record), Objection(locked, severity="locked") if locked else stopped)
    for result in record.results:
        if result.out:
            why = f"{result.name}: {result.why}"
            failed = Objection(why, advice.format(result.node))
            objections[result.node] = failed if result.status == "failed" else Objection(why, severity="incomplete")
    return objections


def _drift(record: RunState, advice: str) -> dict[str, Objection]:
    """Object to nodes on which check mode would change something, or cannot tell."""
    steps: dict[str, list[str]] = {}
    for result in record.results:
        if result.status in ("would_change", "later"):
            steps.setdefault(result.node, []).append(result.name)
    return {
        node: Objection(f"not as the playbook says: {', '.join(names)}", advice.format(node))
        for node, names in steps.items()
    }

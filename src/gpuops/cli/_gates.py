"""How each gate of onboarding is tried: with the playbooks, checks and measurements that other verbs have too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuops.cli._life import fingerprints, only
from gpuops.cli._options import Target, tell
from gpuops.lifecycle.life import Attempt, NodeLifecycle, Objection

if TYPE_CHECKING:
    from pathlib import Path

    from gpuops.collective.measuring import Measurement
    from gpuops.facts import Facts
    from gpuops.inventory import Host
    from gpuops.isolation.rounds import Scope
    from gpuops.judging import Level, Verdict
    from gpuops.playbook.provisioning import PlaybookRun
    from gpuops.playbook.running import RunState
    from gpuops.reasons import Excluded

Objections = Mapping[str, Objection]
_ASKED_FIRST = "preflight"
"""The tag of a playbook's steps that must hold before anything is changed."""
_WHAT_IS_LEFT = "--limit {} --check --diff tells what is left"
_MOST_NEIGHBOURS = 4
"""Admitted nodes that are asked for a pair: some may be busy, and one that is idle is enough."""


@dataclass
class Gates:
    """The gates of one run over nodes of ``target``. ``without`` are those that a person leaves out."""

    target: Target
    life: NodeLifecycle
    playbook: str
    engine: str = "auto"
    burn_seconds: float = 1800.0
    group: str = ""
    without: frozenset[str] = frozenset()
    break_lock: bool = False

    asks_first: bool = field(default=False, init=False)

    def check(self, hosts: Sequence[Host]) -> None:
        """The playbook fits ``hosts``, and the group is there; `InputError` otherwise, before any node is asked."""
        from gpuops.cli._play import tags_of

        self.asks_first = _ASKED_FIRST in tags_of(self._of(hosts), self.playbook)
        if self.group:
            self._inventory_with(hosts[0].name)

    @property
    def attempts(self) -> dict[str, Attempt]:
        """Every gate by name."""
        tried: dict[str, Attempt] = {
            "facts": self.facts,
            "preflight": self.preflight,
            "provision": self.provision,
            "second-pass": self.second_pass,
            "burn-in": self.burn_in,
            "validate": self.validate,
            "pair": self.pair,
            "admit": self.admit,
        }
        return {name: attempt for name, attempt in tried.items() if name not in self.without}

    def facts(self, hosts: Sequence[Host]) -> Objections:
        """They answer; one that is another machine than the one that was admitted is let out; no job starts."""
        objections = self._recognised(hosts)
        return {**objections, **self.life.close([h for h in hosts if h.name not in objections], "onboarding")}

    def preflight(self, hosts: Sequence[Host]) -> Objections:
        """All GPUs are on the bus, and the playbook's steps tagged preflight hold."""
        objections = _objections(*self._play(hosts, check=True, tags=(_ASKED_FIRST,))) if self.asks_first else {}
        return {**objections, **self._without_gpus(hosts)}

    def provision(self, hosts: Sequence[Host]) -> Objections:
        """Every step held."""
        return _objections(*self._play(hosts, check=False), f"gpuops provision {self.playbook} {_WHAT_IS_LEFT}")

    def second_pass(self, hosts: Sequence[Host]) -> Objections:
        """Check mode finds nothing; what the nodes are from now on is asked again."""
        record, work = self._play(hosts, check=True)
        drifted = _drift(record, f"gpuops provision {self.playbook} {_WHAT_IS_LEFT}")
        return {**drifted, **self._recognised(hosts), **_objections(record, work)}

    def burn_in(self, hosts: Sequence[Host]) -> Objections:
        """The checks of the burn-in, on what it showed."""
        from gpuops.cli._burning import burn
        from gpuops.cli._measuring import Measuring, gather

        target = self._of(hosts)
        known, silent = gather(target)
        facts, done = burn(target, known, Measuring(self.engine).wish(target), self.burn_seconds)
        _stop_if(interrupted=done.found.interrupted)
        return _together(self._judged(target, facts, "burnin", only=("burnin",)), {**silent, **done.excluded})

    def validate(self, hosts: Sequence[Host]) -> Objections:
        """Every check, and the all-reduce within each node that has several GPUs."""
        target = self._of(hosts)
        facts, found, excluded = self._measured(target, ("node",))
        if not found.evidence.rounds:
            tell("no all-reduce within these nodes was measured")
        skip = () if found.evidence.rounds else ("all-reduce-bandwidth",)
        return _together(self._judged(target, facts, "standard", skip=skip), excluded)

    def pair(self, hosts: Sequence[Host]) -> Objections:
        """The all-reduce between each node and one that is admitted; while none is, between the nodes themselves."""
        neighbours = self._neighbours(hosts)
        if len(hosts) + len(neighbours) < 2:
            alone = Objection("left out: no node is admitted yet, so there is nobody to be measured with", exit_code=0)
            return {host.name: alone for host in hosts}
        names, target = {host.name for host in hosts}, self._of((*hosts, *neighbours))
        facts, _, excluded = self._measured(target, ("rail", "pair"))
        if neighbours and all(host.name in excluded for host in neighbours):
            why = "; ".join(f"{host.name} {excluded[host.name].why}" for host in neighbours)
            return {name: Objection(f"no admitted neighbour could take part: {why}", exit_code=3) for name in names}
        judged = self._judged(target, facts, "standard", only=("all-reduce-bandwidth",))
        return {name: why for name, why in _together(judged, excluded).items() if name in names}

    def admit(self, hosts: Sequence[Host]) -> Objections:
        """Look once more, and open the door."""
        objections = self._ill(hosts) if "validate" not in self.without else {}
        hindered = self.life.door.open([host for host in hosts if host.name not in objections])
        return {**objections, **{name: Objection(why) for name, why in hindered.items()}}

    def _ill(self, hosts: Sequence[Host]) -> dict[str, Objection]:
        """Nodes that fail a quick check by now: what they passed may be weeks old."""
        from gpuops.cli._health import profiles_of, quick_probes, unhealthy
        from gpuops.cli._outcomes import gathered

        target = self._of(hosts)
        facts, silent = gathered(target, quick_probes(), "looking once more")
        failing = unhealthy(facts, profiles_of(target.judged_hosts, facts))
        return {node: _untested(reason) for node, reason in {**silent, **failing}.items()}

    def join(self, host: Host) -> None:
        """Write an admitted node into its group of the inventory; that this cannot be done is told."""
        from gpuops.errors import InputError
        from gpuops.replacing import file_lock, write_atomic

        try:
            with file_lock(self.life.store.path.with_name("inventory.lock")):
                path, text, grown = self._inventory_with(host.name)
                if grown != text:
                    write_atomic(path, grown.encode(), path.stat().st_mode & 0o777)
        except (InputError, OSError) as error:
            tell(f"{host.name} is admitted, and the inventory does not say so: {error}")

    def _inventory_with(self, name: str) -> tuple[Path, str, str]:
        """The inventory's file, its text, and the text with the node in the group; `InputError` where it cannot be."""
        from gpuops.inventory.editing import add_host_to_group
        from gpuops.inventory.inventory import find

        path = find(self.target.name).resolve()
        text = path.read_text("utf-8")
        return path, text, add_host_to_group(text, str(path), self.group, name)

    def _without_gpus(self, hosts: Sequence[Host]) -> dict[str, Objection]:
        """Nodes on whose bus are fewer GPUs than their profile says; without a driver lspci alone can tell."""
        from gpuops.cli._health import profiles_of
        from gpuops.cli._outcomes import facts_of
        from gpuops.probes.host.lspci import gpu_functions
        from gpuops.probes.nvidia.nvidia_smi import smi

        target = self._of(hosts)
        known, silent = facts_of(target, [gpu_functions, smi], "counting GPUs")
        expected = {name: found.get("gpu.count") for name, found in profiles_of(target.judged_hosts, known).items()}
        counted = ((name, _miscounted(known[name], count)) for name, count in expected.items() if count)
        return {**_silent(silent), **{name: objection for name, objection in counted if objection}}

    def _recognised(self, hosts: Sequence[Host]) -> dict[str, Objection]:
        """Who does not answer, and who is not what it was."""
        found, silent = fingerprints(self._of(hosts))
        return {**_silent(silent), **self.life.recognise(hosts, found)}

    def _of(self, hosts: Iterable[Host]) -> Target:
        return only(self.target, list(hosts))

    def _play(self, hosts: Sequence[Host], *, check: bool, tags: tuple[str, ...] = ()) -> tuple[RunState, PlaybookRun]:
        from gpuops.cli._play import play

        record, work = play(self._of(hosts), self.playbook, check=check, tags=tags, break_lock=self.break_lock)
        _stop_if(interrupted=record.interrupted)
        return record, work

    def _measured(
        self, target: Target, scopes: tuple[Scope, ...]
    ) -> tuple[dict[str, Facts], Measurement, dict[str, Excluded]]:
        """What the all-reduce shows of the nodes, all of it, and who took no part in it."""
        from dataclasses import replace

        from gpuops.cli._measuring import Measuring, gather, measure

        known, silent = gather(target)
        facts, found = measure(target, known, replace(Measuring(self.engine).wish(target), scopes=scopes))
        _stop_if(interrupted=found.interrupted)
        return facts, found, {**silent, **found.excluded}

    def _judged(
        self,
        target: Target,
        facts: Mapping[str, Facts],
        level: Level,
        only: tuple[str, ...] = (),
        skip: tuple[str, ...] = (),
    ) -> dict[str, Objection]:
        """What the checks of a level object to, or cannot tell."""
        from gpuops import assessment, judging
        from gpuops.cli._health import profiles_of

        checks = judging.choose(judging.discover(), level, only, skip)
        verdicts = assessment.assess(checks, facts, profiles_of(target.judged_hosts, facts))
        return dict(_first_of_each(verdict for verdict in verdicts if verdict.node))

    def _neighbours(self, hosts: Sequence[Host]) -> list[Host]:
        """Admitted nodes of the inventory that are like these; from their own rack first."""
        present = self.life.store.present()
        names, kinds = {host.name for host in hosts}, {host.profile for host in hosts}
        racks = {host.rack for host in hosts}
        alike = [
            host
            for host in self.target.hosts
            if host.name not in names and host.profile in kinds
            if host.name in present and present[host.name].state == "admitted"
        ]
        return sorted(alike, key=lambda host: host.rack not in racks)[:_MOST_NEIGHBOURS]


def _silent(silent: Mapping[str, str]) -> dict[str, Objection]:
    return {node: Objection(why, exit_code=3) for node, why in silent.items()}


def _miscounted(facts: Facts, expected: int) -> Objection | None:
    """Whether as many GPUs are on a node's bus as are ``expected``, or why nobody can tell."""
    from gpuops.probes.host.lspci import gpu_functions
    from gpuops.probing import Unknown

    functions = facts[gpu_functions]
    if isinstance(functions, Unknown):
        return Objection(f"its GPUs cannot be counted: {functions.why}", exit_code=3)
    found = sum(function.is_gpu and not function.off_the_bus for function in functions)
    if found == expected:
        return None
    why = f"{found} GPUs are on its bus, and its profile has {expected}"
    return Objection(why, "power-cycle it; reseat what is missing")


def _stop_if(*, interrupted: bool) -> None:
    from gpuops.errors import CancelledError

    if interrupted:
        raise CancelledError("interrupted")


def _together(judged: Objections, excluded: Mapping[str, Excluded]) -> dict[str, Objection]:
    """What the checks fail, and why nodes were ``excluded``, which explains what the checks could not tell."""
    failed = {node: objection for node, objection in judged.items() if objection.exit_code == 1}
    return {**judged, **{node: _untested(reason) for node, reason in excluded.items()}, **failed}


def _untested(excluded: Excluded) -> Objection:
    do = f"gpuops validate --limit {excluded.host} tells more"
    return Objection(excluded.why, do, 1 if excluded.kind == "unhealthy" else 3)


def _first_of_each(verdicts: Iterable[Verdict]) -> Iterator[tuple[str, Objection]]:
    """The gravest thing that is said of each node; what is told last counts in a dict."""
    order = ("unknown", "fail")
    for verdict in sorted((v for v in verdicts if v.status in order), key=lambda v: order.index(v.status)):
        finding = next(iter(verdict.findings), None)
        what = finding.message if finding else verdict.why
        where = f" ({finding.label or finding.subject})" if finding else ""
        advice = finding.fix if finding else f"gpuops checks explain {verdict.check}"
        yield verdict.node, Objection(f"{verdict.check}: {what}{where}", advice, 1 if verdict.status == "fail" else 3)


def _objections(record: RunState, work: PlaybookRun, advice: str = "") -> dict[str, Objection]:
    """Who did not come to the end of a playbook, and why; ``advice`` for those that failed has a place for the node."""
    locked = "; ".join(map(str, record.locked))
    why = Objection(locked, exit_code=4) if locked else Objection(record.stopped or "the playbook has no step for it")
    found = dict.fromkeys(work.untouched(record), why)
    for result in record.results:
        if result.out:
            failed = result.status == "failed"
            do, code = (advice.format(result.node), 1) if failed else ("", 3)
            found[result.node] = Objection(f"{result.name}: {result.why}", do, code)
    return found


def _drift(record: RunState, advice: str) -> dict[str, Objection]:
    """The nodes on which check mode would change something, or cannot tell."""
    wanted: dict[str, list[str]] = {}
    for result in record.results:
        if result.status in ("would_change", "later"):
            wanted.setdefault(result.node, []).append(result.name)
    return {
        node: Objection(f"not as the playbook says: {', '.join(names)}", advice.format(node))
        for node, names in wanted.items()
    }

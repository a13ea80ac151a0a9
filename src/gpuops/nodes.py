"""Hosts of an inventory, and what it takes to reach them: connections, fan-out, deadlines, events.

gathered = nodes.gather([smi, nvlink], "reaching nodes") gathered.values["gpu01"], gathered.excluded["gpu02"].why
"""

from __future__ import annotations

import resource
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from gpuops.cancellation import CancelToken
from gpuops.document import Where
from gpuops.errors import CancelledError, OfflineError, PatternError
from gpuops.events import Activity, Emitter, HostDone, LeftOut, Note, Progress
from gpuops.facts import Facts, gather, of_folder, saved_names
from gpuops.fleet import Outcome, Outcomes, each, fitting
from gpuops.inventory import Host, Inventory
from gpuops.inventory.declared import refusal
from gpuops.inventory.inventory import usable
from gpuops.inventory.machine_vars import machine_vars
from gpuops.inventory.patterns import select
from gpuops.probing import Probe
from gpuops.proposal import HostOptions
from gpuops.reasons import Excluded, excluded_by
from gpuops.transport.agent import AgentTransport
from gpuops.transport.connections import Connections

T = TypeVar("T")
Source = Literal["inventory", "names", "local", "saved"]


@dataclass(frozen=True)
class Gathered(Generic[T]):
    """The hosts' answers, in inventory order, and the reasons why the others have none; ``took`` is seconds per host.

    ``interrupted``: Ctrl-C or a cancellation came in the meantime, even if every host still answered. ``declared`` is
    what saved facts say about the machines of hosts that had not answered (`gpuops.facts.Facts`).
    """

    values: dict[str, T]
    excluded: dict[str, Excluded]
    took: Mapping[str, float] = field(default_factory=dict)
    interrupted: bool = False
    declared: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def raise_if_interrupted(self) -> None:
        """Raise `CancelledError` if it was interrupted."""
        if self.interrupted:
            raise CancelledError("interrupted")


@dataclass(frozen=True)
class _Silent:
    """A host without saved answers: why, and what the saved facts say about its machine."""

    excluded: Excluded
    declared: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Nodes:
    """Hosts, and the means to query them. ``name`` is the inventory's name for users, ``source`` the hosts' origin.

    ``limit`` is the pattern that selected the hosts when the inventory was opened.

    ``forks`` hosts are queried at a time. A view (`only`) shares everything except its hosts. Hosts whose answers were
    saved in ``folder`` are read from there, and nothing else can be asked of them.
    """

    hosts: tuple[Host, ...]
    name: str
    source: Source
    connections: Connections
    emit: Emitter
    cancel: CancelToken
    operation: str = "open"
    forks: int = 64
    total_timeout: float = 3600.0
    inventory: Inventory | None = None
    inventory_file: Path | None = None
    folder: Path | None = None
    options: HostOptions = field(default_factory=HostOptions)
    limit: str = "all"

    def only(self, hosts: str | Iterable[str]) -> Nodes:
        """Return the hosts that a pattern selects, or those with these names; raise `PatternError` if none exist."""
        names = self._selected(hosts) if isinstance(hosts, str) else self._named(hosts)
        options = replace(self.options, pattern=hosts) if isinstance(hosts, str) else self.options
        return replace(self, hosts=tuple(host for host in self.hosts if host.name in names), options=options)

    def _selected(self, pattern: str) -> set[str]:
        try:
            return self._matching(pattern)
        except PatternError as error:
            if why := refusal(pattern):
                raise PatternError(why) from error
            raise

    def _matching(self, pattern: str) -> set[str]:
        if self.inventory is not None:
            return set(self.inventory.limit(pattern).hosts)
        if self.source == "local" and pattern not in ("all", "localhost"):
            raise PatternError(f'"{pattern}" needs an inventory: -i FILE, or `inventory:` in gpuops.yml')
        names = [host.name for host in self.hosts]
        return set(names) if self.source == "local" else select(pattern, names, {})

    def usable(self, hosts: Iterable[Host]) -> list[Host]:
        """Return ``hosts``; raise `DocumentError` if gpuops cannot connect to one. Saved answers need no connection."""
        return list(hosts) if self.source == "saved" else usable(hosts, self.limit)

    def of_inventory(self) -> Nodes:
        """Return the same without hosts that only saved answers name, if there is an inventory."""
        if self.inventory is None:
            return self
        return replace(self, hosts=tuple(host for host in self.hosts if host.name in self.inventory.hosts))

    def of_saved(self, facts: Mapping[str, Facts] | None = None) -> Nodes:
        """Return the same without hosts that have neither saved answers nor ``facts``; all if that leaves none."""
        saved = {*saved_names(self.folder), *(facts or ())} if self.folder else set()
        return replace(self, hosts=tuple(host for host in self.hosts if host.name in saved) or self.hosts)

    def _named(self, names: Iterable[str]) -> set[str]:
        names = list(names)
        missing = set(names) - {host.name for host in self.hosts}
        if missing:
            raise PatternError(f"no host named {', '.join(sorted(missing))} among the {len(self.hosts)} of {self.name}")
        return set(names)

    def each(
        self, work: Callable[[AgentTransport, Host], T], what: str, hosts: Sequence[Host] | None = None
    ) -> Outcomes[T]:
        """Do ``work`` over a fresh connection to every host, in parallel; one outcome per host, in order."""
        with self.connections.group(self.cancel) as group:

            def visit(host: Host) -> T:
                transport = group.open(host)
                try:
                    return work(transport, host)
                finally:
                    transport.close()

            return self.each_host(visit, what, hosts, stop=group.close)

    def each_host(
        self,
        work: Callable[[Host], T],
        what: str,
        hosts: Sequence[Host] | None = None,
        *,
        stop: Callable[[], None] = lambda: None,
    ) -> Outcomes[T]:
        """Do ``work`` for every host, in parallel, with `Progress` events; raise `OfflineError` for saved hosts."""
        if self.source == "saved":
            raise OfflineError(f"{self.name}: {what} needs a network, but these are saved answers; use an inventory")
        hosts = self.hosts if hosts is None else hosts
        ended = 0

        def on_outcome(outcome: Outcome[T]) -> None:
            nonlocal ended
            ended += 1
            error = str(outcome.error) if outcome.error else None
            self.emit(HostDone(self.operation, outcome.node, error, outcome.seconds))
            self.emit(Progress(self.operation, what, ended, len(hosts)))

        self.emit(Progress(self.operation, what, 0, len(hosts)))
        outcomes = each(
            hosts,
            work,
            fanout=self.fitting(self.forks),
            total_seconds=self.total_timeout,
            watch=on_outcome,
            stop=stop,
            cancel=self.cancel,
        )
        for sentence in self.connections.notices():
            self.note(sentence)
        return outcomes

    def collect(self, work: Callable[[AgentTransport, Host], T], what: str) -> Gathered[T]:
        """Return the results of ``work`` for every host, over a fresh connection each."""
        return _gathered(self.hosts, {}, self.each(work, what))

    def gather(
        self,
        probes: Sequence[Probe[Any]],
        what: str = "reaching nodes",
        *,
        keep_answers: bool = False,
        facts: Mapping[str, Facts] | None = None,
    ) -> Gathered[Facts]:
        """Return the values of ``probes`` for every host; what ``facts`` already contain is not asked again."""
        return self.read(probes, lambda _host, known: known, what, keep_answers=keep_answers, facts=facts)

    def read(
        self,
        probes: Sequence[Probe[Any]],
        work: Callable[[Host, Facts], T],
        what: str = "reaching nodes",
        *,
        keep_answers: bool = False,
        facts: Mapping[str, Facts] | None = None,
    ) -> Gathered[T]:
        """Return the results of ``work``, a pure function, for every host's facts, computed where they are read."""
        held = {name: each for name, each in (facts or {}).items() if each.answers or not keep_answers}

        def due(host: Host) -> list[Probe[Any]]:
            return [p for p in probes if host.name not in held or p.name not in held[host.name].values]

        complete = [host for host in self.hosts if host.name in held and (self.folder or not due(host))]
        made = {host.name: work(host, held[host.name]) for host in complete}
        missing = [host for host in self.hosts if host.name not in made]
        if missing and self.folder is not None:
            return self._of_saved(self.folder, probes, work, made, keep_answers=keep_answers)

        def visit(transport: AgentTransport, host: Host) -> T:
            answered = gather(host.name, transport.batch, due(host), keep_answers=keep_answers)
            answered = replace(answered, profile=host.profile, declared=machine_vars(host))
            return work(host, held[host.name].joined(answered) if host.name in held else answered)

        outcomes = self.each(visit, what, missing) if missing else Outcomes[T]()
        return _gathered(self.hosts, made, outcomes)

    def _of_saved(
        self,
        folder: Path,
        probes: Sequence[Probe[Any]],
        work: Callable[[Host, Facts], T],
        made: Mapping[str, T],
        *,
        keep_answers: bool,
    ) -> Gathered[T]:
        hosts = {host.name: host for host in self.hosts}

        def read_one(facts: Facts) -> tuple[str, T | _Silent | None]:
            if facts.excluded:
                return facts.node, _Silent(facts.excluded, facts.declared)
            return facts.node, work(hosts[facts.node], facts) if facts.node in hosts else None

        not_saved = {name: _Silent(Excluded(name, "not_saved", f"no saved facts in {folder}")) for name in hosts}
        saved = dict(of_folder(folder, probes, read_one, hosts, keep_answers=keep_answers))
        outcomes: dict[str, T | _Silent | None] = {**not_saved, **saved, **made}
        silent = {name: v for name in hosts if isinstance(v := outcomes[name], _Silent)}
        return Gathered(
            {name: v for name in hosts if (v := outcomes[name]) is not None and not isinstance(v, _Silent)},
            {name: each.excluded for name, each in silent.items()},
            declared={name: each.declared for name, each in silent.items()},
        )

    def fitting(self, forks: int) -> int:
        """Return ``forks``, limited to the number of files that this process may have open."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        fits = fitting(forks, soft)
        if fits < forks:
            self.note(
                f"only {soft} files may be open (ulimit -n), so {fits} nodes instead of {forks} are queried at a time"
            )
        return fits

    def note(self, text: str) -> None:
        """Send a message for the waiting user."""
        self.emit(Note(self.operation, text))

    def note_excluded(self, excluded: Iterable[Excluded]) -> None:
        """Send the excluded hosts, grouped by reason."""
        hosts_by_reason: dict[str, list[str]] = {}
        for each_host in excluded:
            hosts_by_reason.setdefault(each_host.why, []).append(each_host.host)
        for why, hosts in hosts_by_reason.items():
            self.emit(LeftOut(self.operation, tuple(hosts), why))

    def activity(self, text: str) -> None:
        """Send the current activity."""
        self.emit(Activity(self.operation, text))


def _gathered(hosts: Iterable[Host], made: Mapping[str, T], outcomes: Outcomes[T]) -> Gathered[T]:
    by_name = {outcome.node: outcome for outcome in outcomes}
    values = {**made, **{name: outcome.value for name, outcome in by_name.items() if outcome.value is not None}}
    return Gathered(
        {host.name: values[host.name] for host in hosts if host.name in values},
        {name: excluded_by(name, outcome.error) for name, outcome in by_name.items() if outcome.error is not None},
        {name: outcome.seconds for name, outcome in by_name.items()},
        outcomes.interrupted,
    )


def this_machine() -> Host:
    """Return this machine as a host that is reached without SSH."""
    name = socket.gethostname()
    return Host(name, name, Where("this machine"), connection="local")


def saved_host(node: str, folder: Path) -> Host:
    """Return a host for a node of which only the answers in ``folder`` are known."""
    return Host(node, node, Where(str(folder)))


def saved_hosts(folder: Path, inventory: Inventory | None, limit: str | None) -> list[Host]:
    """Return the hosts of an inventory and those that only ``folder`` has answers of; ``limit`` selects among both."""
    saved = [saved_host(name, folder) for name in saved_names(folder) if not inventory or name not in inventory.hosts]
    known, groups = (inventory.hosts, inventory.groups) if inventory else ({}, {})
    chosen = select(limit or "all", [*known, *(host.name for host in saved)], groups)
    listed = ",".join(name for name in known if name in chosen)
    hosts = inventory.limit(listed).hosts.values() if inventory and listed else ()
    return [*hosts, *(host for host in saved if host.name in chosen)]

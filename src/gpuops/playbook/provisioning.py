"""Provisioning: a playbook over an inventory, from what a person asks for to the record of what became of it."""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gpuops.errors import DocumentError, InputError, did_you_mean
from gpuops.fleet import FANOUT
from gpuops.inventory import Host
from gpuops.playbook import journal
from gpuops.playbook.binding import bind, machine_of
from gpuops.playbook.journal import Journal
from gpuops.playbook.locking import Owner, take
from gpuops.playbook.node_session import Busy, NodeSession
from gpuops.playbook.parameters import NO_ENVIRONMENT
from gpuops.playbook.play import RACK, Play, Playbook, Step, choose_steps
from gpuops.playbook.result import StepResult
from gpuops.playbook.running import BoundPlay, Runner, RunState, lock, unlock
from gpuops.playbook.task import TaskRegistry
from gpuops.transport import Transport


@dataclass(frozen=True)
class StepSelection:
    """Which part of a playbook is meant: steps with one of ``tags`` and none of ``skip_tags``, from ``start_at`` on."""

    tags: tuple[str, ...] = ()
    skip_tags: tuple[str, ...] = ()
    start_at: str = ""


@dataclass(frozen=True)
class RunOptions:
    """How a run is carried out. ``force`` changes nodes that run jobs, ``break_lock`` takes a dead run's locks.

    ``resume`` names a run to go on with; ``runs`` is the folder of all runs' journals. ``fanout`` nodes work at a time,
    and ``most_open`` connections may stay open between steps. ``operator`` is who changes the nodes, as locks and the
    journal tell it; ``environment`` is what ``!env`` refers to.
    """

    version: str
    runs: Path
    operator: str
    check: bool = False
    resume: str = ""
    force: bool = False
    break_lock: bool = False
    fanout: int = FANOUT
    most_open: int = FANOUT
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


def assign(
    playbook: Playbook,
    choose: Callable[[str], Sequence[Host]],
    selection: StepSelection,
    environment: Mapping[str, str] = NO_ENVIRONMENT,
) -> list[BoundPlay]:
    """Every play with its nodes and steps, bound; `InputError` where anything is wrong with them.

    ``choose`` gives the hosts that a play's pattern selects; ``environment`` is what ``!env`` refers to.
    """
    _check_words("tag", (*selection.tags, *selection.skip_tags), {tag for s in _steps(playbook) for tag in s.tags})
    start = _start(playbook, selection.start_at)
    assignments: list[BoundPlay] = []
    for play in playbook.plays:
        if start and start not in play.steps and not assignments:
            continue
        first = start if start in play.steps else None
        steps = choose_steps(play, selection.tags, selection.skip_tags, first)
        hosts = tuple(choose(play.hosts))
        _check_racks(play, hosts)
        assignments.append(BoundPlay(play, hosts, steps, bind(play, hosts, environment)))
    if not any(assignment.hosts for assignment in assignments):
        raise InputError(f"{playbook.path}: no play selects any of the chosen nodes")
    return assignments


def _check_racks(play: Play, hosts: Sequence[Host]) -> None:
    without = next((host.name for host in hosts if host.rack is None), None)
    if RACK in play.serial and without:
        raise DocumentError(
            play.where, f'"serial: rack" needs the rack of every node; the inventory gives {without} none'
        )


def _steps(playbook: Playbook) -> Iterator[Step]:
    return (step for play in playbook.plays for step in play.steps if isinstance(step, Step))


def _check_words(what: str, words: Iterable[str], known: set[str]) -> None:
    for word in words:
        if word not in known:
            hint = did_you_mean(word, known) or f"; known: {', '.join(sorted(known)) or 'none'}"
            raise InputError(f'no step has the {what} "{word}"{hint}')


def _start(playbook: Playbook, name: str) -> Step | None:
    if not name:
        return None
    _check_words("name", [name], {word for step in _steps(playbook) for word in (step.name, step.id)})
    return next(step for step in _steps(playbook) if name in (step.name, step.id))


def _ignore(_told: object) -> None:
    """Nobody listens."""


class PlaybookRun:
    """One run of a playbook: its journal, its locks, its nodes."""

    def __init__(
        self,
        playbook: Playbook,
        assignments: Sequence[BoundPlay],
        selection: StepSelection,
        order: RunOptions,
        *,
        library: TaskRegistry,
        open_transport: Callable[[Host], Transport],
        busy: Busy = lambda _host, _ask: "",
    ) -> None:
        self.run_id = order.resume or f"{dt.datetime.now(dt.timezone.utc):%Y%m%d-%H%M%S-%f}"
        self._playbook = playbook
        self._assignments = assignments
        self._order = order
        hosts = list({host.name: host for assignment in assignments for host in assignment.hosts}.values())
        self._head = _head(playbook, selection, order, hosts)
        self._sites = {
            host.name: NodeSession(
                host,
                machine_of(host),
                library,
                open_transport,
                busy=busy if not order.force else _nobody,
                environment=order.environment,
            )
            for host in hosts
        }

    def run(self, watch: Callable[[StepResult], None] = _ignore, say: Callable[[str], None] = _ignore) -> RunState:
        """Carry it out, or in check mode tell what that would take.

        ``watch`` hears each result as it comes, ``say`` what a person should know meanwhile. On Ctrl-C nothing more is
        begun, and what runs may end; on a second one it is abandoned.
        """
        try:
            if self._order.check:
                return self._runner(RunState(waiting=self._left_over()), watch).run(self._assignments)
            owner = Owner(self.run_id, self._order.operator)
            log = self._open_journal(owner)
            say(f"run {self.run_id}")
            return self._change(log, owner, watch, say)
        finally:
            self._hang_up()

    def untouched(self, record: RunState) -> list[str]:
        """The nodes that no step came to."""
        reached = {result.node for result in record.results}
        return [name for name in self._sites if name not in reached]

    def _runner(self, record: RunState, watch: Callable[[StepResult], None]) -> Runner:
        order = self._order
        return Runner(self._sites, record, fanout=order.fanout, most_open=order.most_open, watch=watch)

    def _hang_up(self) -> None:
        for site in self._sites.values():
            site.hang_up()

    def _change(
        self, log: Journal, owner: Owner, watch: Callable[[StepResult], None], say: Callable[[str], None]
    ) -> RunState:
        self._join(log, owner)
        record = self._lock(owner)
        if record.locked or record.interrupted:
            self._end(log, record, "; ".join(map(str, record.locked)))
            log.close()
            return record
        record.waiting = self._left_over()
        reached = [site for site in self._sites.values() if not record.out(site.name)]
        try:
            for node, names in record.waiting.items():
                log.write("waiting", node=node, notify=names)
            self._run_interruptibly(record, watch, say)
            self._end(log, record, record.stopped)
        finally:
            unlock(reached, owner, fanout=self._order.fanout)
            log.close()
        return record

    def _end(self, log: Journal, record: RunState, stopped: str) -> None:
        failed = [name for name in self._sites if record.out(name)]
        log.write("end", exit=record.exit_code(check=False), stopped=stopped, failed=failed)

    def _lock(self, owner: Owner) -> RunState:
        order = self._order
        sites = [*self._sites.values()]
        return lock(sites, owner, break_dead=order.break_lock, fanout=order.fanout, most_open=order.most_open)

    def _run_interruptibly(
        self, record: RunState, watch: Callable[[StepResult], None], say: Callable[[str], None]
    ) -> None:
        try:
            self._runner(record, watch).run(self._assignments)
            working = [site for site in self._sites.values() if site.at_work.locked()]
            if working:
                nodes = ", ".join(site.name for site in working[:3]) + (" and others" if len(working) > 3 else "")
                say(f"waiting for what runs on {nodes} to come to its end; Ctrl-C again abandons it")
            for site in working:
                site.at_work.acquire()
        except KeyboardInterrupt:
            record.interrupted = True
            self._abandon(record)

    def _abandon(self, record: RunState) -> None:
        """Wait for nothing more, and say what that leaves."""
        names = {step.id: step.name for assignment in self._assignments for step in assignment.play.every_step}
        begun = [made for site in self._sites.values() for made in site.made if made.good is None]
        for made in begun:
            if not record.out(made.node):
                stays = "it goes on there as a unit of systemd, and --resume waits for it"
                why = stays if made.detach else "abandoned: nobody knows how far it came"
                record.add(StepResult(made.node, made.step, names[made.step], "interrupted", why))
        self._hang_up()

    def _left_over(self) -> dict[str, list[str]]:
        """Handlers that the last run of this playbook, be it this one before it was resumed, left these nodes with."""
        found = journal.left_over(self._order.runs, str(self._playbook.path.resolve()))
        return {node: names for node, names in found.items() if node in self._sites}

    def _open_journal(self, owner: Owner) -> Journal:
        """A new journal, or that of the run to resume, if it was the same run."""
        if self._order.resume:
            journal.find(self._order.runs, self.run_id)
        log = Journal(self._order.runs, self.run_id)
        if log.earlier:
            _compare(log.earlier[0], self._head, self.run_id)
        log.write("resume" if log.earlier else "run", who=f"{owner.who} on {owner.machine}", **self._head)
        return log

    def _join(self, log: Journal, owner: Owner) -> None:
        """Let every site write to the journal, know what the run did there before, and hold the lock."""
        made = journal.changes(log.earlier)
        for site in self._sites.values():
            site.journal = log
            site.made = [m for m in made if m.node == site.name]
            site.reboots = sum(bool(line.get("boot_id")) and line["node"] == site.name for line in log.earlier)
            site.lock = functools.partial(take, site, owner)


def _nobody(_host: Host, _ask: object) -> str:
    return ""


def _head(playbook: Playbook, selection: StepSelection, order: RunOptions, hosts: Sequence[Host]) -> dict[str, Any]:
    """What a run is of: what is not the same cannot be resumed."""
    nodes = [(h.name, h.address, h.port, h.user, h.groups, sorted(h.vars.items(), key=str)) for h in hosts]
    return {
        "schema": journal.SCHEMA,
        "playbook": str(playbook.path.resolve()),
        "version": order.version,
        "selection": asdict(selection),
        "nodes": hashlib.sha256(repr(nodes).encode()).hexdigest(),
        "definition": {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in playbook.files},
    }


def _compare(then: dict[str, Any], now: dict[str, Any], run: str) -> None:
    """Refuse to resume what is not the same run any more."""
    now = json.loads(json.dumps(now))
    changed = [_SPOKEN[key] for key in _SPOKEN if then.get(key) != now[key]]
    before, after = then.get("definition", {}), now["definition"]
    changed += [path for path in {**before, **after} if before.get(path) != after.get(path)]
    if changed:
        raise InputError(f"run {run} cannot be resumed: changed since then: {', '.join(changed)}; start a new run")


_SPOKEN = {
    "schema": "the journal's format",
    "version": "the version of gpuops",
    "playbook": "the playbook",
    "selection": "--tags, --skip-tags or --start-at",
    "nodes": "the inventory, --limit or --retry",
}

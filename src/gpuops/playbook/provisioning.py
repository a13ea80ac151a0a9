"""One run of a playbook over an inventory, from the user's options to its record."""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gpuops.cancellation import CancelToken
from gpuops.document import Where, YamlNode
from gpuops.errors import DocumentError, InputError, Problems, did_you_mean, format_count
from gpuops.fleet import FANOUT
from gpuops.inventory import Host
from gpuops.playbook import journal
from gpuops.playbook.binding import bind, machine_of
from gpuops.playbook.journal import Journal
from gpuops.playbook.locking import Owner, take, tell
from gpuops.playbook.node_session import Busy, NodeSession, OnActivity
from gpuops.playbook.parameters import NO_ENVIRONMENT, as_node
from gpuops.playbook.play import RACK, Play, Playbook, Step, choose_steps
from gpuops.playbook.record import Record
from gpuops.playbook.result import StepResult
from gpuops.playbook.running import BoundPlay, Runner, RunState, lock, unlock
from gpuops.playbook.task import TaskRegistry
from gpuops.playbook.variables import Variables
from gpuops.transport import Transport

_EXTRA = Where("--extra-vars", 1, 1)


@dataclass(frozen=True)
class StepSelection:
    """The selected part of a playbook: steps with one of ``tags`` and none of ``skip_tags``, from ``start_at`` on."""

    tags: tuple[str, ...] = ()
    skip_tags: tuple[str, ...] = ()
    start_at: str = ""


@dataclass(frozen=True)
class RunOptions:
    """The options of a run. ``force`` changes nodes that run jobs, ``break_lock`` takes a dead run's locks.

    ``resume`` names a run to continue; ``runs`` is the directory of all runs' journals. ``fanout`` nodes work at a
    time, and ``most_open`` connections may stay open between steps. ``operator`` is who changes the nodes, as locks and
    the journal record it; ``environment`` is what ``!env`` refers to, and ``extra_vars`` override the playbook's
    variables. ``announces``: the run's name is told.
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
    extra_vars: Mapping[str, object] = field(default_factory=dict, repr=False)
    announces: bool = True


def assign(
    playbook: Playbook,
    choose: Callable[[str], Sequence[Host]],
    selection: StepSelection,
    environment: Mapping[str, str] = NO_ENVIRONMENT,
    extra_vars: Mapping[str, object] = MappingProxyType({}),
    problems: Problems | None = None,
) -> list[BoundPlay]:
    """Return every play with its nodes and steps, bound; raise `InputError` if anything is wrong with them.

    ``choose`` returns the hosts that a play's pattern selects; ``!env NAME`` refers to a variable of ``environment``.
    ``extra_vars`` override every variable of that name. ``problems`` are those found before, which are raised too.
    """
    problems = problems or Problems()
    extra = {name: as_node(value, _EXTRA) for name, value in extra_vars.items()}
    _check_extra(extra, playbook)
    _check_words("tag", (*selection.tags, *selection.skip_tags), {tag for s in _steps(playbook) for tag in s.tags})
    start = _start(playbook, selection.start_at)
    assignments: list[BoundPlay] = []
    for play in playbook.plays:
        if start and start not in play.steps and not assignments:
            continue
        first = start if start in play.steps else None
        steps = choose_steps(play, selection.tags, selection.skip_tags, first)
        hosts = tuple(choose(play.hosts)) if play.hosts else ()
        with problems.collecting():
            _check_racks(play, hosts)
        assignments.append(BoundPlay(play, hosts, steps, bind(play, hosts, environment, extra, problems)))
    problems.tell()
    if not any(assignment.hosts for assignment in assignments):
        raise InputError(f"{playbook.path}: no play matches any of the selected nodes")
    return assignments


def _check_extra(extra: Mapping[str, YamlNode], playbook: Playbook) -> None:
    variables = {name for play in playbook.plays for name in _variables(play)}
    if any(step.takes_all_variables for play in playbook.plays for step in play.every_step):
        return  # a template may use any name
    for name in extra:
        if name not in variables:
            hint = did_you_mean(name, variables) or f"; it uses: {', '.join(sorted(variables)) or 'none'}"
            raise InputError(f'--extra-vars: {playbook.path} uses no variable "{name}"{hint}')


def _variables(play: Play) -> Iterator[str]:
    """Yield the names of the variables that a play sets or looks up; one may come more than once."""
    yield from play.vars
    for value in play.vars.values():
        yield from Variables.looked_up(value)
    for step in play.every_step:
        yield from (*step.vars, *Variables.looked_up(step.raw_params))
        yield from Variables.looked_up(step.loop) if step.loop else ()
        yield from (name for value in step.vars.values() for name in Variables.looked_up(value))
        yield from (name for condition in step.conditions for name in condition.names)


def _check_racks(play: Play, hosts: Sequence[Host]) -> None:
    without = next((host.name for host in hosts if host.rack is None), None)
    if RACK in play.serial and without:
        raise DocumentError(
            play.where, f'"serial: rack" needs the rack of every node; the inventory sets none for {without}'
        )


def _steps(playbook: Playbook) -> Iterator[Step]:
    return (step for play in playbook.plays for step in play.steps if isinstance(step, Step))


def _check_words(what: str, words: Iterable[str], defined: set[str]) -> None:
    for word in words:
        if word not in defined:
            hint = did_you_mean(word, defined) or f"; known: {', '.join(sorted(defined)) or 'none'}"
            raise InputError(f'no step has the {what} "{word}"{hint}')


def _start(playbook: Playbook, name: str) -> Step | None:
    if not name:
        return None
    _check_words("name", [name], {word for step in _steps(playbook) for word in (step.name, step.id)})
    return next(step for step in _steps(playbook) if name in (step.name, step.id))


def _ignore(*_event: object) -> None:
    """Ignore an event."""


class PlaybookRun:
    """One run of a playbook: its journal, its locks, its nodes."""

    def __init__(
        self,
        playbook: Playbook,
        assignments: Sequence[BoundPlay],
        selection: StepSelection,
        options: RunOptions,
        *,
        library: TaskRegistry,
        open_transport: Callable[[Host], Transport],
        busy: Busy = lambda _host, _ask: "",
        cancel: CancelToken | None = None,
    ) -> None:
        self._cancel = cancel
        self.run_id = options.resume or f"{dt.datetime.now(dt.timezone.utc):%Y%m%d-%H%M%S-%f}"
        self._playbook = playbook
        self._assignments = assignments
        self._options = options
        hosts = list({host.name: host for assignment in assignments for host in assignment.hosts}.values())
        self._head = _head(playbook, selection, options, hosts)
        self._sessions = {
            host.name: NodeSession(
                host,
                machine_of(host),
                library,
                open_transport,
                busy=busy if not options.force else _never_busy,
                environment=options.environment,
            )
            for host in hosts
        }

    def run(
        self,
        on_result: Callable[[StepResult], None] = _ignore,
        on_note: Callable[[str], None] = _ignore,
        on_activity: Callable[[str], OnActivity] = lambda _node: _ignore,
    ) -> RunState:
        """Run the playbook, or in check mode find out what would change.

        ``on_result`` is called with each result at once, ``on_note`` with messages for the user, and what
        ``on_activity`` returns for a node's name with what that node does. Ctrl-C starts no new
        changes and waits for the running ones; a second Ctrl-C abandons them. So does the token ``cancel`` of this
        object, except that nobody can hurry it.
        """
        for session in self._sessions.values():
            session.on_activity = on_activity(session.name)
        began = time.monotonic()
        state = self._run(on_result, on_note)
        state.seconds = time.monotonic() - began
        return state

    def _run(self, on_result: Callable[[StepResult], None], on_note: Callable[[str], None]) -> RunState:
        try:
            if self._options.check:
                waiting = self._pending_handlers(on_note)
                return self._runner(RunState(waiting=waiting), on_result).run(self._assignments)
            owner = Owner(self.run_id, self._options.operator)
            log = self._open_journal(owner)
            if self._options.announces:
                on_note(self._beginning(log))
            return self._change(log, owner, on_result, on_note)
        finally:
            self._disconnect_all()

    def untouched(self, state: RunState) -> list[str]:
        """Return the nodes that no step reached."""
        reached = {result.node for result in state.results}
        return [name for name in self._sessions if name not in reached]

    def record(self, state: RunState) -> Record:
        """Return the result of the run whose final ``state`` `run` returned."""
        return Record(
            playbook=str(self._playbook.path),
            run_id=self.run_id,
            check=self._options.check,
            results=tuple(state.results),
            stopped=state.stopped,
            waiting={node: tuple(names) for node, names in state.waiting.items() if names},
            locked=tuple(state.locked),
            untouched=tuple(self.untouched(state)),
            interrupted=state.interrupted,
            seconds=state.seconds,
        )

    def _runner(self, state: RunState, on_result: Callable[[StepResult], None]) -> Runner:
        options = self._options
        return Runner(
            self._sessions,
            state,
            fanout=options.fanout,
            most_open=options.most_open,
            on_result=on_result,
            cancel=self._cancel,
        )

    def _disconnect_all(self) -> None:
        for session in self._sessions.values():
            session.disconnect()

    def _change(
        self, log: Journal, owner: Owner, on_result: Callable[[StepResult], None], on_note: Callable[[str], None]
    ) -> RunState:
        reached: list[NodeSession] = []
        try:
            self._join(log, owner)
            state = self._lock(owner)
            for line in tell(state.taken):
                log.write("note", durable=False, what=line)
                on_note(line)
            if state.locked or state.interrupted:
                self._end(log, state, "; ".join(map(str, state.locked)))
                return state
            reached = [session for session in self._sessions.values() if not state.out(session.name)]
            state.waiting = self._pending_handlers(on_note)  # read now: no other run can add to them any more
            for node, names in state.waiting.items():
                log.write("waiting", node=node, notify=names)
            self._run_interruptibly(state, on_result, on_note)
            self._end(log, state, state.stopped)
        finally:
            unlock(reached, owner, fanout=self._options.fanout)
            log.close()
        return state

    def _end(self, log: Journal, state: RunState, stopped: str) -> None:
        failed = [name for name in self._sessions if state.out(name)]
        log.write("end", exit=state.exit_code(check=False), stopped=stopped, failed=failed)

    def _lock(self, owner: Owner) -> RunState:
        options = self._options
        sessions = [*self._sessions.values()]
        return lock(sessions, owner, break_dead=options.break_lock, fanout=options.fanout, most_open=options.most_open)

    def _run_interruptibly(
        self, state: RunState, on_result: Callable[[StepResult], None], on_note: Callable[[str], None]
    ) -> None:
        try:
            self._runner(state, on_result).run(self._assignments)
            working = [session for session in self._sessions.values() if session.at_work.locked()]
            if working:
                nodes = ", ".join(session.name for session in working[:3]) + (" and others" if len(working) > 3 else "")
                on_note(f"waiting for running changes on {nodes}; press Ctrl-C again to abandon them")
            for session in working:
                session.at_work.acquire()
        except KeyboardInterrupt:
            state.interrupted = True
            self._abandon(state)

    def _abandon(self, state: RunState) -> None:
        """Stop waiting, and add a result for each change that is still running."""
        names = {step.id: step.name for assignment in self._assignments for step in assignment.play.every_step}
        begun = [made for session in self._sessions.values() for made in session.made if made.succeeded is None]
        for made in begun:
            if not state.out(made.node):
                stays = "it continues on the node as a systemd unit, and --resume waits for it"
                why = stays if made.detach else "abandoned; its outcome is unknown"
                state.add(StepResult(made.node, made.step_id, names[made.step_id], "interrupted", why))
        self._disconnect_all()

    def _pending_handlers(self, on_note: Callable[[str], None]) -> dict[str, list[str]]:
        """Return the handlers still due from the last run of this playbook, which may be this one before a resume."""

        def on_damage(error: InputError) -> None:
            on_note(f"{error}; handlers that it left due are not known, and do not run")

        handlers_by_node = journal.pending_handlers(self._options.runs, str(self._playbook.path.resolve()), on_damage)
        return {node: names for node, names in handlers_by_node.items() if node in self._sessions}

    def _beginning(self, log: Journal) -> str:
        """Return the message that names the run, and what its journal already has if it is resumed."""
        if not log.earlier:
            return f"run {self.run_id}"
        made = journal.changes(log.earlier)
        unknown = sum(change.succeeded is None for change in made)
        count = format_count(len(made), "change")
        return f"run {self.run_id} continues: its journal has {count}, of which {unknown} have an unknown outcome"

    def _open_journal(self, owner: Owner) -> Journal:
        """Open a new journal, or that of the run to resume if it is the same run."""
        if self._options.resume:
            journal.find(self._options.runs, self.run_id)
        log = Journal(self._options.runs, self.run_id)
        if log.earlier:
            _compare(log.earlier[0], self._head, self.run_id)
        log.write("resume" if log.earlier else "run", who=f"{owner.who} on {owner.machine}", **self._head)
        return log

    def _join(self, log: Journal, owner: Owner) -> None:
        """Give every session the journal, the changes that the run made there before, and the lock."""
        made = journal.changes(log.earlier)
        for session in self._sessions.values():
            session.journal = log
            session.made = [m for m in made if m.node == session.name]
            session.reboots = sum(bool(line.get("boot_id")) and line["node"] == session.name for line in log.earlier)
            session.lock = functools.partial(take, session, owner)


def _never_busy(_host: Host, _ask: object) -> str:
    return ""


def _head(playbook: Playbook, selection: StepSelection, options: RunOptions, hosts: Sequence[Host]) -> dict[str, Any]:
    """Return what identifies a run; a run that differs in it cannot be resumed."""
    nodes = [(h.name, h.address, h.port, h.user, h.groups, sorted(h.vars.items(), key=str)) for h in hosts]
    extra = [(name, as_node(value, _EXTRA)) for name, value in sorted(options.extra_vars.items())]
    return {
        "schema": journal.SCHEMA,
        "playbook": str(playbook.path.resolve()),
        "version": options.version,
        "selection": asdict(selection),
        "nodes": hashlib.sha256(repr(nodes).encode()).hexdigest(),
        **({"extra_vars": hashlib.sha256(repr(extra).encode()).hexdigest()} if extra else {}),
        "definition": {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in playbook.files},
    }


def _compare(then: dict[str, Any], now: dict[str, Any], run: str) -> None:
    """Raise `InputError` if the run has changed since it was started."""
    now = json.loads(json.dumps(now))
    changed = [_LABELS[key] for key in _LABELS if then.get(key) != now.get(key)]
    before, after = then.get("definition", {}), now["definition"]
    changed += [path for path in {**before, **after} if before.get(path) != after.get(path)]
    if changed:
        raise InputError(f"cannot resume run {run}: changed since it started: {', '.join(changed)}; start a new run")


_LABELS = {
    "schema": "the journal's format",
    "version": "the version of gpuops",
    "playbook": "the playbook",
    "selection": "--tags, --skip-tags or --start-at",
    "nodes": "the inventory, --limit or --retry",
    "extra_vars": "--extra-vars",
}

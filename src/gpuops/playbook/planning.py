"""Runs a task's generator against a node's answers and collects what it would do; nothing is changed here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuops.playbook.overlay import DependsError, Overlay
from gpuops.playbook.parameters import NO_ENVIRONMENT, as_params
from gpuops.playbook.task import Change, Failed, Later, Machine, NeedsOperator, Plan, Task, TaskRegistry, Use
from gpuops.probing import Probe
from gpuops.shell import Command, Completed, Files, Question

Ask = Callable[[Sequence[Question]], list[Completed]]


@dataclass
class Planned:
    """What a task would do now, in order; ``later`` cannot be planned yet, ``stop`` ended it early.

    ``value`` is what the task returned. ``depends``: an answer depends on a change that check mode only planned.
    """

    changes: list[Change] = field(default_factory=list)
    later: list[Later] = field(default_factory=list)
    stop: NeedsOperator | Failed | None = None
    value: Any = None
    depends: bool = False


class _Stopped(Exception):  # noqa: N818 - how a plan ends, not an error
    """The task yielded an item that ends it."""


class _OddError(TypeError):
    """A task yielded an item of no known type."""


def plan(
    task: Task,
    params: object,
    machine: Machine,
    ask: Ask,
    library: TaskRegistry,
    environment: Mapping[str, str] = NO_ENVIRONMENT,
    overlay: Overlay | None = None,
) -> Planned:
    """Run ``task`` once. ``ask`` is a transport's ``batch``, and raises `gpuops.errors.NodeError` as it does.

    ``!env NAME`` in the parameters of a task that this one uses refers to a variable of ``environment``. In check mode,
    ``overlay`` has the changes that earlier steps planned.
    """
    planner = _Planner(machine, ask, library, environment, overlay)
    try:
        planner.planned.value = planner.run(task, params)
    except _Stopped:
        pass
    except DependsError as error:
        planner.planned.later.append(Later(str(error)))
        planner.planned.depends = True
    return planner.planned


class _Planner:
    """Answers the questions of one task's generator, and of the tasks that it uses."""

    def __init__(
        self,
        machine: Machine,
        ask: Ask,
        library: TaskRegistry,
        environment: Mapping[str, str],
        overlay: Overlay | None,
    ) -> None:
        self.planned = Planned()
        self._machine = machine
        self._ask = ask
        self._library = library
        self._environment = environment
        self._overlay = overlay

    def run(self, task: Task, params: Any) -> Any:
        """Run a task to its end; return its value. What earlier steps of check mode leave of a file is its stat."""
        overlay = self._overlay
        if not overlay or task.name != "stat":
            return self.follow(task.plan(params, self._machine))
        return overlay.stat(params.path, params.reads, lambda: self._follow_as_it_is(task.plan(params, self._machine)))

    def _follow_as_it_is(self, generator: Plan) -> Any:
        """Follow a generator that is to see the node without what was planned."""
        overlay, self._overlay = self._overlay, None
        try:
            return self.follow(generator)
        finally:
            self._overlay = overlay

    def follow(self, generator: Plan) -> Any:
        """Run ``generator`` to its end; return its value."""
        answer = None
        while True:
            try:
                item = generator.send(answer)
            except StopIteration as end:
                return end.value
            try:
                answer = self._take(item)
            except _OddError as error:  # reported at the line that yielded it
                generator.throw(error)

    def _take(self, item: object) -> Any:
        """Record what the task would do; answer what it asks."""
        if isinstance(item, Change):
            self._add(item)
        elif isinstance(item, Later):
            self.planned.later.append(item)
        elif isinstance(item, (NeedsOperator, Failed)):
            self.planned.stop = item
            raise _Stopped
        elif isinstance(item, Use):
            used = self._library[item.name]
            return self.run(used, as_params(used, item.params, self._environment))
        elif isinstance(item, tuple):
            return self._answers(item)
        else:
            return self._answers((item,))[0]
        return None

    def _add(self, change: Change) -> None:
        """Add a change. Equal changes are made once; what is rebuilt from others comes after all of them."""
        changes = self.planned.changes
        if change in changes and change.kind in ("restart", "rebuild"):
            changes.remove(change)
        if change not in changes:
            changes.append(change)

    def _answers(self, items: tuple[object, ...]) -> tuple[Any, ...]:
        """Return the answers to questions and probes, in one round trip."""
        questions = [_question(item) for item in items]
        answers = self._overlay.answer(questions, self._ask) if self._overlay else self._ask(questions)
        return tuple(
            item.read(answer) if isinstance(item, Probe) else answer
            for item, answer in zip(items, answers, strict=True)
        )


def _question(item: object) -> Question:
    question = item.question if isinstance(item, Probe) else item
    if not isinstance(question, (Command, Files)):
        raise _OddError(f"a task yielded {item!r:.60}, which is neither a question nor an action")
    return question

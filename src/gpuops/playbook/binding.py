"""A play's steps with each node's variables filled in, so that every error shows before a node is contacted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from gpuops.document import YamlNode
from gpuops.errors import DocumentError, Problems, did_you_mean
from gpuops.inventory import Host
from gpuops.playbook.ansible import RESULTS
from gpuops.playbook.condition import FACTS, Condition
from gpuops.playbook.expression import Path
from gpuops.playbook.parameters import NO_ENVIRONMENT, as_node, check_written, read_params
from gpuops.playbook.play import Play, Step
from gpuops.playbook.result import REGISTERED
from gpuops.playbook.step_keys import ITEM
from gpuops.playbook.task import Machine
from gpuops.playbook.variables import Variables, own_variables, require
from gpuops.probes import every_probe


@dataclass(frozen=True)
class Turn:
    """A step's work for one item of its loop, or its only work: its task's parameters, and what its conditions name.

    ``item`` is the item, as a person reads it.
    """

    params: object
    scope: Mapping[str, Any]
    item: str = ""


@dataclass(frozen=True)
class BoundStep:
    """A step for one node. ``turns`` returns its `Turn`s, given what was registered and the ``facts`` that it names."""

    step: Step
    turns: Callable[[Mapping[str, Any]], tuple[Turn, ...]]
    facts: frozenset[str] = frozenset()


Bound = Mapping[str, Mapping[str, BoundStep]]
"""``{node: {step's id: the step for that node}}``"""


def machine_of(host: Host) -> Machine:
    """Return the node as a task sees it."""
    return Machine(host.name, host.groups, host.vars, host.profile, host.rack)


def bind(
    play: Play,
    hosts: Iterable[Host],
    environment: Mapping[str, str] = NO_ENVIRONMENT,
    extra: Mapping[str, YamlNode] = MappingProxyType({}),
    problems: Problems | None = None,
) -> Bound:
    """Return every step of ``play`` for every host.

    ``!env NAME`` refers to a variable of ``environment``; ``extra`` variables override all others. Raise
    `gpuops.errors.DocumentError` with all parameters and names that are wrong, or add them to ``problems``.
    """
    found = Problems()
    binder = _Binder(play, environment, found)
    bound = {host.name: dict(binder.steps(partial(Variables, own=own_variables(host), extra=extra))) for host in hosts}
    if problems is None:
        found.tell()
    else:
        problems.extend(found)
    return bound


class _Binder:
    """Fills the variables of one host after another into the steps of a play."""

    def __init__(self, play: Play, environment: Mapping[str, str], problems: Problems) -> None:
        self._play = play
        self._environment = environment
        self._problems = problems
        self._registered = {step.register for step in play.every_step if step.register} | play.broken
        self._known = {*self._registered, *(f"{FACTS}.{name}" for name in every_probe())}
        self._shared: dict[str, object] = {}

    def steps(self, variables_of: Callable[[Mapping[str, YamlNode]], Variables]) -> Iterator[tuple[str, BoundStep]]:
        """Yield the steps for the host whose variables ``variables_of`` returns."""
        for step in self._play.every_step:
            variables = variables_of({**self._play.vars, **step.vars})
            with self._problems.collecting():
                self._check(step, variables)
                yield step.id, self._bound(step, variables)

    def _check(self, step: Step, variables: Variables) -> None:
        """Raise `DocumentError` for names that nothing defines, in conditions and parameters."""
        problems, items = Problems(), {ITEM} if step.loop else set()
        if step.become and step.task.is_function:
            raise step.raw_params.fail("a Fabric function runs as the login user; call c.sudo in it, without become")
        names = variables.names | items | self._known
        for condition in step.conditions:
            with problems.collecting():
                condition.require(names)
                self._check_results(condition.paths, condition.fail)
        for node in (step.raw_params, step.loop) if step.loop else (step.raw_params,):
            with problems.collecting():
                require(node, lambda path: self._wrong(path, names))
        problems.tell()

    def _check_results(self, paths: Iterable[Path], fail: Callable[[str], DocumentError]) -> None:
        for path in paths:
            if wrong := self._wrong_result(path):
                raise fail(wrong)

    def _wrong(self, path: Path, names: set[str]) -> str:
        """Return what is wrong with a look-up in a parameter, or an empty string."""
        name = ".".join(map(str, path[:2])) if path[0] == FACTS else str(path[0])
        if name not in names:
            return f'no variable named "{name}"{did_you_mean(name, names)}'
        return self._wrong_result(path)

    def _wrong_result(self, path: Path) -> str:
        if len(path) < 2 or path[0] not in self._registered or path[1] in REGISTERED:
            return ""
        meant = RESULTS.get(str(path[1]))
        near = f"; write {path[0]}.{meant}" if meant else f"; it has {', '.join(REGISTERED)}"
        return f'a registered result has no "{path[1]}"{near}'

    def _bound(self, step: Step, variables: Variables) -> BoundStep:
        nodes = (step.raw_params, step.loop) if step.loop else (step.raw_params,)
        paths = variables.reached([*nodes, *variables.values_of(_names(step.conditions))])
        if not {FACTS, *self._registered} & {path[0] for path in paths}:
            turns = self._turns(step, variables)
            return BoundStep(step, lambda _: turns)
        check_written(step.task, step.raw_params)
        facts = {str(path[1]) for path in paths if path[0] == FACTS}
        return BoundStep(step, lambda data: self._late(step, variables, data), frozenset(facts))

    def _late(self, step: Step, variables: Variables, data: Mapping[str, Any]) -> tuple[Turn, ...]:
        """Return the turns of a step that needs what other steps registered, or facts."""
        for name in sorted({str(path[0]) for path in variables.reached([step.raw_params])} & self._registered):
            if name not in data:
                raise step.raw_params.fail(f'nothing is registered as "{name}": that step did not run in this run')
        return self._turns(step, variables.over({}, data), shared=False)

    def _turns(self, step: Step, variables: Variables, *, shared: bool = True) -> tuple[Turn, ...]:
        if step.loop is None:
            return (self._turn(step, variables, shared=shared),)
        items = variables.resolve(step.loop)
        problems, turns = Problems(), []
        for item in items.list("loop: a list"):
            with problems.collecting():
                turn = self._turn(step, variables.over({ITEM: item}, {}), shared=False)
                turns.append(replace(turn, item=_label(item)))
        problems.tell()
        return tuple(turns)

    def _turn(self, step: Step, variables: Variables, *, shared: bool) -> Turn:
        """Return the turn; parameters that are the same for all hosts are read once."""
        scope = variables.plain(_names(step.conditions) - self._registered)
        if not shared or step.takes_all_variables or variables.has_lookups(step.raw_params):
            return Turn(self._params(step, variables), scope)
        if step.id not in self._shared:
            self._shared[step.id] = self._params(step, variables)
        return Turn(self._shared[step.id], scope)

    def _params(self, step: Step, variables: Variables) -> object:
        raw_params = _as_root(step, variables.resolve(step.raw_params))
        params: Any = read_params(step.task, raw_params, self._environment, variables.lazily())
        # the condition judges the exit code instead
        return replace(params, exits=()) if step.failed_when and hasattr(params, "exits") else params


def _names(conditions: Iterable[Condition]) -> set[str]:
    return {name for condition in conditions for name in condition.names}


def _as_root(step: Step, params: YamlNode) -> YamlNode:
    """Return the parameters of a task that runs the user's command, which is to run as root."""
    entries = params.entries or {}
    fields = getattr(step.task.params, "__dataclass_fields__", {})
    if not step.become or "become" in entries or "become" not in fields:
        return params
    become = as_node("always", params.where)
    return replace(params, entries={**entries, "become": become}, keys={**params.keys, "become": params.where})


def _label(item: YamlNode) -> str:
    """Return an item as a person reads it: text as it is, a map by its name or as JSON."""
    entries = item.entries or {}
    named = next((entries[key] for key in ("name", "key", "path") if key in entries), item)
    return named.scalar or json.dumps(item.plain(), default=str, ensure_ascii=False)[:60]

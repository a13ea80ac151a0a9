"""A play's steps with each node's variables filled in, so that every error shows before a node is contacted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from gpuops.document import YamlNode
from gpuops.inventory import Host
from gpuops.playbook.condition import FACTS, Condition
from gpuops.playbook.parameters import NO_ENVIRONMENT, read_params
from gpuops.playbook.play import Play, Step
from gpuops.playbook.task import Machine
from gpuops.playbook.variables import Variables, own_variables
from gpuops.probes import every_probe


@dataclass(frozen=True)
class BoundStep:
    """A step for one node: its task's parameters, and the values of the variables that its conditions name."""

    step: Step
    params: object
    scope: Mapping[str, Any]


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
) -> Bound:
    """Return every step of ``play`` for every host.

    ``!env NAME`` refers to a variable of ``environment``; ``extra`` variables override all others. Raise
    `gpuops.errors.DocumentError` if a parameter or a name is wrong.
    """
    registered = {step.register for step in play.every_step if step.register}
    defined = registered | {f"{FACTS}.{name}" for name in every_probe()}
    shared_params: dict[str, object] = {}
    return {
        host.name: dict(
            _bound(play, partial(Variables, own=own_variables(host), extra=extra), defined, shared_params, environment)
        )
        for host in hosts
    }


def _bound(
    play: Play,
    variables_of: Callable[[Mapping[str, YamlNode]], Variables],
    defined: set[str],
    shared_params: dict[str, object],
    environment: Mapping[str, str],
) -> Iterator[tuple[str, BoundStep]]:
    """Yield the steps for one host; ``shared_params`` keeps the parameters that are the same for all hosts."""
    for step in play.every_step:
        variables = variables_of({**play.vars, **step.vars})
        conditions = (*step.when, *step.until)
        for condition in conditions:
            condition.require(variables.names | defined)
        if step.id not in shared_params or variables.has_lookups(step.raw_params):
            shared_params[step.id] = read_params(step.task, variables.resolve(step.raw_params), environment)
        yield step.id, BoundStep(step, shared_params[step.id], variables.plain(_names(conditions)))


def _names(conditions: Iterable[Condition]) -> set[str]:
    return {name for condition in conditions for name in condition.names}

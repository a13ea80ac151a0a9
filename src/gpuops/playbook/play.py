"""The plays, steps and batches of a playbook, read and checked; no node is contacted here."""

from __future__ import annotations

import functools
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from gpuops.document import Where, YamlNode
from gpuops.inventory import Host
from gpuops.playbook.condition import Condition
from gpuops.playbook.task import AllVariables, Task

RACK = "rack"


@dataclass(frozen=True)
class Step:
    """One task in a play. ``raw_params`` are its parameters as written, with look-ups not yet resolved.

    ``id`` is unique in the playbook and stays the same as long as the playbook does. ``vars`` are its own and those of
    the includes and blocks that contain it. ``loop`` is the list of which it takes every ``item``. ``retries`` is how
    often it is tried again after ``delay_seconds``; with ``until``, also while that condition is not true.
    ``changed_when`` and ``failed_when`` judge its own result. With ``run_once``, the first node of a batch takes it for
    all. ``become``: commands that would run as the login user run as root. ``timeout_seconds`` is for the whole step on
    one node.
    """

    id: str
    name: str
    where: Where
    task: Task
    raw_params: YamlNode
    vars: Mapping[str, YamlNode] = field(default_factory=dict)
    when: tuple[Condition, ...] = ()
    tags: frozenset[str] = frozenset()
    notify: tuple[str, ...] = ()
    register: str = ""
    retries: int = 0
    delay_seconds: float = 5.0
    until: tuple[Condition, ...] = ()
    ignore_errors: bool = False
    timeout_seconds: float | None = None
    loop: YamlNode | None = None
    changed_when: tuple[Condition, ...] = ()
    failed_when: tuple[Condition, ...] = ()
    run_once: bool = False
    become: bool = False

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Every condition of the step."""
        return (*self.when, *self.judging)

    @property
    def takes_all_variables(self) -> bool:
        """True if the task has a parameter that holds all variables of the node."""
        return _takes_all_variables(self.task.params)

    @property
    def judging(self) -> tuple[Condition, ...]:
        """The conditions on its own result."""
        return (*self.until, *self.changed_when, *self.failed_when)


@functools.lru_cache
def _takes_all_variables(params: Any) -> bool:
    hints = typing.get_type_hints(params, include_extras=True) if isinstance(params, type) else {}
    return AllVariables in hints.values()


@dataclass(frozen=True)
class Flush:
    """The point at which handlers run that were notified so far."""

    where: Where


Share = int | float | Literal["rack"]
"""Part of a play's nodes: a count, a fraction of them (0.25), or all in one rack."""


@dataclass(frozen=True)
class Play:
    """``steps`` for the nodes that ``hosts`` selects, in batches of ``serial``; the last batch size repeats.

    The play stops if more than ``max_fail_percentage`` of a batch's nodes failed, or all of them did; with
    ``any_errors_fatal``, if one did.
    """

    name: str
    where: Where
    hosts: str
    steps: tuple[Step | Flush, ...]
    handlers: tuple[Step, ...] = ()
    vars: Mapping[str, YamlNode] = field(default_factory=dict)
    serial: tuple[Share, ...] = (1.0,)
    max_fail_percentage: float = 100.0
    any_errors_fatal: bool = False
    broken: frozenset[str] = frozenset()

    @property
    def every_step(self) -> tuple[Step, ...]:
        """The steps, then the handlers."""
        return (*(step for step in self.steps if isinstance(step, Step)), *self.handlers)


@dataclass(frozen=True)
class Playbook:
    """``plays`` in order. ``files`` define them: playbooks, the tasks that they name, the project's own tasks."""

    path: Path
    plays: tuple[Play, ...]
    files: tuple[Path, ...]


def batches(hosts: Sequence[Host], serial: Sequence[Share]) -> Iterator[list[Host]]:
    """Yield the hosts in order, in the sizes of ``serial``; a fraction is of all hosts, and at least one host."""
    remaining, number = list(hosts), 0
    while remaining:
        share = serial[min(number, len(serial) - 1)]
        if share == RACK:
            chosen = [host for host in remaining if host.rack == remaining[0].rack]
        else:
            chosen = remaining[: share if isinstance(share, int) else max(1, int(share * len(hosts)))]
        yield chosen
        remaining, number = [host for host in remaining if host not in chosen], number + 1


def choose_steps(
    play: Play, tags: Iterable[str] = (), skip_tags: Iterable[str] = (), start_at: Step | None = None
) -> tuple[Step | Flush, ...]:
    """Return the steps with one of ``tags`` (if any are named) and none of ``skip_tags``, from ``start_at`` on."""
    chosen_tags, skipped_tags = set(tags), set(skip_tags)
    first = play.steps.index(start_at) if start_at else 0
    return tuple(
        step
        for step in play.steps[first:]
        if isinstance(step, Flush) or ((not chosen_tags or chosen_tags & step.tags) and not skipped_tags & step.tags)
    )

"""Reads the keys of a step, and of the blocks and includes around it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gpuops.document import YamlNode
from gpuops.errors import DocumentError, Problems, did_you_mean
from gpuops.playbook.ansible import instead_of_key, instead_of_task
from gpuops.playbook.condition import FACTS, Condition, read_conditions

_SHARED = ("name", "vars", "when", "tags", "ignore_errors", "become")
BLOCK = ("block", *_SHARED)
INCLUDE = ("include", *_SHARED)
ITEM = "item"
"""The name of a loop's element."""
_Reader: TypeAlias = tuple[str, Callable[[YamlNode], Any]]
_TAKEN = (ITEM, FACTS, "node", "stack", "true", "false", "none")


@dataclass(frozen=True)
class Context:
    """The settings that steps inherit from their block, their include or their play."""

    vars: Mapping[str, YamlNode] = field(default_factory=dict)
    when: tuple[Condition, ...] = ()
    tags: frozenset[str] = frozenset()
    ignore_errors: bool = False
    become: bool = False
    depth: int = 0

    def inner(self, node: YamlNode, problems: Problems) -> Context:
        """Return the settings within a block or an include; add what is wrong with its keys to ``problems``."""
        fields = _fields(node, {key: _READERS[key] for key in _SHARED}, problems)
        fields.pop("name", None)
        return Context(**self.over(fields), depth=self.depth)

    def over(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a step or a block together with what it inherits."""
        return {
            "ignore_errors": self.ignore_errors,
            "become": self.become,
            **fields,
            "vars": {**self.vars, **fields.get("vars", {})},
            "when": (*self.when, *fields.get("when", ())),
            "tags": self.tags | fields.get("tags", frozenset()),
        }


def step_fields(node: YamlNode, problems: Problems) -> dict[str, Any]:
    """Return the fields of the `gpuops.playbook.play.Step` that its keys set; what is wrong goes to ``problems``."""
    return _fields(node, _READERS, problems)


def only(node: YamlNode, keys: Iterable[str], inside: str) -> None:
    """Raise `DocumentError` for the keys that are not among ``keys``; for those of Ansible, with the gpuops way."""
    problems, allowed = Problems(), list(keys)
    foreign = {key: instead_of_key(key) for key in node.map() if key not in allowed}
    for key, way in foreign.items():
        if way:
            problems.add(DocumentError(node.keys[key], f'"{key}" {inside}: {way}'))
    with problems.collecting():
        node.only([*allowed, *(key for key, way in foreign.items() if way)], inside)
    problems.tell()


def task_key(node: YamlNode, tasks: Iterable[str], problems: Problems) -> str | None:
    """Return the key of a step that names its task; None, and a problem, unless there is exactly one."""
    tasks = list(tasks)
    named = [key for key in node.map() if key not in _READERS]
    known = [key for key in named if key in tasks]
    unknown = [key for key in named if key not in tasks]
    has_task = bool(known)
    for key in unknown:
        problems.add(DocumentError(node.keys[key], _unknown(key, tasks, has_task=has_task)))
        has_task = has_task or not instead_of_key(key)
    if len(known) == 1:
        return known[0]
    if known or not named:
        found = " and ".join(known) or "none"
        problems.add(node.fail(f"an item needs exactly one task, such as package or file; found {found}"))
    return None


def _unknown(key: str, tasks: list[str], *, has_task: bool) -> str:
    """Return what to say of a key that is neither ours nor a task."""
    way = instead_of_key(key)
    if way:
        return f'"{key}" in a task: {way}'
    if has_task:
        return f'unknown key "{key}" in a task{did_you_mean(key, (*_READERS, "include", "flush", "block", *tasks))}'
    way = instead_of_task(key, tasks)
    near = f"; {way}" if way else did_you_mean(key, (*_READERS, "include", "flush", *tasks))
    return f'no task named "{key}"{near}'


def words(node: YamlNode | None) -> frozenset[str]:
    """Return a word, or a list of words, as a set."""
    return frozenset(_listed(node)) if node else frozenset()


def _listed(node: YamlNode) -> tuple[str, ...]:
    return tuple(item.text() for item in (node.items if node.items is not None else [node]))


def _fields(node: YamlNode, readers: Mapping[str, _Reader], problems: Problems) -> dict[str, Any]:
    fields = {}
    for key, value in node.map().items():
        if key in readers:
            name, read = readers[key]
            with problems.collecting():
                fields[name] = read(value)
    return fields


def _id(node: YamlNode) -> str:
    if "[" in node.text("id"):
        raise node.fail('an id has no "[", which numbers the items of a loop in the journal')
    return node.text()


def _register(node: YamlNode) -> str:
    name = node.text("register: a name")
    if not name.isidentifier() or name in _TAKEN:
        raise node.fail(f'"{name}" cannot be registered; expected a name that is not one of {", ".join(_TAKEN)}')
    return name


def _loop(node: YamlNode) -> YamlNode:
    if node.items is None and "{{" not in (node.scalar or ""):
        raise node.fail(f'loop: expected a list, or a variable that is one ("{{{{ name }}}}"), found {node.kind}')
    return node


def _become(node: YamlNode) -> bool:
    if not node.boolean():
        raise node.fail("become: false has no meaning here: a task becomes root where a change needs it; leave it out")
    return True


_READERS: Mapping[str, _Reader] = {
    "id": ("id", _id),
    "name": ("name", lambda node: node.text("name")),
    "when": ("when", read_conditions),
    "vars": ("vars", lambda node: node.map("variables")),
    "tags": ("tags", words),
    "notify": ("notify", _listed),
    "register": ("register", _register),
    "loop": ("loop", _loop),
    "retries": ("retries", lambda node: node.integer("retries: a number", 0, 1000)),
    "delay": ("delay_seconds", lambda node: node.number("delay: seconds")),
    "until": ("until", read_conditions),
    "changed_when": ("changed_when", read_conditions),
    "failed_when": ("failed_when", read_conditions),
    "run_once": ("run_once", YamlNode.boolean),
    "become": ("become", _become),
    "ignore_errors": ("ignore_errors", YamlNode.boolean),
    "timeout": ("timeout_seconds", lambda node: node.number("timeout: seconds")),
}
"""The fields of a step by their keys."""

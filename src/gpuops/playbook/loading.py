"""Reads a playbook's YAML into plays. Errors are reported with their location, before any node is contacted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuops.content import find
from gpuops.document import YamlNode, is_file, load
from gpuops.errors import ContentError, DocumentError, did_you_mean
from gpuops.playbook.condition import Condition, read_conditions
from gpuops.playbook.play import RACK, Flush, Play, Playbook, Share, Step
from gpuops.playbook.task import TaskRegistry

_PLAY = (
    "name", "hosts", "serial", "max_fail_percentage", "any_errors_fatal", "stack", "vars", "tasks", "handlers", "tags",
)  # fmt: skip
_STEP = (
    "id", "name", "when", "tags", "notify", "register", "retries", "delay", "until", "ignore_errors", "timeout",
)  # fmt: skip
_INCLUDE = ("include", "name", "vars", "when", "tags")
_DEEPEST = 8


def load_playbook(name: str, library: TaskRegistry, project: Path | None = None) -> Playbook:
    """Return the playbook in the file ``name``, or the project's or built-in playbook of that name."""
    path = Path(name) if Path(name).suffix in (".yml", ".yaml") else find("playbooks", name, ".yml", project).path
    reader = _Reader(library, project)
    plays = tuple(reader.plays(path))
    if not plays:
        raise ContentError(f"{path}: no plays found; expected a list of plays (- hosts: …)")
    tasks = {step.task.path for play in plays for step in play.every_step}
    return Playbook(path, plays, tuple(dict.fromkeys([*reader.files, *sorted(tasks), *library.own_files])))


@dataclass(frozen=True)
class _Context:
    """The settings that steps inherit from their include or their play."""

    vars: Mapping[str, YamlNode] = field(default_factory=dict)
    when: tuple[Condition, ...] = ()
    tags: frozenset[str] = frozenset()
    depth: int = 0


class _Reader:
    """Reader of the files of one playbook; it keeps their paths and the ids of their steps."""

    def __init__(self, library: TaskRegistry, project: Path | None) -> None:
        self.files: list[Path] = []
        self._library = library
        self._project = project
        self._ids: dict[str, Step] = {}
        self._plays = 0

    def plays(self, path: Path, depth: int = 0) -> Iterator[Play]:
        """Yield the plays of one file, and of those that it includes."""
        for node in self._load(path, depth).list("a list of plays (- hosts: …)"):
            if "include" in node.map("a play"):
                include = node.only(("include", "name"), "in an include of plays")["include"]
                yield from self.plays(self._included(include), depth + 1)
            else:
                yield self._play(node)

    def _load(self, path: Path, depth: int) -> YamlNode:
        if depth > _DEEPEST:
            raise ContentError(f"{path}: included {depth} levels deep; check whether it includes itself")
        self.files.append(path)
        return load(path)

    def _included(self, node: YamlNode) -> Path:
        """Return the file next to the one that names it, else the playbook of that name."""
        name = node.text("a file or a playbook's name")
        beside = Path(node.where.file).parent / name
        if is_file(beside):
            return beside
        folder, _, file = f"playbooks/{name}".rpartition("/")
        try:
            return find(folder, file.removesuffix(".yml"), ".yml", self._project).path
        except ContentError as error:
            raise node.fail(f"no file {beside}, and {error}") from error

    def _play(self, node: YamlNode) -> Play:
        keys = node.only(_PLAY, "in a play")
        if "hosts" not in keys:
            raise node.fail('a play needs "hosts": a pattern such as h100, or all')
        self._plays += 1
        context = _Context(tags=_words(keys.get("tags")))
        variables = keys["vars"].map("variables") if "vars" in keys else {}
        stack = {"stack": self._stack(keys["stack"])} if "stack" in keys else {}
        handlers = tuple(self._steps(keys.get("handlers"), _Context(), handlers=True))
        steps = tuple(self._steps(keys.get("tasks"), context))
        play = Play(
            name=_text(keys, "name") or keys["hosts"].text(),
            where=node.where,
            hosts=keys["hosts"].text("a host pattern"),
            steps=steps,
            handlers=tuple(step for step in handlers if isinstance(step, Step)),
            vars={**stack, **variables},
            **_limits(keys),
        )
        _check_notify(play)
        return play

    def _stack(self, node: YamlNode) -> YamlNode:
        """Return the locked set of versions of that name, the project's own first: a map, which becomes a variable."""
        try:
            path = find("playbooks/stacks", node.text("the name of a stack"), ".yml", self._project).path
        except ContentError as error:
            raise node.fail(str(error)) from error
        stack = self._load(path, 0)
        stack.map("what each task is given")
        return stack

    def _steps(self, node: YamlNode | None, context: _Context, *, handlers: bool = False) -> Iterator[Step | Flush]:
        for item in node.list("a list of tasks (- name: …)") if node else ():
            keys = item.map("a task")
            if "include" in keys:
                yield from self._include(item, context, handlers=handlers)
            elif "flush" in keys:
                item.only(("flush", "name"), "beside flush")
                yield Flush(item.where)
            else:
                yield self._step(item, context, handlers=handlers)

    def _include(self, node: YamlNode, context: _Context, *, handlers: bool) -> Iterator[Step | Flush]:
        keys = node.only(_INCLUDE, "in an include")
        inner = _Context(
            {**context.vars, **(keys["vars"].map("variables") if "vars" in keys else {})},
            (*context.when, *read_conditions(keys.get("when"))),
            context.tags | _words(keys.get("tags")),
            context.depth + 1,
        )
        yield from self._steps(self._load(self._included(keys["include"]), inner.depth), inner, handlers=handlers)

    def _step(self, node: YamlNode, context: _Context, *, handlers: bool) -> Step:
        keys = node.map()
        named = [key for key in keys if key not in _STEP]
        if len(named) != 1:
            raise self._wrong_step(node, named)
        if named[0] not in self._library.names:
            allowed_keys = (*_STEP, "include", "flush", *self._library.names)
            hint = did_you_mean(named[0], allowed_keys)
            raise DocumentError(node.keys[named[0]], f'no task named "{named[0]}"{hint}')
        task = self._library[named[0]]
        step = Step(
            id=_text(keys, "id") or f"{self._plays}.{'h' if handlers else ''}{len(self._ids) + 1}",
            name=_text(keys, "name") or task.name,
            where=node.where,
            task=task,
            raw_params=keys[named[0]],
            vars=context.vars,
            when=(*context.when, *read_conditions(keys.get("when"))),
            tags=context.tags | _words(keys.get("tags")),
            notify=tuple(_listed(keys.get("notify"))),
            register=_text(keys, "register"),
            until=read_conditions(keys.get("until")),
            **_trials(keys),
        )
        if step.id in self._ids:
            raise keys["id"].fail(f'the id "{step.id}" is used twice, first at {self._ids[step.id].where}')
        self._ids[step.id] = step
        return step

    def _wrong_step(self, node: YamlNode, named: list[str]) -> DocumentError:
        allowed_keys = (*_STEP, "include", "flush", *self._library.names)
        unknown = [key for key in named if key not in self._library.names]
        if len(named) > 1 and unknown:
            key = unknown[0]
            return DocumentError(node.keys[key], f'unknown key "{key}" in a task{did_you_mean(key, allowed_keys)}')
        verbs = " and ".join(named) or "none"
        return node.fail(f"an item needs exactly one task, such as package or file; found {verbs}")


def _limits(keys: Mapping[str, YamlNode]) -> dict[str, Any]:
    """Return the fields of a play that limit its batches and failures."""
    fields: dict[str, Any] = {}
    if "serial" in keys:
        node = keys["serial"]
        fields["serial"] = tuple(_share(item) for item in (node.items or [node]))
    if "max_fail_percentage" in keys:
        fields["max_fail_percentage"] = keys["max_fail_percentage"].number("max_fail_percentage: a number")
    if "any_errors_fatal" in keys:
        fields["any_errors_fatal"] = keys["any_errors_fatal"].boolean()
    return fields


def _share(node: YamlNode) -> Share:
    text = node.text("a number of nodes, a percentage or rack")
    if text == RACK:
        return "rack"
    if re.fullmatch("[0-9]{1,3}%", text) and 0 < int(text[:-1]) <= 100:
        return int(text[:-1]) / 100
    return node.integer('serial: a number of nodes, a percentage ("25%") or rack', 1, 1_000_000)


def _trials(keys: Mapping[str, YamlNode]) -> dict[str, Any]:
    """Return the fields of a step that limit its attempts and its time."""
    fields: dict[str, Any] = {}
    if "retries" in keys:
        fields["retries"] = keys["retries"].integer("retries: a number", 0, 1000)
    if "delay" in keys:
        fields["delay_seconds"] = keys["delay"].number("delay: seconds")
    if "timeout" in keys:
        fields["timeout_seconds"] = keys["timeout"].number("timeout: seconds")
    if "ignore_errors" in keys:
        fields["ignore_errors"] = keys["ignore_errors"].boolean()
    return fields


def _text(keys: Mapping[str, YamlNode], key: str) -> str:
    return keys[key].text(key) if key in keys else ""


def _listed(node: YamlNode | None) -> list[str]:
    """Return a word, or a list of words, as a list."""
    if node is None:
        return []
    return [item.text() for item in (node.items if node.items is not None else [node])]


def _words(node: YamlNode | None) -> frozenset[str]:
    return frozenset(_listed(node))


def _check_notify(play: Play) -> None:
    """Raise `DocumentError` unless every notified handler exists and its name is unique."""
    names = [handler.name for handler in play.handlers]
    for number, handler in enumerate(play.handlers):
        if handler.name in names[:number]:
            raise DocumentError(handler.where, f'two handlers are named "{handler.name}"')
    for step in play.every_step:
        for name in step.notify:
            if name not in names:
                hint = did_you_mean(name, names) or "; the play's handlers: " + (", ".join(names) or "none")
                raise DocumentError(step.where, f'no handler named "{name}"{hint}')

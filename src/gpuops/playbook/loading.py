"""Reads a playbook's YAML into plays. Errors are reported with their location, before any node is contacted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuops.content import find
from gpuops.document import Where, YamlNode, is_file, load
from gpuops.errors import ContentError, DocumentError, Problems, did_you_mean
from gpuops.playbook.parameters import check_written
from gpuops.playbook.play import RACK, Flush, Play, Playbook, Share, Step
from gpuops.playbook.step_keys import BLOCK, INCLUDE, Context, only, step_fields, task_key, words
from gpuops.playbook.task import TaskRegistry

_PLAY = (
    "name", "hosts", "serial", "max_fail_percentage", "any_errors_fatal", "stack", "vars", "tasks", "handlers", "tags",
    "become",
)  # fmt: skip
_DEEPEST = 8


def load_playbook(
    name: str, library: TaskRegistry, project: Path | None = None, problems: Problems | None = None
) -> Playbook:
    """Return the playbook in the file ``name``, or the project's or built-in playbook of that name.

    Raise `DocumentError` with everything that is wrong with it, or add that to ``problems`` for the caller to raise.
    """
    path = Path(name) if Path(name).suffix in (".yml", ".yaml") else find("playbooks", name, ".yml", project).path
    found = Problems()
    reader = _Reader(library, project, found)
    plays = tuple(reader.plays(path))
    if problems is None:
        found.tell()
    else:
        problems.extend(found)
    if not plays and not found:
        raise ContentError(f"{path}: no plays found; expected a list of plays (- hosts: …)")
    tasks = {step.task.path for play in plays for step in play.every_step}
    return Playbook(path, plays, tuple(dict.fromkeys([*reader.files, *sorted(tasks), *library.own_files])))


class _Reader:
    """Reader of the files of one playbook; it keeps their paths and the ids of their steps."""

    def __init__(self, library: TaskRegistry, project: Path | None, problems: Problems) -> None:
        self.files: list[Path] = []
        self._problems = problems
        self._broken: set[str] = set()
        self._notified: list[tuple[Where, str]] = []
        self._library = library
        self._project = project
        self._ids: dict[str, Step] = {}
        self._plays = 0

    def plays(self, path: Path, depth: int = 0) -> Iterator[Play]:
        """Yield the plays of one file, and of those that it includes."""
        with self._problems.collecting():
            for node in self._load(path, depth).list("a list of plays (- hosts: …)"):
                with self._problems.collecting():
                    yield from self._plays_of(node, depth)

    def _plays_of(self, node: YamlNode, depth: int) -> Iterator[Play]:
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
        keys, fields, collecting = node.map(), dict[str, Any](), self._problems.collecting
        with collecting():
            only(node, _PLAY, "in a play")
        with collecting():
            if "hosts" not in keys:
                raise node.fail('a play needs "hosts": a pattern such as h100, or all')
            fields["hosts"] = keys["hosts"].text("a host pattern")
        with collecting():
            fields["name"] = keys["name"].text("name") if "name" in keys else fields.get("hosts", "")
        with collecting():
            stack = {"stack": self._stack(keys["stack"])} if "stack" in keys else {}
            fields["vars"] = {**stack, **(keys["vars"].map("variables") if "vars" in keys else {})}
        for key, (field, read) in _LIMITS.items():
            with collecting():
                fields |= {field: read(keys[key])} if key in keys else {}
        self._plays, self._broken, self._notified = self._plays + 1, set(), []
        root = Context(become=Context().inner(node, self._problems).become)
        handlers = tuple(self._steps(keys.get("handlers"), root, handlers=True))
        steps = tuple(self._steps(keys.get("tasks"), replace(root, tags=words(keys.get("tags")))))
        play = Play(
            **{"name": "", "hosts": "", "where": node.where, **fields},
            steps=steps,
            handlers=tuple(step for step in handlers if isinstance(step, Step)),
            broken=frozenset(self._broken),
        )
        self._check_notify(play)
        return play

    def _check_notify(self, play: Play) -> None:
        """Add a problem unless every notified handler exists and its name is unique."""
        names = [handler.name for handler in play.handlers]
        for number, handler in enumerate(play.handlers):
            if handler.name in names[:number]:
                self._problems.add(DocumentError(handler.where, f'two handlers are named "{handler.name}"'))
        for where, name in self._notified:
            if name not in (*names, *self._broken):
                hint = did_you_mean(name, names) or "; the play's handlers: " + (", ".join(names) or "none")
                self._problems.add(DocumentError(where, f'no handler named "{name}"{hint}'))

    def _stack(self, node: YamlNode) -> YamlNode:
        """Return the locked set of versions of that name, the project's own first: a map, which becomes a variable."""
        try:
            path = find("playbooks/stacks", node.text("the name of a stack"), ".yml", self._project).path
        except ContentError as error:
            raise node.fail(str(error)) from error
        stack = self._load(path, 0)
        stack.map("what each task is given")
        return stack

    def _steps(self, node: YamlNode | None, context: Context, *, handlers: bool = False) -> Iterator[Step | Flush]:
        """Yield the steps of a list; what is wrong with one of them does not hide the others."""
        for item in self._items(node):
            with self._problems.collecting():
                yield from self._item(item, context, handlers=handlers)

    def _items(self, node: YamlNode | None) -> list[YamlNode]:
        with self._problems.collecting():
            return node.list("a list of tasks (- name: …)") if node else []
        return []

    def _item(self, item: YamlNode, context: Context, *, handlers: bool) -> Iterator[Step | Flush]:
        keys = item.map("a task")
        if "include" in keys:
            yield from self._include(item, context, handlers=handlers)
        elif "flush" in keys:
            item.only(("flush", "name"), "beside flush")
            yield Flush(item.where)
        elif "block" in keys and keys["block"].entries is None:  # a map is the parameters of the task block
            with self._problems.collecting():
                only(item, BLOCK, "in a block")
            yield from self._steps(keys["block"], context.inner(item, self._problems), handlers=handlers)
        else:
            yield from self._step(item, context, handlers=handlers)

    def _include(self, node: YamlNode, context: Context, *, handlers: bool) -> Iterator[Step | Flush]:
        with self._problems.collecting():
            only(node, INCLUDE, "in an include")
        inner = replace(context.inner(node, self._problems), depth=context.depth + 1)
        included = self._load(self._included(node.map()["include"]), inner.depth)
        yield from self._steps(included, inner, handlers=handlers)

    def _step(self, node: YamlNode, context: Context, *, handlers: bool) -> Iterator[Step]:
        keys = node.map()
        name = task_key(node, self._library.names, self._problems)
        fields = step_fields(node, self._problems)
        self._notified += [(node.where, handler) for handler in fields.get("notify", ())]
        if handlers and fields.get("run_once"):
            self._problems.add(keys["run_once"].fail("a handler runs on every node that notified it"))
        if name is None:
            self._broken |= {fields[key] for key in ("register", "name") if key in fields}
            return
        task = self._library[name]
        with self._problems.collecting():
            check_written(task, keys[name])
        fields.setdefault("id", f"{self._plays}.{'h' if handlers else ''}{len(self._ids) + 1}")
        step = Step(
            **{"name": task.name, "where": node.where, "task": task, "raw_params": keys[name], **context.over(fields)}
        )
        if step.id in self._ids:
            self._problems.add(
                keys["id"].fail(f'the id "{step.id}" is used twice, first at {self._ids[step.id].where}')
            )
        self._ids[step.id] = step
        yield step


def _serial(node: YamlNode) -> tuple[Share, ...]:
    return tuple(_share(item) for item in (node.items or [node]))


def _share(node: YamlNode) -> Share:
    text = node.text("a number of nodes, a percentage or rack")
    if text == RACK:
        return "rack"
    if re.fullmatch("[0-9]{1,3}%", text) and 0 < int(text[:-1]) <= 100:
        return int(text[:-1]) / 100
    return node.integer('serial: a number of nodes, a percentage ("25%") or rack', 1, 1_000_000)


_LIMITS: Mapping[str, tuple[str, Callable[[YamlNode], Any]]] = {
    "serial": ("serial", _serial),
    "max_fail_percentage": ("max_fail_percentage", lambda node: node.number("max_fail_percentage: a number")),
    "any_errors_fatal": ("any_errors_fatal", YamlNode.boolean),
}
"""The fields of a play that limit its batches and failures, by their keys."""

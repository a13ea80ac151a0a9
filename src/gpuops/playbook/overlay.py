"""What a node would be like after the steps that check mode has planned but not made.

Each change says what it leaves (`gpuops.playbook.task.Change`). Later steps see that in place of what is on the node.
Where it is not known what a change leaves, a step that asks for it depends on the step that makes the change.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from gpuops.playbook.task import Change
from gpuops.probing import Unknown
from gpuops.shell import Command, Completed, Files, Question, read_files

Ask = Callable[[Sequence[Question]], list[Completed]]
_PATH = re.compile(r"(?<![\w.+/-])/(?:[\w.@:+~-]+/)*[\w.@:+~-]+")
_OF_PROGRAMS = ("/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/dev/")
_NOT_OF_PACKAGES = re.compile(r"/(?:etc/systemd/system|usr/local|home|root|srv|run|tmp)/|.*/[^/]*gpuops")
"""Paths at which no package puts a file."""
_UNIT_FILE = re.compile(r"(?:/etc|/run|/usr/lib|/lib)/systemd/system/([^/]+\.[a-z]+?)(\.d/[^/]+\.conf)?")
_NEW_UNIT = {"LoadState": "loaded", "ActiveState": "inactive", "SubState": "dead", "Result": "success"}
_NO_UNIT = {"LoadState": "not-found", "ActiveState": "inactive", "SubState": "dead", "UnitFileState": ""}
_STARTED = {"ActiveState": "active", "SubState": "running", "Result": "success"}
_VERBS: Mapping[str, Mapping[str, str]] = {
    "start": _STARTED,
    "restart": _STARTED,
    "reload-or-restart": _STARTED,
    "stop": {"ActiveState": "inactive", "SubState": "dead"},
    "enable": {"UnitFileState": "enabled"},
    "disable": {"UnitFileState": "disabled"},
    "mask": {"LoadState": "masked", "UnitFileState": "masked"},
    "unmask": {"LoadState": "loaded", "UnitFileState": "disabled"},
}
"""The properties of a unit after a verb of systemctl."""
_MOST_NAMED = 3
_NAMES = ("name", "names", "versions", "user")
"""The parameters that name what a task changes."""


class DependsError(Exception):
    """The answer depends on a change that was planned and not made; the message names the step."""


@dataclass(frozen=True)
class NotYet(Unknown):
    """A value that depends on a change that was planned and not made; ``why`` names the step."""


@dataclass(frozen=True)
class _Left:
    """What a ``step`` leaves of one subject: its state, None if it is gone, ``...`` if only that it is there is known.

    ``is_known`` is False if not even that is known.
    """

    step: str
    state: Any = ...
    is_known: bool = True

    @property
    def unknown(self) -> DependsError:
        """The error for a question that what is known does not answer."""
        return DependsError(f"depends on step {self.step}")


class Overlay:
    """The changes planned so far on one node."""

    def __init__(self) -> None:
        self._left: dict[str, _Left] = {}
        self._new_units: dict[str, dict[str, str]] = {}
        self._steps: dict[str, set[str]] = {}
        self._known: dict[str, Callable[[Command, Completed], Completed | None]] = {
            "test": self._test,
            "getent": self._getent,
            "systemctl": self._systemctl,
            "dpkg-query": self._dpkg_query,
        }

    def __bool__(self) -> bool:
        """Return True if anything was planned."""
        return bool(self._steps)

    def add(self, step: str, changes: Iterable[Change], doubtful: object = None) -> None:
        """Add what a ``step`` would change; of ``doubtful`` parameters it is not known what they lead to."""
        words = self._steps.setdefault(step, set())
        for change in changes:
            for subject, state in _leaves(change).items():
                self._leave(step, subject, state)
                words.add(subject.rpartition(" ")[2])
        for text in _texts(doubtful):
            words.add(text)
            self._left[text if text.startswith("/") else f"name {text}"] = _Left(step, is_known=False)

    def suspects(self, text: str) -> str:
        """Return which steps something depends on that cannot be told: those that ``text`` has words of, else all."""
        named = [step for step, words in self._steps.items() if any(_mentions(text, word) for word in words)]
        steps = named or [*self._steps]
        if len(steps) > _MOST_NAMED:
            return f"depends on one of the steps {', '.join(step.partition(' ')[0] for step in steps)}"
        return f"depends on step {' or '.join(steps)}"

    def stat(self, path: str, reads: str, look: Callable[[], Any]) -> Any:
        """Return the value of the task stat; ``look`` returns that of the node."""
        self._refuse_unknown(path)
        left = self._left.get(path)
        if left is None:
            found = look()
            if found is None and any(self._is_below(one, path) for one in self._left):
                return _directory()
            if found is None and not _NOT_OF_PACKAGES.match(path):
                self._refuse_packages(path, named=True)
            return found
        if left.state is None:
            return None
        if left.state is ...:
            raise left.unknown
        state = left.state if "content" in left.state else {**(look() or _directory()), **left.state}
        return _as_stat(left, reads, state)

    def answer(self, questions: Sequence[Question], ask: Ask) -> list[Completed]:
        """Return the answers of the node as they would be; raise `DependsError` if that is not known."""
        answers = ask(questions)
        return [self._answer(question, answer) for question, answer in zip(questions, answers, strict=True)]

    def _answer(self, question: Question, answer: Completed) -> Completed:
        if isinstance(question, Files):
            return self._files(question, answer)
        if not isinstance(question, Command):
            return answer
        text, program = " ".join((*question.words, question.stdin)), question.words[0].rpartition("/")[2]
        if program == "rpm" and answer.missing:
            return answer
        self._refuse_mentioned(text, lambda left: not left.is_known)
        changed = self._known[program](question, answer) if program in self._known else None
        if changed is None:
            self._refuse_mentioned(text, lambda _: True)
        return changed or answer

    def _leave(self, step: str, subject: str, state: Any) -> None:
        before = self._left.get(subject)
        if isinstance(state, Mapping) and before and isinstance(before.state, Mapping):
            state = {**before.state, **state}
        self._left[subject] = _Left(step, state, is_known=state != UNKNOWN)
        unit = _UNIT_FILE.fullmatch(subject)
        if unit:
            self._new_units |= {} if unit[2] else {unit[1]: _of_unit_file(state)}
            self._leave(step, f"unit {unit[1]}", {"NeedDaemonReload": "no" if state is None else "yes"})
        if subject == RELOADED:
            for name in [one for one in self._left if one.startswith("unit ")]:
                self._leave(step, name, {"NeedDaemonReload": "no"})

    def _files(self, question: Files, answer: Completed) -> Completed:
        seen = read_files(answer.out)
        for path, left in self._left.items():
            if not left.is_known and any(glob.startswith(f"{path}/") for glob in question.globs):
                raise left.unknown
            if not any(_matches(path, glob) for glob in question.globs):
                continue
            if left.state is None:
                seen.pop(path, None)
            elif not _is_text(left):
                raise left.unknown
            elif "content" in left.state or path not in seen:
                seen[path] = left.state.get("content", "")
        return replace(answer, out="".join(f"{path}\0{content}\0" for path, content in seen.items()))

    def _test(self, question: Command, answer: Completed) -> Completed | None:
        if len(question.words) != 3 or question.words[1] not in ("-e", "-f", "-d"):
            return None
        path, kind = question.words[2], {"-f": "file", "-d": "directory"}.get(question.words[1], "")
        self._refuse_unknown(path)
        left = self._left.get(path)
        if left is not None and left.state is ... and kind:
            raise left.unknown
        if left is not None:
            state = left.state
            is_there = state is not None and (state is ... or not kind or state.get("kind", kind) == kind)
            return replace(answer, exit=0 if is_there else 1)
        if answer.exit != 0 and kind != "file" and any(self._is_below(one, path) for one in self._left):
            return replace(answer, exit=0)
        if answer.exit != 0 and not _NOT_OF_PACKAGES.match(path):
            self._refuse_packages(path, named=True)
        return answer

    def _getent(self, question: Command, answer: Completed) -> Completed:
        left = self._left.get(" ".join(question.words[1:3]))
        if left is not None and left.state is None:
            return replace(answer, exit=2, out="")
        if left is not None and left.state is ...:
            raise left.unknown
        if left is not None:
            return replace(answer, exit=0, out=f"{':'.join(left.state)}\n")
        if answer.exit == 2:
            self._refuse_packages(question.words[-1], named=False)
        return answer

    def _systemctl(self, question: Command, answer: Completed) -> Completed | None:
        if question.words[1:2] != ("show",) or "--" not in question.words:
            return None
        unit = question.words[-1]
        now = dict(line.split("=", 1) for line in answer.out.splitlines() if "=" in line)
        left, new = self._left.get(f"unit {unit}"), self._new_units.get(unit, {})
        is_missing = now.get("LoadState") == "not-found"
        if is_missing and not new:
            self._refuse_packages(unit, named=False)
        if left is None or (is_missing and not new):
            return answer
        changed = {**now, **(new if is_missing or new == _NO_UNIT else {}), **left.state}
        return replace(answer, out="".join(f"{key}={changed[key]}\n" for key in now))

    def _dpkg_query(self, question: Command, answer: Completed) -> Completed | None:
        form = next((word[3:] for word in question.words if word.startswith("-f=")), "")
        if not form.startswith("${Package}\t") or "--" not in question.words:
            return None
        names = question.words[question.words.index("--") + 1 :]
        lines = answer.out.splitlines(keepends=True)
        for name in names:
            left = self._left.get(f"package {name}")
            if left is not None:
                lines = [line for line in lines if line.partition("\t")[0] != name]
                if left.state is not None:
                    version = form.replace("${Package}", name).replace("${db:Status-Abbrev}", "ii ")
                    lines.append(version.replace("${Version}", left.state["version"]))
        return replace(answer, out="".join(lines))

    def _refuse_unknown(self, path: str) -> None:
        """Raise `DependsError` for a path that a step changes in an unknown way, or that is below one."""
        for one in (path, *map(str, PurePosixPath(path).parents)):
            left = self._left.get(one)
            if left and not left.is_known:
                raise left.unknown

    def _refuse_packages(self, subject: str, *, named: bool) -> None:
        """Raise `DependsError` if ``subject`` is not there, and a planned package may bring it."""
        for name, left in self._left.items():
            kind, _, package = name.partition(" ")
            if kind == "package" and left.state is not None and (not named or _mentions(subject, package)):
                raise left.unknown

    def _refuse_mentioned(self, text: str, applies: Callable[[_Left], bool]) -> None:
        for subject, left in self._left.items():
            if not applies(left):
                continue
            name = subject.rpartition(" ")[2]
            if _mentions(text, name) or (subject.startswith("unit ") and _mentions(text, name.rpartition(".")[0])):
                raise left.unknown
            if any(subject.startswith(f"{one}/") for one in _PATH.findall(text)):
                raise left.unknown

    def _is_below(self, path: str, folder: str) -> bool:
        left = self._left[path]
        return path.startswith(f"{folder.rstrip('/')}/") and folder != "/" and left.is_known and left.state is not None


UNKNOWN = "unknown"
"""The state of a subject of which nothing is known any more."""
RELOADED = "systemd reloaded"


def _is_text(left: _Left) -> bool:
    """Return True if the content of what is left is known."""
    if not left.is_known or left.state is ...:
        return False
    return isinstance(left.state.get("content", ""), str) and left.state["kind"] != "symbolic link"


def _leaves(change: Change) -> Mapping[str, Any]:
    """Return what a change leaves: what it says, and what its command names if that is not all."""
    if change.leaves and ... not in change.leaves.values():
        return change.leaves
    return {**_guessed(change), **change.leaves}


def _guessed(change: Change) -> dict[str, Any]:
    """Return what a change leaves that does not say it: a verb of systemctl, else the paths that its words have."""
    words = change.command.words if change.command else (change.what,)
    if words[0] == "systemctl":
        return (
            {RELOADED: None} if words[1] == "daemon-reload" else {f"unit {words[-1]}": dict(_VERBS.get(words[1], {}))}
        )
    text = " ".join((*words[1:], change.command.stdin if change.command else words[0]))
    return {path: UNKNOWN for path in _PATH.findall(text) if not path.startswith(_OF_PROGRAMS)}


def _texts(value: object) -> Iterator[str]:
    """Yield the paths and names in the parameters of a task."""
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            for word in _words(getattr(value, field.name)):
                if word.startswith("/") or (field.name in _NAMES and re.fullmatch(r"[\w.@:+-]{2,}", word)):
                    yield word


def _words(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple, Mapping)):
        yield from (word for word in value if isinstance(word, str))


def _mentions(text: str, word: str) -> bool:
    end = r"(?![\w-]|\.\w)" if word.startswith("/") else r"(?![\w-])"
    return len(word) > 1 and re.search(rf"(?<![\w.-]){re.escape(word)}{end}", text) is not None


def _matches(path: str, glob: str) -> bool:
    pattern = re.escape(glob).replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
    return re.fullmatch(pattern, path) is not None


def _of_unit_file(state: Any) -> dict[str, str]:
    """Return the properties of a unit that is new or gone, after its file is left in this state."""
    if state is None:
        return dict(_NO_UNIT)
    content = state.get("content") if isinstance(state, Mapping) else ""
    return {**_NEW_UNIT, "UnitFileState": "disabled" if "[Install]" in str(content) else "static"}


def _directory() -> dict[str, str]:
    """Return a directory as tasks make it on the way to a file."""
    root = {"owner": "root", "group": "root", "uid": "0", "gid": "0"}
    return {"kind": "directory", "mode": "755", **root, "content": ""}


def _as_stat(left: _Left, reads: str, state: Any) -> dict[str, str]:
    """Return a file's state as the task stat does."""
    owner, group = state["owner"], state["group"]
    numbers = {"uid": "0" if owner == "root" else owner, "gid": "0" if group == "root" else group}
    content = state.get("content", "") if reads or state["kind"] != "file" else ""
    if state["kind"] == "file" and reads == "sha256":
        text = state["content"]
        content = state.get("sha256", text if text is ... else hashlib.sha256(str(text).encode()).hexdigest())
    if content is ...:
        raise left.unknown
    known = {key: state[key] for key in ("kind", "mode", "owner", "group")}
    return {**numbers, **known, "content": content}

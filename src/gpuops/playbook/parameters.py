"""Reads a task's parameters, from a playbook or from another task, into the task's own dataclass.

The field's type decides what a value means, so ``mode: 0644`` is text and ``value: yes`` is refused if text is due.
Fields may be ``str``, ``int``, ``float``, ``bool``, ``Literal``, ``Path`` (a file next to the playbook), `NodePath`,
`Mode`, `AllVariables`, `Secret`, ``X | None``, ``tuple[X, ...]``, ``Mapping[str, X]``, another dataclass, or ``Any``.
Text whose name ends in ``version`` must be quoted if YAML would read a number.
"""

from __future__ import annotations

import dataclasses
import re
import stat
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuops.document import Opaque, Where, YamlNode, is_file, load, parse, read_text
from gpuops.errors import InputError, Problems
from gpuops.playbook.ansible import PARAMETERS, VALUES
from gpuops.playbook.task import AllVariables, Mode, NodePath, Task
from gpuops.secret import Secret

_PLAIN = "tag:yaml.org,2002:"
_REFERENCES = ("!env", "!file")
NO_ENVIRONMENT: Mapping[str, str] = types.MappingProxyType({})


@dataclass(frozen=True)
class _Given:
    """What parameters may refer to."""

    environment: Mapping[str, str]
    variables: Mapping[str, Any]


@dataclass(frozen=True)
class _Held(YamlNode):
    """A secret that is already resolved."""

    secret: Secret = field(default_factory=lambda: Secret(""), repr=False)


class _Layered(Mapping[str, Any]):
    """A map above another; neither is read before it is needed."""

    def __init__(self, above: Mapping[str, Any], below: Mapping[str, Any]) -> None:
        self._above = above
        self._below = below

    def __getitem__(self, name: str) -> Any:
        return self._above[name] if name in self._above else self._below[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**dict.fromkeys(self._below), **dict.fromkeys(self._above)})

    def __len__(self) -> int:
        return sum(1 for _ in self)


def read_params(
    task: Task,
    raw_params: YamlNode,
    environment: Mapping[str, str] = NO_ENVIRONMENT,
    variables: Mapping[str, Any] = NO_ENVIRONMENT,
) -> object:
    """Return the parameters in a document; ``!env NAME`` refers to a variable of ``environment``.

    ``variables`` are below the entries of a parameter of the type `AllVariables`. Raise `gpuops.errors.DocumentError`
    with all parameters that are unknown, missing or wrong.
    """
    return _value(raw_params, task.params, task.name, _Given(environment, variables))


def as_params(task: Task, params: Mapping[str, object], environment: Mapping[str, str] = NO_ENVIRONMENT) -> object:
    """Return the parameters that another task passes, as `read_params` does."""
    return read_params(task, as_node(params, Where(str(task.path))), environment)


def as_node(value: object, where: Where) -> YamlNode:
    """Return a plain value as if it stood in a document at ``where``."""
    if isinstance(value, Mapping):
        entries = {str(key): as_node(entry, where) for key, entry in value.items()}
        return YamlNode(where, f"{_PLAIN}map", entries=entries, keys=dict.fromkeys(entries, where))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return YamlNode(where, f"{_PLAIN}seq", items=[as_node(item, where) for item in value])
    return value if isinstance(value, YamlNode) else _scalar_node(value, where)


def extra_variables(words: Iterable[str]) -> dict[str, YamlNode]:
    """Return the variables of ``NAME=VALUE``, a YAML value, and of ``@FILE``, a YAML mapping; later ones win."""
    variables: dict[str, YamlNode] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if word.startswith("@"):
            variables |= load(Path(word[1:])).map("variables")
        elif equals and name.isidentifier():
            variables[name] = parse(text, f"--extra-vars {name}")
        else:
            raise InputError(f'--extra-vars: "{word}" is not NAME=VALUE or @FILE')
    return variables


def _scalar_node(value: object, where: Where) -> YamlNode:
    if isinstance(value, Secret):
        return _Held(where, "!secret", secret=value)
    if isinstance(value, Opaque):
        return YamlNode(where, value.tag, value.text)
    if value is None:
        return YamlNode(where, f"{_PLAIN}null")
    if isinstance(value, (bool, int, float)):
        return YamlNode(where, _PLAIN + type(value).__name__, str(value).lower())
    return YamlNode(where, f"{_PLAIN}str", str(value), quoted=True)


def _dataclass(node: YamlNode, type_: type, called: str, given: _Given) -> object:
    """Return a dataclass from a map of its fields."""
    hints, problems = typing.get_type_hints(type_, include_extras=True), Problems()
    with problems.collecting():
        check_names(node, type_, called)
    values = {}
    for name, entry in (node.entries or {}).items():
        if name in hints:
            with problems.collecting():
                values[name] = _value(entry, hints[name], f"{called}: {name}", given)
    problems.tell()
    all_of_them = {name: _Layered({}, given.variables) for name in hints if hints[name] == AllVariables}
    try:
        return type_(**{**all_of_them, **values})
    except ValueError as error:
        raise node.fail(f"{called}: {error}") from error


def check_written(task: Task, raw_params: YamlNode) -> None:
    """Raise `DocumentError` for names of parameters that are wrong, whatever the look-ups in their values are."""
    if isinstance(task.params, type) and "{{" not in (raw_params.scalar or ""):
        check_names(raw_params, task.params, task.name)


def check_names(node: YamlNode, type_: type, called: str) -> None:
    """Raise `DocumentError` unless ``node`` has the required fields of the dataclass ``type_``, and no unknown ones."""
    fields = dataclasses.fields(type_)
    names = [f.name for f in fields]
    if node.entries is None and not node.empty:
        raise node.fail(f'"{called}" takes a map of {", ".join(names)}; found {node.kind}')
    entries = node.only(names, f'under "{called}"', PARAMETERS)
    problems = Problems()
    for f in fields:
        if f.name not in entries and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            problems.add(node.fail(f'"{called}" needs "{f.name}"'))
    problems.tell()


def _value(node: YamlNode, hint: Any, called: str, given: _Given) -> Any:
    """Return the value of ``node`` as the type ``hint``."""
    if hint in _SPECIAL or hint in _SCALARS:
        return _SPECIAL[hint](node, called, given) if hint in _SPECIAL else _SCALARS[hint](node, called)
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        (real,) = (kind for kind in inner if kind is not type(None))
        return None if node.empty else _value(node, real, called, given)
    if origin is typing.Literal:
        return _choice(node, inner, called)
    if origin is tuple:
        return tuple(_value(item, inner[0], called, given) for item in node.list(f"{called}: a list"))
    if origin is not None:
        entries = node.map(f"{called}: a map")
        return {key: _value(entry, inner[1], f"{called} {key}", given) for key, entry in entries.items()}
    return _dataclass(node, hint, called, given)


def _choice(node: YamlNode, words: tuple[str, ...], called: str) -> str:
    word = node.text(called)
    if word not in words:
        task, _, parameter = called.partition(": ")
        way = VALUES.get((task, parameter, word))
        raise node.fail(f"{called} must be one of {', '.join(words)}; found {node.kind}{f'; {way}' if way else ''}")
    return word


def _text(node: YamlNode, called: str) -> str:
    if not node.tag.startswith(_PLAIN):
        raise node.fail(f"{called} must be plain text; only a secret may be {node.tag}")
    if node.tag == f"{_PLAIN}bool" and not node.quoted:
        raise node.fail(f'{called} means true or false in YAML; put it in quotes: "{node.scalar}"')
    return node.version(called) if called.endswith("version") else node.text(called)


def _path(node: YamlNode, called: str) -> Path:
    """Return a file on the control machine, next to the document that names it."""
    path = Path(node.where.file).parent / Path(_text(node, called)).expanduser()
    if not is_file(path):
        raise node.fail(f"{called}: no such file: {path}")
    return path


def _node_path(node: YamlNode, called: str) -> str:
    text = _text(node, called)
    if not text.startswith("/"):
        raise node.fail(f'{called} must start with "/", found "{text}"')
    return text


def _mode(node: YamlNode, called: str) -> str:
    text = _text(node, called)
    if not re.fullmatch("[0-7]{3,4}", text):
        raise node.fail(f'{called} must be three or four octal digits such as 0644, found "{text}"')
    return text


def _secret(node: YamlNode, called: str, given: _Given) -> Secret:
    """Return what ``!env NAME`` or ``!file PATH`` refers to; plain text in the document is refused."""
    if isinstance(node, _Held):
        return node.secret
    if node.tag not in _REFERENCES:
        raise node.fail(f"{called} is a secret and must not be written here; refer to it with !env NAME or !file PATH")
    if node.tag == "!file":
        return _secret_file(node, called)
    text = given.environment.get(node.scalar or "")
    if text is None:
        raise node.fail(f"{called}: {node.scalar} is not set in the environment")
    return Secret(text)


def _all_variables(node: YamlNode, called: str, given: _Given) -> Mapping[str, Any]:
    entries = node.map(f"{called}: a map")
    return _Layered({key: entry.plain() for key, entry in entries.items()}, given.variables)


def _secret_file(node: YamlNode, called: str) -> Secret:
    path = Path(node.where.file).parent / Path(node.scalar or "").expanduser()
    try:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise node.fail(f"{called}: other users can read {path}; run: chmod 600 {path}")
        return Secret(read_text(path).rstrip("\n"))
    except (OSError, ValueError) as error:
        raise node.fail(f"{called}: cannot read {path}: {error}") from error


_SCALARS: Mapping[Any, Callable[[YamlNode, str], Any]] = {
    str: _text,
    int: YamlNode.integer,
    float: YamlNode.number,
    bool: YamlNode.boolean,
    Path: _path,
    NodePath: _node_path,
    Mode: _mode,
    Any: lambda node, _: node.plain(),
}
_SPECIAL: Mapping[Any, Callable[[YamlNode, str, _Given], Any]] = {Secret: _secret, AllVariables: _all_variables}

"""``{{ … }}``: look-ups, literals and filters, in Jinja's notation. There are no calls, tests, operators or statements.

Jinja reads the notation; the values are looked up here, so that nothing of Python can be reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import jinja2
from jinja2 import nodes

from gpuops.errors import did_you_mean
from gpuops.playbook.filters import FILTERS
from gpuops.sandbox import sandbox

DEFAULT = "default"
Path: TypeAlias = tuple[str | int, ...]
Look: TypeAlias = Callable[[Path], Any]
_ALLOWED = (
    nodes.Name, nodes.Getattr, nodes.Getitem, nodes.Const, nodes.TemplateData, nodes.List, nodes.Tuple, nodes.Dict,
    nodes.Pair, nodes.Filter, nodes.Keyword, nodes.Neg,
)  # fmt: skip
_ENVIRONMENT = sandbox()
_ENVIRONMENT.filters = {DEFAULT: str, **FILTERS}


class UndefinedError(LookupError):
    """A name that is not defined; the filter ``default`` takes its place."""


@dataclass(frozen=True)
class Expression:
    """What is between two braces."""

    text: str
    tree: nodes.Expr

    @property
    def path(self) -> Path | None:
        """The path of a plain look-up (``a.b[0]``); None for anything else."""
        return _path(self.tree)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The path of every look-up."""
        return tuple(_paths(self.tree, optional=True))

    @property
    def required(self) -> tuple[Path, ...]:
        """The path of every look-up that has no ``default``."""
        return tuple(_paths(self.tree, optional=False))

    def value(self, look: Look) -> Any:
        """Return the value; ``look`` returns that of a path, or raises `UndefinedError`.

        Raise `ValueError` with a sentence if a filter does not fit its value.
        """
        return _value(self.tree, look)


@lru_cache(maxsize=4096)
def pieces(text: str) -> tuple[str | Expression, ...]:
    """Return the text and the expressions of a template; raise `ValueError` with a sentence for anything else."""
    try:
        return tuple(_pieces(text))
    except jinja2.TemplateError as error:
        raise ValueError(f"{text}: {_explain(error)}") from error


def _explain(error: jinja2.TemplateError) -> str:
    message = str(error.message).rstrip(".")
    name = message.partition("No filter named '")[2].rstrip("'")
    near = did_you_mean(name, _ENVIRONMENT.filters) or f"; known: {', '.join(sorted(_ENVIRONMENT.filters))}"
    return f'no filter named "{name}"{near}' if name else message


def _pieces(text: str) -> Iterator[str | Expression]:
    inner: list[str] | None = None
    for _, kind, word in _ENVIRONMENT.lex(text):
        if kind in ("block_begin", "comment_begin", "raw_begin"):
            raise ValueError(f"{text}: only {{{{ name | filter }}}} is allowed in a parameter; see the task template")
        if kind == "variable_begin":
            inner = []
        elif kind == "variable_end" and inner is not None:
            yield _expression("".join(inner).strip())
            inner = None
        elif inner is not None:
            inner.append(word)
        else:
            yield word
    if inner is not None:
        raise ValueError(f"{text}: braces that do not end")


def _expression(source: str) -> Expression:
    output = _ENVIRONMENT.parse(f"{{{{ {source} }}}}").body[0]
    tree = next(output.iter_child_nodes(), None)
    _ENVIRONMENT.from_string(f"{{{{ {source} }}}}")  # which names an unknown filter
    if not isinstance(tree, nodes.Expr):
        raise ValueError("{{ }}: empty; expected a name")  # noqa: TRY004 - what the user wrote
    for part in (tree, *tree.find_all(nodes.Node)):
        if not isinstance(part, _ALLOWED):
            raise ValueError(  # noqa: TRY004 - what the user wrote
                f"{{{{ {source} }}}}: only look-ups, literals and filters are allowed in braces, found "
                f"{type(part).__name__.lower()}; for a choice use `when` or a variable"
            )
    return Expression(source, tree)


def _path(tree: nodes.Node) -> Path | None:
    if isinstance(tree, nodes.Name):
        return (tree.name,)
    if isinstance(tree, (nodes.Getattr, nodes.Getitem)):
        owner = _path(tree.node)
        key = tree.attr if isinstance(tree, nodes.Getattr) else getattr(tree.arg, "value", None)
        return None if owner is None or not isinstance(key, (str, int)) else (*owner, key)
    return None


def _paths(tree: nodes.Node, *, optional: bool) -> Iterator[Path]:
    path = _path(tree)
    if path:
        yield path
        return
    for part in tree.iter_child_nodes():
        defaulted = isinstance(tree, nodes.Filter) and tree.name == DEFAULT and part is tree.node
        if optional or not defaulted:
            yield from _paths(part, optional=optional)


def _value(tree: nodes.Node, look: Look) -> Any:
    path = _path(tree)
    if path is not None:
        return look(path)
    return _VALUES[type(tree)](tree, look)


def _member(tree: Any, look: Look) -> Any:
    owner, key = _value(tree.node, look), _value(tree.arg, look) if isinstance(tree, nodes.Getitem) else tree.attr
    return member(owner, key)


def member(owner: Any, key: Any) -> Any:
    """Return the entry of a map or the item of a list; raise `UndefinedError` if there is none."""
    if isinstance(owner, Mapping) and key in owner:
        return owner[key]
    if isinstance(owner, Sequence) and not isinstance(owner, str) and isinstance(key, int):
        if -len(owner) <= key < len(owner):
            return owner[key]
        raise UndefinedError(f"a list of {len(owner)} has no [{key}]")
    near = did_you_mean(str(key), map(str, owner)) if isinstance(owner, Mapping) else ""
    raise UndefinedError(f'no "{key}"{near}')


def _filtered(tree: Any, look: Look) -> Any:
    arguments = [_value(part, look) for part in tree.args]
    named = {pair.key: _value(pair.value, look) for pair in tree.kwargs}
    if tree.name == DEFAULT:
        return _defaulted(tree.node, look, *arguments, **named)
    try:
        return FILTERS[tree.name](_value(tree.node, look), *arguments, **named)
    except (TypeError, ArithmeticError, ValueError) as error:
        raise ValueError(f"{tree.name}: {error}") from error


def _defaulted(tree: nodes.Node, look: Look, value: Any = "", boolean: object = False) -> Any:  # noqa: FBT002 - as Jinja
    try:
        found = _value(tree, look)
    except UndefinedError:
        return value
    return value if boolean and not found else found


_VALUES: Mapping[type[nodes.Node], Callable[[Any, Look], Any]] = {
    nodes.Getattr: _member,
    nodes.Getitem: _member,
    nodes.Const: lambda tree, _: tree.value,
    nodes.TemplateData: lambda tree, _: tree.data,
    nodes.List: lambda tree, look: [_value(part, look) for part in tree.items],
    nodes.Tuple: lambda tree, look: [_value(part, look) for part in tree.items],
    nodes.Dict: lambda tree, look: {_value(pair.key, look): _value(pair.value, look) for pair in tree.items},
    nodes.Neg: lambda tree, look: -_value(tree.node, look),
    nodes.Filter: _filtered,
}

"""``when`` and ``until``: a small expression over variables, facts and registered results. It computes nothing else.

Allowed are names, attributes, ``[…]`` with a literal, literals and lists of them, comparisons, ``in``, ``and``, ``or``,
``not``, and ``version(x)``, which compares by numbers. A name that is not defined is an error, never false; so is a
fact that nobody could read, and a comparison of a text with a number.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpuops.document import Where, YamlNode
from gpuops.errors import DocumentError, did_you_mean
from gpuops.probing import Unknown

FACTS = "facts"
_WORDS = {"true": True, "false": False, "none": None}
_ALLOWED = (
    ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare, ast.Name, ast.Attribute, ast.Subscript,
    ast.Constant, ast.List, ast.Tuple, ast.Load, ast.Call,
)  # fmt: skip
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, many: item in many,
    ast.NotIn: lambda item, many: item not in many,
}


@functools.total_ordering
class Version:
    """A version by its numbers and words: 580.95 < 580.126. A shorter one that begins the longer is the smaller."""

    def __init__(self, text: object) -> None:
        self.parts = tuple((word.isdigit(), int(word) if word.isdigit() else 0, word) for word in _words(text))

    def __eq__(self, other: object) -> bool:
        return self.parts == _version(other).parts

    def __lt__(self, other: object) -> bool:
        return self.parts < _version(other).parts

    def __hash__(self) -> int:
        return hash(self.parts)


def _version(value: object) -> Version:
    return value if isinstance(value, Version) else Version(value)


def _words(text: object) -> list[str]:
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is no version; expected a text")
    return re.findall(r"\d+|[a-z]+", text.lower())


@dataclass(frozen=True)
class Condition:
    """One expression and the place where it stands."""

    text: str
    where: Where
    tree: ast.expr

    @property
    def names(self) -> set[str]:
        """The names that must be defined; for a fact ``facts.NAME``."""
        names = set()
        functions = [node.func for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == FACTS:
                names.add(f"{FACTS}.{node.attr}")
            elif isinstance(node, ast.Name) and node not in functions and node.id not in (FACTS, *_WORDS):
                names.add(node.id)
        return names

    @property
    def facts(self) -> set[str]:
        """The probes that it needs."""
        return {name.partition(".")[2] for name in self.names if name.startswith(f"{FACTS}.")}

    def require(self, defined: Iterable[str]) -> None:
        """Raise `DocumentError` for a name that is not defined."""
        names = set(defined)
        for name in sorted(self.names - names):
            raise self.fail(f'nothing is called "{name}" here{did_you_mean(name, names)}')

    def holds(self, scope: Mapping[str, object]) -> bool:
        """Whether it is true; `DocumentError` where it cannot be told."""
        try:
            return bool(_value(self.tree, scope))
        except (TypeError, LookupError) as error:
            raise self.fail(str(error.args[0] if error.args else error)) from error

    def fail(self, what: str) -> DocumentError:
        """An error at this place."""
        return DocumentError(self.where, f"{self.text!r} cannot be decided: {what}")


def read_conditions(node: YamlNode | None) -> tuple[Condition, ...]:
    """The expression, or the list of expressions that must all be true."""
    if node is None:
        return ()
    return tuple(_read(item) for item in (node.items if node.items is not None else [node]))


def _read(node: YamlNode) -> Condition:
    text = node.text("a condition")
    if "{{" in text or "{%" in text:
        raise node.fail("a condition is written without braces: name == 1")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise node.fail(f"{text!r} is not a condition: {str(error).split(' (')[0]}") from error
    for part in ast.walk(tree):
        _refuse_foreign(node, part)
    return Condition(text, node.where, tree)


def _refuse_foreign(node: YamlNode, part: ast.AST) -> None:
    if not isinstance(part, (*_ALLOWED, *_COMPARISONS)):
        raise node.fail(f"a condition may not hold {type(part).__name__.lower()}; see the page on playbooks")
    if isinstance(part, ast.Call) and (ast.unparse(part.func) != "version" or len(part.args) != 1 or part.keywords):
        raise node.fail(f"{ast.unparse(part)} is not known here; the one function is version(x)")
    if isinstance(part, ast.Subscript) and not isinstance(part.slice, (ast.Constant, ast.UnaryOp)):
        raise node.fail(f"{ast.unparse(part)}: only a literal may stand in [ ]")


def _value(tree: ast.expr, scope: Mapping[str, object]) -> Any:
    """What ``tree`` comes to; `TypeError` or `LookupError` with a sentence where it comes to nothing."""
    return _VALUES[type(tree)](tree, scope)


def _any_or_all(tree: Any, scope: Mapping[str, object]) -> bool:
    some = any if isinstance(tree.op, ast.Or) else all
    return some(_value(part, scope) for part in tree.values)


def _unary(tree: Any, scope: Mapping[str, object]) -> Any:
    value = _value(tree.operand, scope)
    return not value if isinstance(tree.op, ast.Not) else -value


def _compare(tree: Any, scope: Mapping[str, object]) -> bool:
    left = _value(tree.left, scope)
    for sign, part in zip(tree.ops, tree.comparators, strict=True):
        right = _value(part, scope)
        if {str, float} <= {_sort(left), _sort(right)}:
            raise TypeError(f"{left!r} and {right!r} are a text and a number")
        if not _COMPARISONS[type(sign)](left, right):
            return False
        left = right
    return True


def _sort(value: object) -> type:
    return float if isinstance(value, (int, float)) else type(value)


def _name(tree: Any, scope: Mapping[str, object]) -> Any:
    if tree.id in scope:
        return _require_known(scope[tree.id])
    if tree.id in _WORDS:
        return _WORDS[tree.id]
    raise LookupError(f'nothing is called "{tree.id}" here')


def _attribute(tree: Any, scope: Mapping[str, object]) -> Any:
    owner, name = _value(tree.value, scope), tree.attr
    if isinstance(owner, Mapping) and name in owner:
        return _require_known(owner[name])
    if dataclasses.is_dataclass(owner) and name in {f.name for f in dataclasses.fields(owner)}:
        return _require_known(getattr(owner, name))
    raise LookupError(f'{ast.unparse(tree.value)} has no "{name}"')


def _item(tree: Any, scope: Mapping[str, object]) -> Any:
    owner, key = _value(tree.value, scope), _value(tree.slice, scope)
    try:
        return _require_known(owner[key])
    except (LookupError, TypeError) as error:
        raise LookupError(f"{ast.unparse(tree.value)} has no [{key!r}]") from error


def _require_known(value: Any) -> Any:
    if isinstance(value, Unknown):
        raise LookupError(value.why)  # noqa: TRY004 - it could not be read
    return value


_VALUES: Mapping[type[ast.expr], Callable[[Any, Mapping[str, object]], Any]] = {
    ast.BoolOp: _any_or_all,
    ast.UnaryOp: _unary,
    ast.Compare: _compare,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Subscript: _item,
    ast.Constant: lambda tree, _: tree.value,
    ast.List: lambda tree, scope: [_value(part, scope) for part in tree.elts],
    ast.Tuple: lambda tree, scope: tuple(_value(part, scope) for part in tree.elts),
    ast.Call: lambda tree, scope: Version(_value(tree.args[0], scope)),
}

"""``when`` and ``until``: small expressions over variables, facts and registered results.

Allowed are names, attributes, ``[…]`` with a literal, literals and lists of them, comparisons, ``in``, ``and``, ``or``,
``not``, and ``version(x)``, which compares by numbers. An undefined name is an error, never false. So is a fact that
could not be read, and a comparison of text with a number.
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
from gpuops.playbook.overlay import DependsError, NotYet
from gpuops.probing import Unknown

FACTS = "facts"
_WORDS = {"true": True, "false": False, "none": None}
_ALLOWED = (
    ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare, ast.Name, ast.Attribute, ast.Subscript,
    ast.Constant, ast.List, ast.Tuple, ast.Load, ast.Call,
)  # fmt: skip
_INSTEAD: Mapping[type[ast.AST], str] = {
    ast.BitOr: "a filter belongs in the braces of a variable; compare that variable",
    ast.Is: 'write x.changed, x.status == "failed" or a comparison; what may be missing needs a default in vars',
    ast.IsNot: "write not x.changed or a comparison; what may be missing needs a default in vars",
}
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
    """A version as numbers and words: 580.95 < 580.126. Of 1.2 and 1.2.0, the shorter is smaller."""

    def __init__(self, text: object) -> None:
        self.parts = tuple((word.isdecimal(), *_as_number(word), word) for word in _words(text))

    def __eq__(self, other: object) -> bool:
        return self.parts == _version(other).parts

    def __lt__(self, other: object) -> bool:
        return self.parts < _version(other).parts

    def __hash__(self) -> int:
        return hash(self.parts)


def _version(value: object) -> Version:
    return value if isinstance(value, Version) else Version(value)


def _as_number(word: str) -> tuple[int, str]:
    """Return what orders a word like its number: how many digits it has, and the digits; nothing if it is none."""
    digits = word.lstrip("0") if word.isdecimal() else ""
    return len(digits), digits


def _words(text: object) -> list[str]:
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is not a version; expected a string")
    return re.findall(r"[0-9]+|[a-z]+", text.lower())


@dataclass(frozen=True)
class Condition:
    """One expression and its location."""

    text: str
    where: Where
    tree: ast.expr

    @property
    def names(self) -> set[str]:
        """The names that must be defined; ``facts.NAME`` for a fact."""
        names = set()
        functions = [node.func for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == FACTS:
                names.add(f"{FACTS}.{node.attr}")
            elif isinstance(node, ast.Name) and node not in functions and node.id not in (FACTS, *_WORDS):
                names.add(node.id)
        return names

    @property
    def paths(self) -> list[tuple[str, str]]:
        """Each name of which a part is used, with that part (``result.changed``)."""
        owners = [node for node in ast.walk(self.tree) if isinstance(node, ast.Attribute)]
        return [(node.value.id, node.attr) for node in owners if isinstance(node.value, ast.Name)]

    @property
    def facts(self) -> set[str]:
        """The probes that it needs."""
        return {name.partition(".")[2] for name in self.names if name.startswith(f"{FACTS}.")}

    def require(self, defined: Iterable[str]) -> None:
        """Raise `DocumentError` for a name that is not defined."""
        names = set(defined)
        for name in sorted(self.names - names):
            raise self.fail(f'unknown name "{name}"{did_you_mean(name, names)}')

    def holds(self, scope: Mapping[str, object]) -> bool:
        """Return True if the condition holds; raise `DocumentError` if it cannot be evaluated."""
        try:
            return bool(_value(self.tree, scope))
        except (TypeError, LookupError) as error:
            raise self.fail(str(error.args[0] if error.args else error)) from error

    def fail(self, what: str) -> DocumentError:
        """Return an error at this location."""
        return DocumentError(self.where, f"cannot evaluate {self.text!r}: {what}")


def read_conditions(node: YamlNode | None) -> tuple[Condition, ...]:
    """Return the expression, or the list of expressions that must all be true."""
    if node is None:
        return ()
    return tuple(_read(item) for item in (node.items if node.items is not None else [node]))


def _read(node: YamlNode) -> Condition:
    text = node.text("a condition")
    if "{{" in text or "{%" in text:
        raise node.fail("a condition has no braces; write name == 1")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise node.fail(f"{text!r} is not a condition: {str(error).split(' (')[0]}") from error
    for part in sorted(ast.walk(tree), key=lambda part: type(part) not in _INSTEAD):
        _refuse_foreign(node, part)
    return Condition(text, node.where, tree)


def _refuse_foreign(node: YamlNode, part: ast.AST) -> None:
    if not isinstance(part, (*_ALLOWED, *_COMPARISONS)):
        way = _INSTEAD.get(type(part), "see docs/playbooks.md")
        raise node.fail(f"a condition cannot contain {type(part).__name__.lower()}; {way}")
    if isinstance(part, ast.Call) and (ast.unparse(part.func) != "version" or len(part.args) != 1 or part.keywords):
        raise node.fail(f"unknown function {ast.unparse(part)}; the only function is version(x)")
    if isinstance(part, ast.Subscript) and not isinstance(part.slice, (ast.Constant, ast.UnaryOp)):
        raise node.fail(f"{ast.unparse(part)}: only a literal is allowed in [ ]")


def _value(tree: ast.expr, scope: Mapping[str, object]) -> Any:
    """Return the value of ``tree``; raise `TypeError` or `LookupError` with a sentence if it has none."""
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
            raise TypeError(f"cannot compare text with a number: {left!r} and {right!r}")
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
    raise LookupError(f'unknown name "{tree.id}"')


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
    if isinstance(value, NotYet):
        raise DependsError(value.why)
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

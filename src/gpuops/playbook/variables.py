"""Variables: ``{{ name.part | filter }}`` in a parameter, resolved before any node is contacted where it can be.

Look-ups are resolved only in what a person wrote: the playbook's variables and the inventory's. The inventory knows its
nodes better than a playbook for all of them, so its values win; maps are merged entry by entry. What a step registered
is data: it is inserted, and never resolved itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any

from gpuops.document import YamlNode
from gpuops.errors import did_you_mean
from gpuops.inventory import Host
from gpuops.inventory.values import opaque
from gpuops.playbook.expression import Expression, Path, UndefinedError, member, pieces
from gpuops.playbook.overlay import DependsError, NotYet
from gpuops.playbook.parameters import as_node
from gpuops.probing import Unknown

NODE = "node"
_OURS = ("!env", "!file", "!secret")
_DEEPEST = 10


@dataclass(frozen=True)
class _Resolved(YamlNode):
    """A value that is final: braces in it are text."""


def own_variables(host: Host) -> dict[str, YamlNode]:
    """Return the inventory's variables of a node, and the node itself as ``node``."""
    own = {name: as_node(value, host.origin) for name, value in host.vars.items()}
    return {**own, NODE: as_node(_about(host), host.origin)}


class Variables:
    """The names available in ``{{ … }}``.

    The ``own`` values of a node (see `own_variables`) override the playbook's ``defaults``; ``extra`` ones, which the
    user gives for a run, override both. ``data`` are plain values, such as registered results, which are above all.
    """

    def __init__(
        self,
        defaults: Mapping[str, YamlNode],
        own: Mapping[str, YamlNode],
        extra: Mapping[str, YamlNode] = MappingProxyType({}),
        data: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._values = dict(defaults)
        self._data = data
        for values in (own, extra):
            merged = {name: _merged(self._values[name], values[name]) for name in self._values.keys() & values.keys()}
            self._values = {**self._values, **values, **merged}

    def over(self, values: Mapping[str, YamlNode], data: Mapping[str, Any]) -> Variables:
        """Return the same variables with some ``values`` and ``data`` above them."""
        return Variables({**self._values, **values}, {}, data={**self._data, **data})

    @property
    def names(self) -> set[str]:
        """Every variable."""
        return {*self._values, *self._data}

    def plain(self, names: Iterable[str]) -> dict[str, Any]:
        """Return those of ``names`` that are variables, as plain values for a condition."""
        return {name: self.resolve(self._values[name]).plain() for name in names if name in self._values}

    def has_lookups(self, node: YamlNode) -> bool:
        """Return True if ``node`` contains any look-up, so that it may differ from host to host."""
        inner = [*(node.entries or {}).values(), *(node.items or [])]
        return "{{" in (node.scalar or "") or any(map(self.has_lookups, inner))

    @staticmethod
    def looked_up(node: YamlNode) -> set[str]:
        """Return the names of the variables that ``node`` looks up."""
        return {str(path[0]) for expression in _expressions(node) for path in expression.paths}

    def values_of(self, names: Iterable[str]) -> list[YamlNode]:
        """Return the values of those of ``names`` that are variables, as they were written."""
        return [self._values[name] for name in names if name in self._values]

    def reached(self, nodes: Iterable[YamlNode]) -> set[Path]:
        """Return the path of every look-up in ``nodes``, and in the values of the variables that they look up."""
        found, waiting = set[Path](), list(nodes)
        while waiting:
            paths = {path for node in waiting for expression in _expressions(node) for path in expression.paths} - found
            known, found = {path[0] for path in found}, found | paths
            waiting = self.values_of({str(path[0]) for path in paths} - known)
        return found

    def lazily(self) -> Mapping[str, Any]:
        """Return the variables as plain values, each of which is resolved when it is used."""
        return _Lazily(self.names, self._plain)

    def _plain(self, name: str) -> Any:
        return self._data[name] if name in self._data else self.plain([name])[name]

    def resolve(self, node: YamlNode, depth: int = 0) -> YamlNode:
        """Return ``node`` with all look-ups resolved; raise `DocumentError` if a name is unknown."""
        if isinstance(node, _Resolved):
            return node
        if node.entries is not None:
            return replace(node, entries={key: self.resolve(entry, depth) for key, entry in node.entries.items()})
        if node.items is not None:
            return replace(node, items=[self.resolve(item, depth) for item in node.items])
        if not _is_template(node):
            return node
        if depth > _DEEPEST:
            raise node.fail(f"{node.scalar} refers to itself")
        return self._filled(node, depth)

    def _filled(self, node: YamlNode, depth: int) -> YamlNode:
        parts = _pieces(node)
        whole = [part for part in parts if isinstance(part, Expression)]
        if len(whole) == 1 and not "".join(part for part in parts if isinstance(part, str)).strip():
            return self._evaluated(node, whole[0], depth)
        filled = [
            part if isinstance(part, str) else self._evaluated(node, part, depth).text(f"{{{{ {part.text} }}}}")
            for part in parts
        ]
        return _Resolved(node.where, "tag:yaml.org,2002:str", "".join(filled), quoted=True)

    def _evaluated(self, node: YamlNode, expression: Expression, depth: int) -> YamlNode:
        """Return the value of one expression; that of a plain look-up keeps its type and its place."""
        try:
            if expression.path:
                return self._value(node, expression.path, depth)
            value = expression.value(lambda path: self._value(node, path, depth).plain())
            return _sealed(as_node(value, node.where))
        except UndefinedError as error:
            raise node.fail(str(error)) from error
        except ValueError as error:
            raise node.fail(f"{{{{ {expression.text} }}}}: {error}") from error

    def _value(self, node: YamlNode, path: Path, depth: int) -> YamlNode:
        """Return the value that ``path`` (``a.b.c``) names."""
        if path[0] in self._data:
            return self._datum(node, path)
        value, at = self._named(node, path[:1], self._values, path[0]), str(path[0])
        for name in path[1:]:
            if _is_template(value):
                value = self.resolve(value, depth + 1)
            value = self._named(node, (at,), value.items if isinstance(name, int) else value.entries, name)
            at = f"{at}.{name}"
        return self.resolve(value, depth + 1)

    def _named(self, node: YamlNode, at: Path, owner: Any, name: str | int) -> YamlNode:
        try:
            value: YamlNode = member(owner, name)
        except UndefinedError as error:
            near = did_you_mean(str(name), owner) if isinstance(owner, Mapping) else ""
            subject = "no variable named" if owner is self._values else f"{at[0]} has no"
            raise UndefinedError(f'{subject} "{name}"{near}') from error
        if _foreign(value):
            raise node.fail(
                f"{name} ({value.where}) is a template or encrypted, which gpuops cannot read; set a plain value"
            )
        return value

    def _datum(self, node: YamlNode, path: Path) -> YamlNode:
        value, at = self._data[str(path[0])], str(path[0])
        for name in path[1:]:
            if is_dataclass(value) and not isinstance(value, Unknown):
                value = {field.name: getattr(value, field.name) for field in fields(value)}
            if isinstance(value, Unknown):
                break
            try:
                value = member(value, name)
            except UndefinedError as error:
                raise UndefinedError(f"{at} has {error}") from error
            at = f"{at}.{name}"
        if isinstance(value, NotYet):
            raise DependsError(value.why)
        if isinstance(value, Unknown):
            raise node.fail(f"{at}: {value.why}")
        return _sealed(as_node(value, node.where))


class _Lazily(Mapping[str, Any]):
    """Values by name; one that cannot be read is an error only where it is used."""

    def __init__(self, names: Iterable[str], value: Callable[[str], Any]) -> None:
        self._names = frozenset(names)
        self._value = value

    def __getitem__(self, name: str) -> Any:
        return self._value(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _is_template(node: YamlNode) -> bool:
    return not isinstance(node, _Resolved) and node.scalar is not None and ("{{" in node.scalar or "{%" in node.scalar)


def _pieces(node: YamlNode) -> tuple[str | Expression, ...]:
    try:
        return pieces(node.scalar or "")
    except ValueError as error:
        raise node.fail(str(error)) from error


def _expressions(node: YamlNode) -> Iterator[Expression]:
    """Yield every expression in ``node``; one that cannot be read is told when it is resolved."""
    for inner in (*(node.entries or {}).values(), *(node.items or [])):
        yield from _expressions(inner)
    if _is_template(node):
        try:
            yield from (part for part in pieces(node.scalar or "") if isinstance(part, Expression))
        except ValueError:
            return


def require(node: YamlNode, check: Callable[[Path], str]) -> None:
    """Raise `DocumentError` for the first look-up for which ``check(path)`` returns what is wrong."""
    for inner in (*(node.entries or {}).values(), *(node.items or [])):
        require(inner, check)
    for part in _pieces(node) if _is_template(node) else ():
        for path in part.required if isinstance(part, Expression) else ():
            wrong = check(path)
            if wrong:
                raise node.fail(wrong)


def _sealed(node: YamlNode) -> YamlNode:
    """Return a value in which braces are text."""
    if node.entries is not None:
        return replace(node, entries={key: _sealed(entry) for key, entry in node.entries.items()})
    if node.items is not None:
        return replace(node, items=[_sealed(item) for item in node.items])
    if node.scalar is None or not _is_template(node):
        return node
    return _Resolved(node.where, node.tag, node.scalar, node.quoted)


def _foreign(value: YamlNode) -> bool:
    """Return True for an encrypted value, or an Ansible template in the inventory, whose braces are not ours."""
    if isinstance(value, _Resolved) or value.tag in _OURS or not opaque(value):
        return False
    try:
        return not _is_template(value) or not any(isinstance(part, Expression) for part in pieces(value.scalar or ""))
    except ValueError:
        return True


def _merged(default: YamlNode, own: YamlNode) -> YamlNode:
    if default.entries is None or own.entries is None:
        return own
    both = default.entries.keys() & own.entries.keys()
    merged = {name: _merged(default.entries[name], own.entries[name]) for name in both}
    return replace(own, entries={**default.entries, **own.entries, **merged}, keys={**default.keys, **own.keys})


def _about(host: Host) -> dict[str, Any]:
    facts = {name: getattr(host, name) for name in ("name", "address", "groups", "profile", "rack")}
    return {name: value for name, value in facts.items() if value is not None}

"""Differences between a launch file as it is and as it is rendered, by what the file means; pure.

Comments, blank lines, white space, quotes and the order of keys and options mean nothing where people edit: in JSON,
YAML, shell scripts, Python and ssh_config. Directives for a scheduler are no comments. A change or a loss is a mistake.
What was added beside what is rendered can be right, so it is named as not checked.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpuops.document import parse, parse_json
from gpuops.errors import DocumentError
from gpuops.render.kubernetes_values import kubernetes_value
from gpuops.render.line_differences import FileDifference, Line, apart, line_differences, with_sorted
from gpuops.render.odd_blanks import odd_blanks
from gpuops.render.options import is_option
from gpuops.render.rendering import Rendered
from gpuops.render.script_differences import command_differences, script_differences, word_differences

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
_ENCODING = re.compile(r"(?:#.*\n)?[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
"""See PEP 263."""
_WORD = re.compile(r"[^ \t\r]+")
_MISSING = object()


def differences(rendered: Rendered, found: Rendered) -> Iterator[FileDifference]:
    """Yield what differs in ``found`` from what gpuops renders."""
    if rendered.mode & 0o111 and not found.mode & 0o100:
        yield FileDifference(found.path, ": not executable; chmod +x")
    if rendered.text == found.text:
        return
    yield from odd_blanks(found.path, rendered.text, found.text)
    if "\r" in found.text and "\r" not in rendered.text:
        line = found.text[: found.text.index("\r")].count("\n") + 1
        yield FileDifference(found.path, f":{line}: ends with CR LF; gpuops ends lines with LF alone")
    compare = _comparison(found.path, rendered.text)
    yield from compare(rendered, found)


def _comparison(path: str, text: str) -> Callable[[Rendered, Rendered], Iterator[FileDifference]]:
    name = path.rpartition("/")[2]
    suffix = name.rpartition(".")[2] if "." in name else ""
    if suffix in ("json", "yaml", "yml"):
        return _data
    if suffix in ("sh", "sbatch", "pbs", "flux") or text.startswith(("#!/bin/sh", "#!/bin/bash")):
        return _shell
    return _BY_NAME.get(suffix if suffix == "py" else name, _plain)


def _data(rendered: Rendered, found: Rendered) -> Iterator[FileDifference]:
    """Compare JSON or YAML: the order of keys and the spelling of values mean nothing."""
    is_json = found.path.endswith(".json")
    try:
        wanted, there = (parse_json(file.text) if is_json else _yaml(file.text) for file in (rendered, found))
    except (ValueError, DocumentError) as error:
        yield FileDifference(found.path, f": {'not JSON: ' if is_json else ''}{error}")
        return
    yield from _values(found.path, "", wanted, there)


def _yaml(text: str) -> Any:
    """Return the value of a document, as Kubernetes reads it if it is a manifest."""
    node = parse(text, "")
    return kubernetes_value(node) if node.entries and "apiVersion" in node.entries else node.plain()


def _values(path: str, where: str, wanted: Any, there: Any) -> Iterator[FileDifference]:
    if isinstance(wanted, Mapping) and isinstance(there, Mapping):
        wanted, there = _with_sets(wanted), _with_sets(there)
        for key in dict.fromkeys([*wanted, *there]):
            place = f"{where}.{key}" if where else str(key)
            if key not in wanted:
                yield FileDifference(path, f": {place} was added", is_checked=False)
            else:
                yield from _values(path, place, wanted[key], there.get(key, _MISSING))
    elif isinstance(wanted, list) and isinstance(there, list):
        yield from _items(path, where, wanted, there)
    elif isinstance(wanted, str) and isinstance(there, str) and "\n" in wanted:
        yield from command_differences(f"{path}: {where}", wanted, there)
    elif wanted != there or isinstance(wanted, bool) is not isinstance(there, bool):
        yield _value_difference(path, where, wanted, there)


def _with_sets(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a match expression of Kubernetes with its values sorted, which are a set; anything else as it is."""
    values = value.get("values")
    is_set = value.get("operator") in {"In", "NotIn"} and isinstance(values, list)
    return {**value, "values": sorted(values, key=str)} if is_set and values else value


def _items(path: str, where: str, wanted: Sequence[Any], there: Sequence[Any]) -> Iterator[FileDifference]:
    """Compare lists: the words of a command, variables and what has a name by what they mean, others item by item."""
    items = [*wanted, *there]
    if all(isinstance(item, str) for item in items) and any(map(is_option, wanted)):
        yield from word_differences(f"{path}: {where}", wanted, there)
    elif all(isinstance(item, str) and _ASSIGNMENT.match(item) for item in items):
        lines = ([Line(0, item) for item in sorted(own)] for own in (wanted, there))
        yield from line_differences(f"{path}: {where}", *lines)
    elif (names := _by_name(wanted)) and (own := _by_name(there)):
        yield from _values(path, where, names, own)
    elif len(wanted) == len(there):
        for number, pair in enumerate(zip(wanted, there, strict=True)):
            yield from _values(path, f"{where}[{number}]", *pair)
    else:
        yield _value_difference(path, where, wanted, there)


def _by_name(items: Sequence[Any]) -> dict[str, Any]:
    """Return mappings by their different names, as Kubernetes reads variables and containers; empty for others."""
    named = {item["name"]: item for item in items if isinstance(item, Mapping) and isinstance(item.get("name"), str)}
    return named if len(named) == len(items) else {}


def _value_difference(path: str, where: str, wanted: Any, there: Any) -> FileDifference:
    is_, should_be = apart(_spelled(there), _spelled(wanted))
    return FileDifference(path, f": {where or 'it'} is {is_}, but gpuops renders {should_be}")


def _shell(rendered: Rendered, found: Rendered) -> Iterator[FileDifference]:
    return script_differences(found.path, rendered.text, found.text)


def _python(rendered: Rendered, found: Rendered) -> Iterator[FileDifference]:
    """Compare Python by its syntax tree, as it is printed line by line.

    Keywords and keys have no order, but for dictionaries whose order the file itself uses, such as the axes of a mesh.
    """
    texts = []
    for file in (rendered, found):
        try:
            tree = ast.parse(file.text)
            texts.append(ast.unparse(_Ordered(_sequences(tree)).visit(tree)))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two: nested too deeply
            yield FileDifference(file.path, f": not Python: {error}")
            return
    yield from _encoding(rendered, found)
    yield from line_differences(found.path, *(map(_unnumbered, text.splitlines()) for text in texts))


def _encoding(rendered: Rendered, found: Rendered) -> Iterator[FileDifference]:
    """Yield a comment that makes Python read the file in another encoding."""
    named, other = (_ENCODING.match(file.text) for file in (rendered, found))
    if other and not named and other[1].lower() not in ("utf-8", "utf8", "utf_8"):
        yield FileDifference(found.path, f": its encoding is {other[1]}, but gpuops writes UTF-8")


def _sequences(tree: ast.AST) -> set[str]:
    """Return the names of the dictionaries of which a file makes sequences: ``tuple(AXES)``."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"tuple", "list"}:
            names |= {each.id for each in node.args if isinstance(each, ast.Name)}
    return names


class _Ordered(ast.NodeTransformer):
    """Sorts the keywords of calls and the keys of dictionaries, unless they contain others (``**``).

    Dictionaries with the names ``sequences`` keep the order of their keys.
    """

    def __init__(self, sequences: set[str]) -> None:
        self._sequences = sequences

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        names = {target.id for target in node.targets if isinstance(target, ast.Name)}
        return node if names & self._sequences else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if all(keyword.arg for keyword in node.keywords):
            node.keywords.sort(key=lambda keyword: keyword.arg or "")
        return node

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        self.generic_visit(node)
        names = [key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
        if len({*names}) == len(node.keys):
            pairs = sorted(zip(names, node.keys, node.values, strict=True), key=lambda pair: pair[0])
            node.keys, node.values = [key for _, key, _ in pairs], [value for *_, value in pairs]
        return node


def _ssh_config(rendered: Rendered, found: Rendered) -> Iterator[FileDifference]:
    """Compare ssh_config: keywords have no case, and no order inside a block."""

    def spelled(text: str) -> Iterator[Line]:
        for line in _text_lines(text):
            keyword, _, value = line.text.replace("=", " ", 1).partition(" ")
            yield Line(line.number, f"{keyword.lower()} {value.strip()}")

    yield from line_differences(
        found.path, *(with_sorted(spelled(file.text), re.compile(r"(?!host |match )")) for file in (rendered, found))
    )


def _plain(rendered: Rendered, found: Rendered) -> Iterator[FileDifference]:
    """Compare lists of hosts and settings: every line counts, in its order; a comment does not."""
    yield from line_differences(found.path, _text_lines(rendered.text), _text_lines(found.text), may_add=False)


def _exact(rendered: Rendered, found: Rendered) -> Iterator[FileDifference]:
    """Compare files whose readers take comments for settings."""
    lines = ([Line(n, line) for n, line in enumerate(file.text.split("\n"), 1)] for file in (rendered, found))
    yield from line_differences(found.path, *lines, may_add=False)


def _ranks(rendered: Rendered, found: Rendered) -> Iterator[FileDifference]:
    """Compare rank files: each line names its rank, so that they have no order."""
    lines = (with_sorted(_text_lines(file.text), re.compile("")) for file in (rendered, found))
    yield from line_differences(found.path, *lines, may_add=False)


def _machines(rendered: Rendered, found: Rendered) -> Iterator[FileDifference]:
    """Compare Varuna's machines: each line that is not empty is one, also a comment."""
    lines = ([Line(n, line) for n, line in enumerate(f.text.split("\n"), 1) if line] for f in (rendered, found))
    yield from line_differences(found.path, *lines, may_add=False)


def _text_lines(text: str) -> Iterator[Line]:
    for number, line in enumerate(text.split("\n"), 1):
        if words := _WORD.findall(re.sub(r"(^|[ \t])#.*", "", line)):
            yield Line(number, " ".join(words))


def _unnumbered(text: str) -> Line:
    return Line(0, text)


def _spelled(value: object) -> str:
    """Return a value as JSON, where 8 and "8" look different; what is missing is in no quotes."""
    return "(nothing)" if value is _MISSING else json.dumps(value, ensure_ascii=False, default=str)


_BY_NAME: Mapping[str, Callable[[Rendered, Rendered], Iterator[FileDifference]]] = {
    "py": _python,
    "ssh_config": _ssh_config,
    "rankfile": _ranks,
    ".deepspeed_env": _exact,
    "varuna.env": _exact,
    "machine_list": _machines,
}

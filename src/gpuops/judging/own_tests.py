"""Checks that users write for pytest-testinfra: the functions in ``checks/test_*.py`` of a project.

The files are parsed, not run: their names and marks must be known where pytest is not installed, and before any node
is asked. `gpuops.operations.own_tests` runs them; until then, and on saved answers, their verdict is ``skipped``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from gpuops.content import project_folder, refuse_foreign
from gpuops.errors import ContentError, did_you_mean
from gpuops.judging.check import Check
from gpuops.judging.finding import LEVELS, Judgement, NotApplicable
from gpuops.reasons import SEVERITIES, Severity

TAG = "testinfra"
"""The tag of all of them."""
SEVERITY, FIX = "severity", "fix"
"""Marks with one text, which say what a finding of the test is worth, and what to do about it."""
NOT_RUN = "a test asks the node itself, so it runs only when nodes are validated over the network"
_OF_PYTEST = {"parametrize", "skip", "skipif", "xfail", "usefixtures", "filterwarnings", "timeout", SEVERITY, FIX}
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Body = Sequence[ast.stmt]


def is_test_file(path: Path) -> bool:
    """Return True for the files in ``checks/`` that belong to pytest, and hold no check of gpuops' own kind."""
    return path.name == "conftest.py" or path.match("test_*.py")


def is_own_test(check: Check) -> bool:
    """Return True for a check that a test of the project makes."""
    return check.path.match("test_*.py")


def name_of(file: str, *names: str) -> str:
    """Return the name of the check that a test makes: its file, class and function in kebab case, without "test"."""
    words = (_CAMEL.sub("-", name) for name in (Path(file).stem, *names))
    bare = (re.sub(r"[^a-z0-9]+", "-", word.lower()).removeprefix("test").strip("-") for word in words)
    return "-".join(filter(None, bare))


def own_tests(project: Path | None) -> list[Check]:
    """Return the tests of a project as checks; raise `ContentError` for a broken file, and one that others may write.

    A test imports what is beside it, so every Python file below ``checks/`` must be the user's own.
    """
    folder = project_folder("checks", project)
    files = sorted(folder.glob("test_*.py")) if folder is not None else []
    if folder is not None and files:
        for path in folder.rglob("*.py"):
            refuse_foreign(path)
    return [check for file in files for check in _tests_in(file)]


def _tests_in(file: Path) -> list[Check]:
    try:
        module = ast.parse(file.read_bytes(), str(file))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two: nested too deeply
        line = getattr(error, "lineno", None)
        at = f"{file}:{line}" if line else str(file)
        raise ContentError(f"{at}: cannot be loaded: {type(error).__name__}: {error}") from error
    about = ast.get_docstring(module) or ""
    tests = _of_body(file, module.body, (), _assigned(module.body), about)
    return list(dict(tests).values())  # of two functions with one name Python knows the later one


@dataclass(frozen=True)
class _Mark:
    """One mark of pytest, and the text that it is called with."""

    name: str
    line: int
    text: object = None


def _of_body(
    file: Path, body: _Body, classes: tuple[str, ...], marks: tuple[_Mark, ...], about: str
) -> Iterator[tuple[tuple[str, ...], Check]]:
    for node in body:
        if isinstance(node, _Function) and node.name.startswith("test"):
            doc = " ".join(f"{about}\n{ast.get_docstring(node) or ''}".split())
            names = (*classes, node.name)
            yield names, _check(file, names, (*_marks(node.decorator_list), *marks), doc)
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            own = (*_marks(node.decorator_list), *_assigned(node.body))
            yield from _of_body(file, node.body, (*classes, node.name), (*own, *marks), about)


def _check(file: Path, names: tuple[str, ...], marks: tuple[_Mark, ...], doc: str) -> Check:
    """Return the check of one test; of two marks that exclude each other, the one nearest to the function counts."""
    words = [mark.name for mark in marks if mark.name not in _OF_PYTEST]
    level = next((word for word in words if word in LEVELS), LEVELS[0])
    tags = dict.fromkeys(word for word in words if word not in LEVELS)
    severity, fix = (_text(file, marks, name) for name in (SEVERITY, FIX))
    return Check(
        name_of(file.name, *names),
        (),
        _not_run,
        cast("Severity", severity or "fail"),
        (level, *tags, TAG),
        fix=fix,
        doc=doc,
        path=file,
    )


def _not_run(_profile: object) -> Iterator[Judgement]:
    yield NotApplicable(NOT_RUN)


def _text(file: Path, marks: Iterable[_Mark], name: str) -> str:
    """Return the text of the nearest mark called ``name``; empty if there is none."""
    mark = next((mark for mark in marks if mark.name == name), None)
    if mark is None:
        return ""
    if not isinstance(mark.text, str) or (name == SEVERITY and mark.text not in SEVERITIES):
        words = ", ".join(SEVERITIES) if name == SEVERITY else "a text"
        near = did_you_mean(str(mark.text), SEVERITIES) if name == SEVERITY else ""
        raise ContentError(f"{file}:{mark.line}: pytest.mark.{name}({mark.text!r}); expected {words}{near}")
    return mark.text


def _assigned(body: _Body) -> tuple[_Mark, ...]:
    """Return the marks of ``pytestmark = …`` in a module or a class."""
    values = [
        node.value
        for node in body
        if isinstance(node, ast.Assign) and any(getattr(t, "id", "") == "pytestmark" for t in node.targets)
    ]
    each = (value.elts if isinstance(value, (ast.List, ast.Tuple)) else [value] for value in values)
    return _marks(mark for marks in each for mark in marks)


def _marks(expressions: Iterable[ast.expr]) -> tuple[_Mark, ...]:
    return tuple(mark for mark in map(_mark, expressions) if mark)


def _mark(expression: ast.expr) -> _Mark | None:
    """Return the mark in ``pytest.mark.NAME``, ``pytest.mark.NAME("text")`` or ``mark.NAME``, if that is what it is."""
    called = expression.func if isinstance(expression, ast.Call) else expression
    if not isinstance(called, ast.Attribute) or ast.unparse(called.value) not in ("pytest.mark", "mark"):
        return None
    first = expression.args[0] if isinstance(expression, ast.Call) and expression.args else None
    text = first.value if isinstance(first, ast.Constant) else None
    return _Mark(called.attr, expression.lineno, text)

"""Discovery of checks: one in each Python file of ``checks/``, and the tests that a project has there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from gpuops.content import ContentFile, listing, load_python
from gpuops.errors import ContentError
from gpuops.judging.check import Check
from gpuops.judging.own_tests import is_test_file, own_tests


def discover(project: Path | None = None) -> dict[str, Check]:
    """Return all checks by name: those of gpuops and of the project, which hide built-in ones, and the project's tests.

    Raise `ContentError` if a file is broken, or if a test has the name of another check.
    """
    files = [file for file in listing("checks", ".py", project).values() if not is_test_file(file.path)]
    checks = {file.name: _load(file) for file in files}
    return dict(sorted({**checks, **_apart(own_tests(project), checks)}.items()))


def _apart(tests: Iterable[Check], taken: dict[str, Check]) -> dict[str, Check]:
    """Return ``tests`` by name, if no other check has that name."""
    apart: dict[str, Check] = {}
    for test in tests:
        other = taken.get(test.name) or apart.get(test.name)
        if other is not None:
            raise ContentError(f"{test.path}: its check {test.name} is also in {other.path}; rename the test function")
        apart[test.name] = test
    return apart


def _load(file: ContentFile) -> Check:
    module = load_python(file)
    checks = [value for value in vars(module).values() if isinstance(value, Check)]
    if len(checks) != 1 or checks[0].name != file.name:
        raise ContentError(f"{file.path}: expected exactly one @check function, named {file.name.replace('-', '_')}")
    about = " ".join((module.__doc__ or "").split())
    return replace(checks[0], path=file.path, doc=" ".join(filter(None, (about, checks[0].doc))))

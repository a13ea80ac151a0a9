import inspect
import pickle
import re

import pytest

from gpuops import errors

LINE = re.compile(r"(?P<indent>[│├└─ ]*)(?P<name>[A-Z]\w+)\s+(?P<code>\d+)?\s+(?P<about>\S.*)")
_STEP = 4
"""Columns of one level of the tree."""


def drawn():
    """What the docstring draws: {class: (its parent, its exit code, inherited where none stands beside it)}."""
    tree, path = {}, []
    for line in errors.__doc__.split("\n\n")[1].splitlines():
        found = LINE.fullmatch(line) or re.fullmatch(r"(?P<indent>)(?P<name>GpuopsError)(?P<code>)", line)
        assert found, line
        level, name, code = len(found["indent"]) // _STEP, found["name"], found["code"]
        parent = path[level - 1] if level else None
        path[level:] = [name]
        tree[name] = (parent, int(code) if code else tree.get(parent, (None, 2))[1])
    return tree


def raised():
    """The classes as they are: {class: (its base among them, its exit code)}."""
    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, BaseException)]
    names = {c.__name__ for c in classes}
    bases = {c.__name__: c.__bases__[0].__name__ for c in classes}
    return {c.__name__: (bases[c.__name__] if bases[c.__name__] in names else None, c.exit_code) for c in classes}


def test_drawn_tree_is_that_of_the_classes():
    assert drawn() == raised()
    assert raised()["MissingError"] == ("InputError", 2)
    assert raised()["Interrupted"] == (None, 130)


def test_every_class_has_one_base():
    for name in raised():
        assert len(getattr(errors, name).__bases__) == 1, name


@pytest.mark.parametrize(
    "error",
    [errors.ConnectError("gpu01", "no route", "timeout"), errors.DocumentError("prod.yml:3:1", "no such key")],
)
def test_errors_in_results_go_between_processes(error):
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))

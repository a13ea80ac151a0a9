"""Fills the user's templates with the user's values. Text from a node is never a template.

Templates are data: they run in a sandbox on plain values, and an undefined name is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import jinja2
from jinja2 import meta

from gpuops.document import read_text
from gpuops.playbook.filters import regex_replace, to_json
from gpuops.sandbox import sandbox, with_line


def fill_template(path: Path, values: Mapping[str, object]) -> str:
    """Return the text of the Jinja template at ``path``; raise `ValueError` with the line of an error in it.

    Only text and numbers are written: a secret would show its mask, and a list Python's notation.
    """
    environment = sandbox(finalize=_written)
    environment.filters |= {"to_json": to_json, "regex_replace": regex_replace}

    def render() -> str:
        text = read_text(path)
        names = meta.find_undeclared_variables(environment.parse(text))
        named = {name: values[name] for name in names if name in values}
        return environment.from_string(text).render(named)

    return with_line(render, lambda line, text: ValueError(f"{path}{f':{line}' if line else ''}: {text}"))


def _written(value: object) -> object:
    if isinstance(value, (str, int, float, jinja2.Undefined)):  # an undefined one raises its own error
        return value
    raise TypeError("cannot write a secret, a list or a map into a template; expected text or a number")

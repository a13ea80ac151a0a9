"""Fills the user's templates with the user's values. Text from a node is never a template.

Templates are data: they run in a sandbox on plain values, and an undefined name is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import jinja2

from gpuops.document import read_text
from gpuops.sandbox import sandbox, with_line


def fill_template(path: Path, values: Mapping[str, object]) -> str:
    """Return the text of the Jinja template at ``path``; raise `ValueError` with the line of an error in it.

    Only text and numbers are written: a secret would show its mask, and a list Python's notation.
    """
    environment = sandbox(finalize=_written)
    return with_line(
        lambda: environment.from_string(read_text(path)).render(values),
        lambda line, text: ValueError(f"{path}{f':{line}' if line else ''}: {text}"),
    )


def _written(value: object) -> object:
    if isinstance(value, (str, int, float, jinja2.Undefined)):  # an undefined one raises its own error
        return value
    raise TypeError("cannot write a secret, a list or a map into a template; expected text or a number")

"""Fills the user's templates with the user's values. Text from a node is never a template.

Templates are data: they run in a sandbox on plain values, and an undefined name is an error.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from pathlib import Path

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gpuops.document import read_text


def fill_template(path: Path, values: Mapping[str, object]) -> str:
    """Return the text of the Jinja template at ``path``; raise `ValueError` with the line of an error in it.

    Only text and numbers are written: a secret would show its mask, and a list Python's notation.
    """
    environment = ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined,
        finalize=_written,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    try:
        return environment.from_string(read_text(path)).render(values)
    except (
        jinja2.TemplateError,
        TypeError,
        ValueError,
        ArithmeticError,
        LookupError,
        RecursionError,
        MemoryError,
    ) as error:
        line = getattr(error, "lineno", None) or _line_of(error)
        raise ValueError(f"{path}{f':{line}' if line else ''}: {str(error).rstrip('.')}") from error


def _line_of(error: BaseException) -> int | None:
    """Return the template's line in a traceback; Jinja's frames are called ``<template>``."""
    frames = reversed(traceback.extract_tb(error.__traceback__))
    return next((frame.lineno for frame in frames if frame.filename == "<template>"), None)


def _written(value: object) -> object:
    if isinstance(value, (str, int, float, jinja2.Undefined)):  # an undefined one raises its own error
        return value
    raise TypeError("cannot write a secret, a list or a map into a template; expected text or a number")

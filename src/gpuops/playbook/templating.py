"""Filling a person's template with values that the person wrote. Text from a node is never a template.

Templates are data: they run in a sandbox on plain values, and an undefined name is an error.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from pathlib import Path

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment


def fill_template(path: Path, values: Mapping[str, object]) -> str:
    """The text of the Jinja template at ``path``; `ValueError` with its line where it is wrong or names what is not.

    Only texts and numbers are written out: a secret would show its mask, a list the way that Python writes it.
    """
    environment = ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined,
        finalize=_written,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    try:
        return environment.from_string(path.read_text("utf-8")).render(values)
    except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        line = getattr(error, "lineno", None) or _line_of(error)
        raise ValueError(f"{path}{f':{line}' if line else ''}: {str(error).rstrip('.')}") from error


def _line_of(error: BaseException) -> int | None:
    """The template's line in a traceback: Jinja's frames are called ``<template>``."""
    frames = reversed(traceback.extract_tb(error.__traceback__))
    return next((frame.lineno for frame in frames if frame.filename == "<template>"), None)


def _written(value: object) -> object:
    if isinstance(value, (str, int, float, jinja2.Undefined)):  # an undefined one complains by itself
        return value
    raise TypeError("a secret, a list or a map cannot be written into a template; expected a text or a number")

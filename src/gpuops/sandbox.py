"""Jinja templates of users: they run in a sandbox on plain values, and an undefined name is an error with its line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

T = TypeVar("T")
_OF_TEMPLATES = (
    jinja2.TemplateError,
    *(TypeError, ValueError, ArithmeticError, LookupError, RecursionError, MemoryError),
)
"""What a template raises that is wrong, or that runs on the wrong values."""


def sandbox(**options: Any) -> jinja2.Environment:
    """Return an environment in which text keeps its line breaks, and tags leave none."""
    return ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, **options
    )


def with_line(work: Callable[[], T], error_at: Callable[[int | None, str], Exception]) -> T:
    """Do ``work`` with a template; what goes wrong in it becomes ``error_at`` its line (None: unknown) and a text."""
    try:
        return work()
    except _OF_TEMPLATES as error:
        line = getattr(error, "lineno", None) or _line_of(error)
        raise error_at(line, str(error).rstrip(".")) from error


def _line_of(error: BaseException) -> int | None:
    """Return the template's line in a traceback; Jinja's frames are called ``<template>``."""
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line

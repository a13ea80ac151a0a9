"""Reports of results as text; ``formats/`` has one file per format of the health report."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from gpuops.errors import InputError, did_you_mean
from gpuops.report.output import check_directory, format_of, write
from gpuops.report.page import Page

if TYPE_CHECKING:
    from gpuops.results.health import Report

_FOLDER = Path(__file__).parent / "formats"


def format_names() -> list[str]:
    """Return the names of all formats, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules([str(_FOLDER)]))


def format_for(path: Path) -> str:
    """Return the format for the suffix of ``path``; raise `InputError` if there is none."""
    return format_of(path, {name: _format(name).SUFFIX for name in format_names()})


def _unknown(format_name: str) -> InputError:
    hint = did_you_mean(format_name, format_names()) or f"; use {', '.join(format_names())}"
    return InputError(f'unknown report format "{format_name}"{hint}')


def render(format_name: str, report: Report) -> str:
    """Return ``report`` in that format, with a final newline, ready to be written."""
    if format_name not in format_names():
        raise _unknown(format_name)
    text: str = _format(format_name).render(report)
    return text


def formats_of(form: str, outputs: Sequence[Path]) -> dict[Path, str]:
    """Return the format of each file; raise `InputError` or `OutputError` for an unknown format or directory."""
    if form not in format_names():
        raise _unknown(form)
    for path in outputs:
        check_directory(path)
    return {path: form if form != "table" and len(outputs) == 1 else format_for(path) for path in outputs}


def publish(report: Report, form: str, formats: Mapping[Path, str], page: Page) -> str:
    """Render all files before the first is written, write them, and return the text for stdout."""
    texts = {path: render(name, report) for path, name in formats.items()}
    for path, text in texts.items():
        write(text, path)
    if form == "table":
        table: str = _format(form).render(report, page)
        return table
    return "" if formats else render(form, report)


def _format(name: str) -> ModuleType:
    return importlib.import_module(f"gpuops.report.formats.{name}")

"""A report tells what was judged. A format is one file of ``formats/`` with ``SUFFIX`` and ``render(report)``."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from gpuops.errors import InputError, did_you_mean
from gpuops.report.formats import table
from gpuops.report.output import check_directory, write
from gpuops.report.page import Page
from gpuops.results.health import Report

_FOLDER = Path(__file__).parent / "formats"


def format_names() -> list[str]:
    """The name of every format, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules([str(_FOLDER)]))


def format_for(path: Path) -> str:
    """The format that the name of ``path`` asks for by its suffix; `InputError` where none does."""
    suffixes = {_format(name).SUFFIX: name for name in format_names()}
    if path.suffix.lower() not in suffixes:
        raise InputError(f"{path}: no format ends in {path.suffix or 'nothing'}; use {', '.join(suffixes)} or --format")
    name: str = suffixes[path.suffix.lower()]
    return name


def render(format_name: str, report: Report) -> str:
    """``report`` as a text of that format, ending in a newline; it may be written as it is."""
    if format_name not in format_names():
        hint = did_you_mean(format_name, format_names()) or f"; known: {', '.join(format_names())}"
        raise InputError(f'no report format called "{format_name}"{hint}')
    text: str = _format(format_name).render(report)
    return text


def formats_of(form: str, outputs: Sequence[Path]) -> dict[Path, str]:
    """The format of each file; `InputError` or `OutputError` for a wrong format or folder."""
    if form not in format_names():
        raise InputError(f'no report format called "{form}"{did_you_mean(form, format_names())}')
    for path in outputs:
        check_directory(path)
    return {path: form if form != "table" and len(outputs) == 1 else format_for(path) for path in outputs}


def publish(report: Report, form: str, formats: Mapping[Path, str], page: Page) -> str:
    """Write every file, all rendered before the first is written; the text for stdout beside them."""
    texts = {path: render(name, report) for path, name in formats.items()}
    for path, text in texts.items():
        write(text, path)
    if form == "table":
        return table.render(report, page)
    return "" if formats else render(form, report)


def _format(name: str) -> ModuleType:
    return importlib.import_module(f"gpuops.report.formats.{name}")

"""``gpuops checks``: which checks there are, and what each asks, expects, catches and says to do."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from gpuops.judging import Check
    from gpuops.profile import Profile
    from gpuops.report.page import Page

_INDENT = 12


@click.group()
def command() -> None:
    """List the checks, and explain each."""


@command.command("list")
@click.option("--format", "format_name", type=click.Choice(["table", "json"]), default="table", show_default=True)
def show_all(format_name: str) -> None:
    """Every check, mildest level first, and where it comes from.

    A file in the checks/ folder of your project hides the built-in check of the same name.
    """
    from gpuops.cli._project import catalogue
    from gpuops.judging import LEVELS

    checks = sorted(catalogue().checks().values(), key=lambda check: (LEVELS.index(check.level), check.name))
    if format_name == "json":
        click.echo(json.dumps([_record(check) for check in checks], indent=2))
        return
    rows: list[tuple[str, ...]] = [("check", "scope", "severity", "level", "from", "tags")]
    rows += [(c.name, c.scope, c.severity, c.level, _origin(c), ", ".join(_tags(c))) for c in checks]
    click.echo("\n".join(_columns(rows)))


@command.command()
@click.argument("name")
@click.option("--profile", "profile_name", metavar="NAME", help="Show what this profile expects, not what all do.")
def explain(name: str, profile_name: str | None) -> None:
    """What the check NAME asks of a node, what it expects, what it catches, and what to do about it."""
    from gpuops.cli._project import catalogue
    from gpuops.report.page import Page

    content = catalogue()
    check, profiles = content.checks()[name], content.profiles()
    expecting = [profiles[profile_name]] if profile_name else profiles.values()
    click.echo("\n".join(_explanation(check, expecting, Page.of(sys.stdout))))


def _origin(check: Check) -> str:
    from gpuops.content import builtin

    return "built-in" if check.path.parent == builtin("checks") else "project"


def _tags(check: Check) -> list[str]:
    return [tag for tag in check.tags if tag != check.level]


def _record(check: Check) -> dict[str, Any]:
    return {
        "name": check.name,
        "scope": check.scope,
        "severity": check.severity,
        "level": check.level,
        "tags": _tags(check),
        "origin": _origin(check),
        "path": str(check.path),
        "doc": check.doc,
        "asks": [str(probe.question) for probe in check.needs],
        "expects": list(check.expects),
        "explains": list(check.explains),
        "catches": check.catches,
        "fix": check.fix,
    }


def _columns(rows: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "   ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def _explanation(check: Check, profiles: Iterable[Profile], page: Page) -> Iterator[str]:
    yield from page.edges(f"{check.name}   {check.scope}   {check.severity}   {check.level}", _shown(check.path))
    yield from page.labelled("", check.doc, 2)
    yield ""
    for probe in check.needs:
        yield from page.labelled("  asks", str(probe.question), _INDENT)
    for profile in profiles:
        yield from _expectations(check, profile, page)
    for label, text in (("  explains", ", ".join(check.explains)), ("  catches", check.catches), ("  do", check.fix)):
        if text:
            yield from page.labelled(label, text, _INDENT)


def _expectations(check: Check, profile: Profile, page: Page) -> Iterator[str]:
    """What ``profile`` expects, each value with its source and grade; a value that it lacks skips the check."""
    for key in check.expects:
        expected = profile.values.get(key)
        said = f"{key} = {expected.value}" if expected else f"{key} is not told, so the check is skipped"
        yield from page.labelled("  expects", f"{said:<34}   profile {profile.name}", _INDENT)
        if expected:
            yield from page.labelled("", f"source: {expected.source}   grade: {expected.grade}", _INDENT)


def _shown(path: Path) -> str:
    """The shorter of the path from here and the whole path."""
    return min(os.path.relpath(path), str(path), key=len)

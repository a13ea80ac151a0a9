"""Text report of checks: a table of many, and the explanation of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from gpuops import content
from gpuops.judging import LEVELS, Check
from gpuops.profile import Profile
from gpuops.report.page import Page

_INDENT = 12


def by_level(checks: Iterable[Check]) -> list[Check]:
    """Return checks in the order of their levels, the mildest first, then by name."""
    return sorted(checks, key=lambda check: (LEVELS.index(check.level), check.name))


def rows(checks: Iterable[Check], page: Page) -> Iterator[str]:
    """Yield a table with one row per check; its last column wraps."""
    table: list[tuple[str, ...]] = [("check", "scope", "severity", "level", "from", "tags")]
    table += [(c.name, c.scope, c.severity, c.level, _origin(c), ", ".join(_tags(c))) for c in checks]
    yield from page.columns(table)


def _origin(check: Check) -> str:
    return "built-in" if check.path.parent == content.builtin("checks") else "project"


def _tags(check: Check) -> list[str]:
    return [tag for tag in check.tags if tag != check.level]


def document(check: Check) -> dict[str, Any]:
    """Return a check as plain data."""
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
        "expects": list(check.reads),
        "explains": list(check.explains),
        "catches": check.catches,
        "fix": check.fix,
    }


def explanation(check: Check, profiles: Iterable[Profile], path: str, page: Page) -> Iterator[str]:
    """Yield what a check asks, expects of each profile and catches, and its fix; ``path`` is shown as its file."""
    yield from page.edges(f"{check.name}   {check.scope}   {check.severity}   {check.level}", path)
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
    """Yield what ``profile`` expects, each value with source and grade; a missing value may skip the check."""
    for key in check.reads:
        expected = profile.values.get(key)
        if expected is None and key in check.uses:
            continue
        text = f"{key} = {expected.value}" if expected else f"{key} is not set, so the check is skipped"
        yield from page.labelled("  expects", f"{text:<34}   profile {profile.name}", _INDENT)
        if expected:
            yield from page.labelled("", f"source: {expected.source}   grade: {expected.grade}", _INDENT)

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
        "asks": _questions(check),
        "expects": list(check.reads),
        "explains": list(check.explains),
        "applies_to": applies_to(check),
        "settles_seconds": check.settles_seconds,
        "shadow": check.shadow,
        "fault_of": check.fault_of,
        "catches": check.catches,
        "fix": check.fix,
        "fix_in_common": check.fix_in_common,
    }


def explanation(check: Check, profiles: Iterable[Profile], path: str, page: Page) -> Iterator[str]:
    """Yield what a check asks, expects of each profile and catches, and its fix; ``path`` is shown as its file."""
    yield from page.edges(f"{check.name}   {check.scope}   {check.severity}   {check.level}", path)
    yield from page.labelled("", check.doc, 2)
    yield ""
    for question in _questions(check):
        yield from page.labelled("  asks", question, _INDENT)
    for profile in profiles:
        yield from _expectations(check, profile, page)
    for label, text in _labelled(check):
        if text:
            yield from page.labelled(f"  {label}", text, _INDENT)


def _questions(check: Check) -> list[str]:
    """Return what the check's probes ask, each question once: several probes may read one answer."""
    return list(dict.fromkeys(str(probe.question) for probe in check.needs))


def _labelled(check: Check) -> Iterator[tuple[str, str]]:
    yield "judges", check.applies_to
    yield "waits", f"findings only warn until {check.settles_seconds} s after boot" if check.settles_seconds else ""
    yield "blames", "a job or a person, not the node" if check.fault_of == "user" else ""
    yield "shadow", "on trial: its findings are listed apart, and count for nothing" if check.shadow else ""
    yield "explains", ", ".join(check.explains)
    yield "catches", check.catches
    yield "do", check.fix
    yield "on many", check.fix_in_common


def applies_to(check: Check) -> str:
    """Return the machines that have what ``check`` judges."""
    keys = ", ".join(check.expects)
    return check.applies_to or (f"machines whose profile or inventory sets {keys}" if keys else "all machines")


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

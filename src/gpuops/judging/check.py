"""Checks: their declaration and choice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuops.errors import ContentError, did_you_mean
from gpuops.judging.finding import LEVELS, Judgement, Level, Owner, Scope
from gpuops.probing import Probe
from gpuops.reasons import Severity


@dataclass(frozen=True)
class Check:
    """One check: the probes that it ``needs``, the profile keys that it ``expects``, and its function ``judge``.

    Keys that it ``uses`` may be missing. ``applies_to`` names the machines that have what it judges. Until
    ``settles_seconds`` after boot its findings only warn. ``fault_of`` is that of its findings. In ``shadow`` it is
    judged, and its findings count for nothing.
    """

    name: str
    needs: tuple[Probe[Any], ...]
    judge: Callable[..., Iterator[Judgement]]
    severity: Severity = "fail"
    tags: tuple[str, ...] = ("quick",)
    scope: Scope = "node"
    expects: tuple[str, ...] = ()
    tolerates: tuple[Probe[Any], ...] = ()
    explains: tuple[str, ...] = ()
    blinds: tuple[str, ...] = ()
    catches: str = ""
    fix: str = ""
    doc: str = ""
    path: Path = Path()
    uses: tuple[str, ...] = ()
    applies_to: str = ""
    settles_seconds: int = 0
    fault_of: Owner = "node"
    fix_in_common: str = ""
    shadow: bool = False

    @property
    def reads(self) -> tuple[str, ...]:
        """The profile keys that it reads."""
        return (*self.expects, *self.uses)

    @property
    def level(self) -> Level:
        """Lowest level that runs this check, from its tags; quick by default."""
        return next((level for level in LEVELS if level in self.tags), "quick")


def check(  # noqa: PLR0913 - each word is one line of what `checks explain` prints
    *,
    needs: Probe[Any] | tuple[Probe[Any], ...],
    severity: Severity = "fail",
    tags: tuple[str, ...] = ("quick",),
    scope: Scope = "node",
    expects: tuple[str, ...] = (),
    uses: tuple[str, ...] = (),
    tolerates: tuple[Probe[Any], ...] = (),
    explains: tuple[str, ...] = (),
    blinds: tuple[str, ...] = (),
    catches: str = "",
    fix: str = "",
    applies_to: str = "",
    settles_seconds: int = 0,
    fault_of: Owner = "node",
    fix_in_common: str = "",
    shadow: bool = False,
) -> Callable[[Callable[..., Iterator[Judgement]]], Check]:
    """Turn a generator function ``judge(value of each need …, profile)`` into a check of the same name.

    With ``scope="group"`` the function is called as ``judge({node: value}, profile)`` for the nodes of one profile;
    with several needs, a node's value is the tuple of them. A need in ``tolerates`` is passed as `Unknown` if it is
    unknown; any other unknown need makes the check unknown. If the profile lacks a key in ``expects``, the check is
    skipped; those that it ``uses`` may be missing. ``explains`` names checks, tags or ``check:code``: their findings on
    the same part are reported as effects of this check's findings. ``blinds`` (Alertmanager: inhibits) names checks or
    tags that cannot look while this check fails: if unknown, they are reported as skipped.

    ``applies_to`` names the machines that have what it judges, if that is not all. What trains or starts after a boot
    may be late: until ``settles_seconds`` after boot, findings only warn. ``fault_of`` is ``user`` if a job or
    a person causes what it finds. ``fix_in_common`` is what to do if nearly all nodes of a rack, or of the fleet,
    show it. ``shadow`` is for a check on trial: its findings are listed apart, and count for nothing.
    """
    probes = (needs,) if isinstance(needs, Probe) else needs

    def make(judge: Callable[..., Iterator[Judgement]]) -> Check:
        name = judge.__name__.replace("_", "-")
        words = (severity, tags, scope, expects, tolerates, explains, blinds, catches, fix, _doc(judge))
        return Check(
            name,
            probes,
            judge,
            *words,
            uses=uses,
            applies_to=applies_to,
            settles_seconds=settles_seconds,
            fault_of=fault_of,
            fix_in_common=fix_in_common,
            shadow=shadow,
        )

    return make


def _doc(judge: Callable[..., Any]) -> str:
    return " ".join((judge.__doc__ or "").split())


def choose(
    checks: Mapping[str, Check], level: Level, only: Iterable[str] = (), skip: Iterable[str] = ()
) -> list[Check]:
    """Return the checks of ``level`` and below.

    ``only`` and ``skip`` name checks or tags. In ``only``, the name of a check or of a level counts whatever ``level``
    is; any other tag chooses within ``level``. Raise `ContentError` for an unknown name, and for a tag in ``only``
    that chooses nothing.
    """
    only, skip = set(only), set(skip)
    words = set(checks) | {tag for c in checks.values() for tag in c.tags}
    for word in (only | skip) - words:
        raise ContentError(
            f'no check or tag named "{word}"{did_you_mean(word, words) or "; to list them: gpuops checks list"}'
        )
    at_level = [c for c in checks.values() if LEVELS.index(c.level) <= LEVELS.index(level)]
    for tag in only.difference(checks, LEVELS, *(c.tags for c in at_level)):
        needed = min((c.level for c in checks.values() if tag in c.tags), key=LEVELS.index)
        raise ContentError(f'no check of level {level} has the tag "{tag}"; add --level {needed}')
    by_tag = [c for c in at_level if not only or only & set(c.tags)]
    return [c for c in checks.values() if only & {c.name, c.level} or c in by_tag if not skip & {c.name, *c.tags}]


def probes_of(checks: Iterable[Check]) -> list[Probe[Any]]:
    """Return each probe that ``checks`` need, once."""
    return list(dict.fromkeys(probe for c in checks for probe in c.needs))

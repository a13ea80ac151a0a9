"""Waivers: findings that an operator knows of and accepts until a date, from a project's ``waivers.yml``."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gpuops.content import distrust
from gpuops.document import Where, YamlNode, load
from gpuops.errors import ContentError, did_you_mean
from gpuops.project import shortest

FILE = "waivers.yml"
EXPIRED = "waiver-expired"
"""The name under which an expired waiver is reported; no check has it."""
_REQUIRED = ("check", "reason", "author", "expires")
_KEYS = ("check", "hosts", "part", "code", "reason", "author", "expires")
_LONGEST = dt.timedelta(days=366)
"""A year, so that no fault is waived for good; our own choice."""


@dataclass(frozen=True)
class Waiver:
    """One waiver: the findings of ``check`` do not count through the day ``expires`` (UTC).

    ``hosts`` is a pattern, and ``nodes`` the hosts that it selects; None stands for all. An empty ``part`` or ``code``
    means any. ``where`` is its place in the file.
    """

    check: str
    reason: str
    author: str
    expires: dt.date
    where: Where
    hosts: str = "all"
    part: str = ""
    code: str = ""
    nodes: frozenset[str] | None = None

    def is_active(self, today: dt.date) -> bool:
        """Return True through the last day of the waiver."""
        return today <= self.expires

    @property
    def note(self) -> str:
        """``waived until 2026-12-31 by alice: new riser ordered, T812``."""
        return f"waived until {self.expires} by {self.author}: {self.reason}"


def load_waivers(folder: Path, known: Iterable[str], today: dt.date) -> tuple[Waiver, ...]:
    """Return the waivers in ``folder``; none if there is no file.

    ``known`` are the names of all checks. Raise `gpuops.errors.DocumentError` if the file is wrong, and
    `gpuops.errors.ContentError` if it, or its folder, belongs to another user or others may write it: its author
    decides which faults count.
    """
    path = folder / FILE
    if not path.exists():
        return ()
    for each in (path, folder):
        why, do = distrust(each)
        if why:
            raise ContentError(
                f"{shortest(path)}: not read, because {'its directory' if each == folder else 'it'} is {why}; {do}"
            )
    names = sorted(known)
    return tuple(_waiver(node, names, today) for node in load(shortest(path)).list("a list of waivers"))


def _waiver(node: YamlNode, known: list[str], today: dt.date) -> Waiver:
    keys = node.only(_KEYS, "in a waiver")
    for key in _REQUIRED:
        if key not in keys:
            raise node.fail(f'a waiver needs the key "{key}"')
    texts = {key: value.text(f"the {key} of a waiver").strip() for key, value in keys.items() if key != "expires"}
    for key, text in texts.items():
        if not text:
            raise keys[key].fail(f'"{key}" is empty; {"write why" if key == "reason" else "name one"}')
    _refuse_unknown(keys["check"], texts["check"], known)
    if texts.get("part") == "*":
        raise keys["part"].fail('"*" is not a part; name one part, or leave the key out')
    return Waiver(
        texts["check"],
        texts["reason"],
        texts["author"],
        _date(keys["expires"], today),
        node.where,
        texts.get("hosts", "all"),
        texts.get("part", ""),
        texts.get("code", ""),
    )


def _refuse_unknown(node: YamlNode, check: str, known: list[str]) -> None:
    if any(mark in check for mark in "*?["):
        raise node.fail(f'"{check}" is not the name of a check; a waiver is for one check, never for all')
    if check not in known:
        raise node.fail(f'no check named "{check}"{did_you_mean(check, known) or "; to list them: gpuops checks list"}')


def _date(node: YamlNode, today: dt.date) -> dt.date:
    text = node.text("a date")
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
        raise node.fail(f"a date such as {today + dt.timedelta(days=90)} is expected, found {node.kind}")
    try:
        date = dt.date.fromisoformat(text)
    except ValueError:
        raise node.fail(f"{text} is not a day of the calendar") from None
    if date > today + _LONGEST:
        raise node.fail(f"{text} is more than a year ahead; the latest day is {today + _LONGEST}")
    return date

"""Host patterns: Ansible's ``--limit`` and ClusterShell's folded node sets.

``h100:&rack1:!gpu05`` selects the hosts in both h100 and rack1, except gpu05. A comma has the same meaning as a colon.
A term is ``all``, a host, a group, ``group[0]``, ``group[1:3]``, a range ``gpu[001:004]``, a node set
``gpu[001-128,130]``, a glob ``gpu0*``, a regular expression ``~gpu0[1-4]``, or ``@file`` with one term per line.
"""

from __future__ import annotations

import fnmatch
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from gpuops.document import Where, read_text
from gpuops.errors import DocumentError, PatternError, did_you_mean
from gpuops.inventory.group import Group, members
from gpuops.inventory.names import unfold
from gpuops.proposal import propose

_SUBSCRIPT = re.compile(r"(.+)\[(-?\d{1,9})(?:(:)(\d{0,9}))?\]")
_RANGE = re.compile(r".*\[[^\[\]]*:[^\[\]]*\].*")


def select(pattern: str, hosts: Collection[str], groups: Mapping[str, Group]) -> set[str]:
    """Return the hosts that ``pattern`` selects; raise `PatternError` if a term, or the whole pattern, selects none."""
    terms = [line for term in _terms(pattern, hosts) for line in _lines(term)]
    if not terms:
        raise PatternError("empty host pattern; to select every host, use all")
    reader = _Terms(hosts, groups)
    plain = [term for term in terms if term[0] not in "&!"] or ["all"]
    chosen = set().union(*(reader.meaning(term) for term in plain))
    for term in terms:
        if term[0] == "&":
            chosen &= reader.meaning(term[1:])
    for term in terms:
        if term[0] == "!":
            chosen -= reader.meaning(term[1:])
    if not chosen:
        raise PatternError(f'pattern "{pattern}" selects no hosts; to list groups: {propose("inventory", "graph")}')
    return chosen


def _terms(pattern: str, hosts: Collection[str]) -> Iterator[str]:
    """Yield the parts of the pattern, split at commas and colons outside brackets; an IPv6 host is not split."""
    for part in split(pattern, ","):
        whole = part.strip().lstrip("&!") in hosts
        yield from filter(None, map(str.strip, [part] if whole else split(part, ":")))


def _lines(term: str) -> list[str]:
    """Return the term itself, or for ``@file`` the lines of that file."""
    return list(filter(None, map(str.strip, read_text(Path(term[1:])).splitlines()))) if term[0] == "@" else [term]


def split(text: str, mark: str) -> list[str]:
    """Split ``text`` at each ``mark`` outside brackets."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "[({") - (char in "])}")
        if char == mark and depth <= 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts


class _Terms:
    """Evaluation of single terms in one inventory."""

    def __init__(self, hosts: Collection[str], groups: Mapping[str, Group]) -> None:
        self.hosts = hosts
        self.groups = groups

    def meaning(self, term: str) -> set[str]:
        """Return the hosts that one term selects, without its ``&`` or ``!``."""
        if term in ("all", "*"):
            return set(self.hosts)
        if term in self.hosts:
            return {term}
        if term in self.groups:
            return self.members(term)
        if term[:1] == "~":
            return self.matching(term[1:], term)
        return self.subscripted(term) or self.listed(term)

    def members(self, group: str) -> set[str]:
        return members(self.groups, group) & set(self.hosts)

    def matching(self, expression: str, term: str) -> set[str]:
        """Return the matching hosts, and all hosts of matching groups."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # "[[a" may change its meaning in later Pythons
                matches = re.compile(expression).match
        except re.error as error:
            raise PatternError(f'"{term}" is not a regular expression: {error}') from error
        groups = [group for group in self.groups if group != "all" and matches(group)]
        hosts = {host for host in self.hosts if matches(host)}.union(*map(self.members, groups))
        if not hosts:
            raise self.unknown(term)
        return hosts

    def subscripted(self, term: str) -> set[str]:
        """Return the hosts of ``group[0]``, ``group[-1]``, ``group[1:3]``, ``group[1:]``; empty if not such a term."""
        match = _SUBSCRIPT.fullmatch(term)
        if match is None or match.group(1) not in self.groups:
            return set()
        chosen = self.members(match.group(1))
        ordered = [host for host in self.hosts if host in chosen]
        start, colon, end = int(match.group(2)), match.group(3), match.group(4)
        stop = int(end) + 1 if end else None
        picked = ordered[start:stop] if colon else ordered[start : start + 1 or None]
        if not picked:
            count = f"{len(ordered)} host{'' if len(ordered) == 1 else 's'}"
            raise PatternError(f'"{term}" is out of range: group {match.group(1)} has {count}, numbered from 0')
        return set(picked)

    def listed(self, term: str) -> set[str]:
        """Return the hosts of a range, a glob or a node set."""
        if not _RANGE.fullmatch(term) and any(mark in term for mark in ("*", "?", "[!")):
            return self.matching(fnmatch.translate(term), term)
        try:
            return self.require_hosts(unfold(term, Where("pattern")), term)
        except DocumentError as error:
            raise PatternError(error.what) from error

    def require_hosts(self, names: Iterable[str], term: str) -> set[str]:
        """Return ``names`` if all of them are hosts; raise `PatternError` for the first that is not."""
        hosts = set()
        for name in names:  # stop at the first unknown name: the term may expand to very many
            if name not in self.hosts:
                raise self.unknown(name, term)
            hosts.add(name)
        return hosts

    def unknown(self, name: str, term: str = "") -> PatternError:
        inside = f' (in "{term}")' if term and term != name else ""
        return PatternError(
            f'no host or group called "{name}"{inside}{did_you_mean(name, [*self.hosts, *self.groups])}'
        )

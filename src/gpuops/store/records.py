"""What one run of a command saw, as the store keeps it: verdicts, figures and parts of each node."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

JUDGED = frozenset({"pass", "warn", "fail"})
"""Results of a check that looked; any other says nothing about a fault that was there before."""
SHARED = "shared "
"""Precedes the result of a check whose finding is reported once, for all the nodes that share it."""
CABLE = "cable"
"""The kind of a part that may have two ends; its slot is ``mlx5_0 cable``."""
FLEET = ""
"""The node of findings that blame no single node."""
LastResult = Callable[[str, str, int], str]
"""The result of a check on a node when it last looked until a run; empty if it did not (`Runs.last_results`)."""


class FindingKey(NamedTuple):
    """What makes a finding of two runs the same: its words and figures may differ."""

    node: str
    check: str
    part: str
    code: str


@dataclass(frozen=True)
class SeenFinding:
    """A finding as one run saw it. ``nodes`` are those that share it, if it is a finding on several."""

    key: FindingKey
    status: str
    severity: str
    message: str
    fix: str = ""
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SeenPart:
    """A part that can move to another node: the ``slot`` it is in (``gpu3``), its serial number and its model."""

    kind: str
    slot: str
    serial: str
    model: str = ""


@dataclass(frozen=True)
class Visit:
    """One node in one run. ``checks`` has the result of each check, and ``why`` the reason if the node was not judged.

    ``shared`` are findings of its own that are reported as part of one of the fleet, which several nodes share.

    ``figures`` are numbers by name, such as ``gpu3.temperature_celsius``; ``boot`` identifies the boot in which its
    counters began. ``shape`` is what a placement needs to know, as plain data.
    """

    status: str
    why: str = ""
    boot: str = ""
    checks: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[SeenFinding, ...] = ()
    parts: tuple[SeenPart, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
    shape: Mapping[str, Any] | None = None
    shared: tuple[SeenFinding, ...] = ()


@dataclass(frozen=True)
class SeenLink:
    """Bandwidth between two nodes, on one ``rail`` or, if None, over all; ``expected_gb_per_s`` is None if unknown."""

    a: str
    b: str
    rail: int | None
    gb_per_s: float
    expected_gb_per_s: float | None = None


@dataclass(frozen=True)
class RunRecord:
    """One run of ``verb``, such as ``validate``, over ``nodes``. ``began`` has a time zone.

    ``fleet`` are the findings that blame no single node, ``fleet_checks`` the checks that looked at no node for them.
    """

    verb: str
    began: dt.datetime
    seconds: float
    conclusion: str
    who: str
    command: str = ""
    inventory: str = ""
    level: str = ""
    nodes: Mapping[str, Visit] = field(default_factory=dict)
    fleet: tuple[SeenFinding, ...] = ()
    links: tuple[SeenLink, ...] = ()
    fleet_checks: frozenset[str] = frozenset()


@dataclass(frozen=True)
class KeptRun:
    """A run in the store: its ``number``, and how many nodes and findings it had."""

    number: int
    verb: str
    level: str
    began: dt.datetime
    seconds: float
    conclusion: str
    who: str
    command: str
    inventory: str
    nodes: int
    unhealthy: int
    findings: int


@dataclass(frozen=True)
class KeptFinding:
    """A finding from the first run that saw it to the last, ``times`` runs; ``gone_at`` if its check passed later.

    ``number`` identifies it in the store. ``message`` and ``fix`` are those of the last run.
    """

    number: int
    key: FindingKey
    status: str
    severity: str
    message: str
    fix: str
    nodes: tuple[str, ...]
    first_run: int
    first_at: dt.datetime
    last_run: int
    last_at: dt.datetime
    times: int
    gone_run: int | None = None
    gone_at: dt.datetime | None = None


def is_judged(status: str, checks: Mapping[str, str]) -> bool:
    """Return True if a run looked at a node: it judged it, or found that it does not answer."""
    return status in JUDGED or any(result.removeprefix(SHARED) in JUDGED for result in checks.values())


def is_gone(finding: KeptFinding, visits: Mapping[str, Visit], fleet_checks: Collection[str] = ()) -> bool:
    """Return True if the ``visits``, which no longer have the finding, looked for it on all of its nodes.

    A check in ``fleet_checks`` looks at all visited nodes together. What a node shares with others, its check saw too.
    """
    check, node = finding.key.check, finding.key.node
    if node != FLEET:
        return visits[node].checks.get(check) in JUDGED
    if check in fleet_checks:
        return visits.keys() >= {*finding.nodes}
    looked = {name for name, visit in visits.items() if visit.checks.get(check, "").removeprefix(SHARED) in JUDGED}
    return looked.issuperset(finding.nodes) if finding.nodes else bool(looked)


def sort_changes(
    findings: Sequence[KeptFinding],
    before: Mapping[str, int],
    after: int,
    seen: Collection[int],
    visits: Mapping[str, Visit],
    last_result: LastResult,
) -> dict[str, tuple[KeptFinding, ...]]:
    """Return what became of findings between two runs: those that are ``new``, ``continuing``, ``gone`` and ``unseen``.

    ``before`` has the nodes, each with the run that it is compared with (0: none), ``seen`` the numbers of the findings
    that run ``after`` saw, and ``visits`` what it saw of each node. A run in between, such as that of a fix, may have
    seen that a finding was gone. A finding that nodes share is new on those that did not have it, alone or shared, and
    continues on the others. So is a failure where the check only warned.
    """

    def results(node: str, check: str) -> tuple[str, str]:
        if node == FLEET:
            return "", ""
        return last_result(node, check, before[node]), visits[node].checks.get(check, "")

    now = {finding.key: finding for finding in findings if finding.number in seen and _is_on(finding, before)}
    was = {finding.key: finding for finding in findings if _was_open(finding, before)}
    missing = [finding for key, finding in was.items() if key not in now]
    has_passed = {finding.key: finding.gone_run is not None and finding.gone_run <= after for finding in missing}
    alike = [finding for finding in missing if finding.key.node == FLEET]
    ended = [
        finding
        for finding in missing
        if not _is_part_of(finding, now.values(), results(finding.key.node, finding.key.check)[1])
        and not _is_part_of(finding, (f for f in alike if has_passed[f.key] == has_passed[finding.key]))
    ]
    split = [_split(finding, was, before, results) for finding in now.values()]
    return {
        "new": tuple(new for new, _ in split if new),
        "continuing": tuple(old for _, old in split if old),
        "gone": tuple(finding for finding in ended if has_passed[finding.key]),
        "unseen": tuple(finding for finding in ended if not has_passed[finding.key]),
    }


def _is_part_of(finding: KeptFinding, others: Iterable[KeptFinding], result: str = "") -> bool:
    """Return True if the finding of one node is reported as part of one of the ``others``, which nodes share."""
    node, check, _, code = finding.key
    return node != FLEET and any(
        (other.key.node, other.key.check, other.key.code) == (FLEET, check, code)
        and (node in other.nodes or result.startswith(SHARED))
        for other in others
    )


def _split(
    finding: KeptFinding,
    was: Collection[FindingKey],
    before: Collection[str],
    results: Callable[[str, str], tuple[str, str]],
) -> tuple[KeptFinding | None, KeptFinding | None]:
    """Return the finding as far as it is new, and as far as it continues what ``was`` open; each may be None.

    ``results`` gives those of a check on a node: the last one of before, and the one of now.
    """
    node, check, _, code = finding.key
    owners = {key.node for key in was if (key.check, key.code) == (check, code)}
    nodes = finding.nodes if node == FLEET else (node,) if owners & {node, FLEET} else ()
    result_by_node = {name: results(name, check) for name in nodes if name in before}
    only_warned = {n for n, (earlier, _) in result_by_node.items() if earlier.removeprefix(SHARED) == "warn"}
    worse = only_warned if finding.status == "fail" else set()
    shared = {n for n, (earlier, _) in result_by_node.items() if FLEET in owners and _is_found(earlier, alone=not node)}
    if node != FLEET or not any(now.startswith(SHARED) for _, now in result_by_node.values()):
        is_old = (finding.key in was or node in shared) and node not in worse
        return (None, finding) if is_old else (finding, None)
    showing = [n for n, (_, now) in result_by_node.items() if _is_found(now)]
    joined = tuple(n for n in showing if n in worse or n not in owners | shared)
    others = tuple(n for n in showing if n not in joined)
    return replace(finding, nodes=joined) if joined else None, replace(finding, nodes=others) if others else None


def _is_found(result: str, *, alone: bool = True) -> bool:
    """Return True if a check found a fault on a node, ``alone`` or shared."""
    return result.removeprefix(SHARED) in JUDGED - {"pass"} and (alone or result.startswith(SHARED))


def _is_on(finding: KeptFinding, nodes: Collection[str]) -> bool:
    """Return True if the finding is on one of ``nodes``; if it is one of the fleet, on any of its nodes."""
    if finding.key.node != FLEET:
        return finding.key.node in nodes
    return not finding.nodes or any(node in nodes for node in finding.nodes)


def _was_open(finding: KeptFinding, before: Mapping[str, int]) -> bool:
    """Return True if the run ``before`` left the finding open; of one of the fleet, the latest run of its nodes."""
    if not _is_on(finding, before):
        return False
    nodes = [finding.key.node] if finding.key.node != FLEET else finding.nodes or before
    since = max((before[node] for node in nodes if node in before), default=0)
    return finding.first_run <= since and (finding.gone_run is None or finding.gone_run > since)


@dataclass(frozen=True)
class KeptPart:
    """A part in one slot of one node, from the first run that saw it there to the last; ``is_there`` if it still is."""

    kind: str
    serial: str
    model: str
    node: str
    slot: str
    first_run: int
    first_at: dt.datetime
    last_run: int
    last_at: dt.datetime
    is_there: bool


@dataclass(frozen=True)
class Rename:
    """A machine that a run saw under another name, ``node``, than the runs before."""

    former: str
    node: str
    run: int
    at: dt.datetime


@dataclass(frozen=True)
class KeptVisit:
    """One node in one run of the store."""

    run: int
    at: dt.datetime
    verb: str
    visit: Visit
    findings: tuple[int, ...] = ()


@dataclass(frozen=True)
class KeptLink:
    """Bandwidth between two nodes in one run."""

    run: int
    at: dt.datetime
    link: SeenLink


@dataclass(frozen=True)
class Changes:
    """Findings of a run compared with those of each node in its run before, of the same verb.

    ``gone``: the check has passed since. ``unseen``: those of before whose checks could not look, or were not asked.
    ``since`` is the latest earlier run of the same verb that saw one of these nodes; None if there is none.
    ``no_longer_assessed`` are the nodes that too little is known about now, though they were assessed in their run
    before, or had none. ``renamed`` has the former name of each machine that was known under another.
    """

    since: KeptRun | None
    new: tuple[KeptFinding, ...] = ()
    continuing: tuple[KeptFinding, ...] = ()
    gone: tuple[KeptFinding, ...] = ()
    unseen: tuple[KeptFinding, ...] = ()
    no_longer_assessed: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)

"""Causes above a node: what nearly all nodes of a leaf, a rail, a rack or the fleet show is one finding on that.

A hundred nodes do not lose their time server one by one. The nodes keep their status, because they do have the fault;
only its cause is reported once, with the nodes that show it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from gpuops.inventory.names import node_set
from gpuops.judging.check import Check
from gpuops.judging.finding import Finding, SharedScope, Verdict, severity_rank
from gpuops.probing import PartName

T = TypeVar("T")
K = TypeVar("K")
FEWEST_NODES = 3
"""Two nodes with the same fault are not a pattern: any two faults of one sort look like one."""
_NEARLY_ALL = 0.75
"""Share of a leaf, rail or rack that must show it; the others may be repaired, spare, or reported otherwise."""
_FEW = 0.1
"""Share of the other nodes that may show it by themselves."""
_MAJORITY = 0.5
"""More nodes of the fleet than this, and the healthy ones are the exception."""


@dataclass(frozen=True)
class Place:
    """Place of a node: its rack, its NVLink domain, and the rail and leaf of each of its network devices."""

    rack: str = ""
    nvlink_domain: str = ""
    rails: Mapping[str, str] = field(default_factory=dict)
    leaves: Mapping[str, str] = field(default_factory=dict)


class _Shown(NamedTuple):
    """One finding and the node that shows it."""

    node: str
    finding: Finding


_Places = Mapping[str, Place]
_WORDS: dict[SharedScope, str] = {
    "leaf": "leaf {}",
    "rail": "rail {}",
    "nvlink-domain": "NVLink domain {}",
    "rack": "rack {}",
    "fleet": "the fleet",
}
_FIXES: dict[SharedScope, str] = {
    "leaf": "look at leaf switch {} first: its power, its log and its ports",
    "rail": "look at the switches of rail {} first",
    "nvlink-domain": "look at the NVLink switches of this domain and at what manages them first",
    "rack": "look first for what the nodes of {} share",
    "fleet": "look for what these nodes share first: a setting, an update, a service",
}


def fold_common(
    verdicts: Iterable[Verdict], places: _Places, checks: Mapping[str, Check], others: Collection[Place] = ()
) -> list[Verdict]:
    """Return the verdicts with what nodes share as one finding without a host, at the end.

    ``places`` has every node that was judged, ``others`` are those of nodes that were not selected. Findings of checks
    that compare nodes stay as they are.
    """
    verdicts = list(verdicts)
    shown = [_Shown(v.node, f) for v in verdicts for f in v.findings if v.node in places and _may_be_shared(f)]
    spreads = [*_spreads(shown, places), *_awaited(shown)]
    rest = _without(shown, spreads)
    by_sort = _grouped(rest, lambda each: (each.finding.check, each.finding.code)).values()
    shared = [cause for own in by_sort for cause in _causes(own, places, checks[own[0].finding.check], others)]
    cause_by_finding = {id(each.finding): cause for cause in (*spreads, *shared) for each in cause.shown}
    own_verdicts = [_without_shared(verdict, cause_by_finding) for verdict in verdicts]
    return own_verdicts + [Verdict(c.finding.check, "", c.finding.status, (c.finding,)) for c in shared]


def shared_silence(silent: Collection[str], places: _Places, others: Collection[Place] = ()) -> list[Verdict]:
    """Return one remark for each rack, or for the fleet, whose nodes nearly all do not answer."""
    shown = [_Shown(node, Finding("no answer", check=REACH.name, severity="info")) for node in silent]
    return [Verdict(REACH.name, "", "pass", (c.finding,)) for c in _causes(shown, places, REACH, others)]


REACH = Check(
    "reach",
    (),
    lambda *_: iter(()),
    fix="look at the power and the network of the nodes",
    fix_in_common="look at what leads to these nodes: power, switch, jump host, VPN",
)
"""Stands for the connection to a node, which no check asks for."""


def _may_be_shared(finding: Finding) -> bool:
    """Return True for what nodes can catch from each other: a part to inspect or return is its node's own."""
    return finding.scope == "node" and finding.status != "pass" and finding.severity not in {"isolate", "rma"}


@dataclass(frozen=True)
class _Cause:
    """What the findings ``shown`` have in common, as one; ``root`` is the one that caused the others, if known."""

    finding: Finding
    shown: tuple[_Shown, ...]
    root: Finding | None = None


@dataclass(frozen=True)
class _Kind:
    """A sort of place: the one that a finding is in (empty if none), and all that a node has."""

    scope: SharedScope
    of_finding: Callable[[Finding, Place], str]
    of_node: Callable[[Place], Collection[str]]
    tag: str = ""


_KINDS = (
    _Kind("leaf", lambda finding, place: place.leaves.get(finding.part, ""), lambda place: place.leaves.values()),
    _Kind("rail", lambda finding, place: place.rails.get(finding.part, ""), lambda place: place.rails.values()),
    _Kind("nvlink-domain", lambda _, place: place.nvlink_domain, lambda place: (place.nvlink_domain,), "nvlink"),
    _Kind("rack", lambda _, place: place.rack, lambda place: (place.rack,) if place.rack else ()),
)


def _causes(shown: Sequence[_Shown], places: _Places, check: Check, others: Collection[Place]) -> Iterator[_Cause]:
    """Yield what findings of one sort share: the fewest places that hold them, the narrowest first, else the fleet."""
    nodes = {each.node for each in shown}
    if len(nodes) < FEWEST_NODES:
        return
    kinds = (kind for kind in _KINDS if not kind.tag or kind.tag in check.tags)
    found = [(kind, full) for kind in kinds if (full := _full_places(kind, shown, places, others))]
    kind, full = min(found, key=lambda each: len(each[1]), default=(None, {}))
    if kind is not None:
        for name, (own, members) in full.items():
            yield _cause(kind.scope, name, own, members, check)
    elif len(nodes) > _MAJORITY * len(places):
        cause = _cause("fleet", "", shown, len(places), check)
        part = PartName("fleet", "the selected nodes") if others else cause.finding.part
        yield replace(cause, finding=replace(cause.finding, part=part))


def _full_places(
    kind: _Kind, shown: Sequence[_Shown], places: _Places, others: Collection[Place]
) -> dict[str, tuple[list[_Shown], int]]:
    """Return the places of one kind whose nodes nearly all show it, with how many these are.

    There are none if all places are full, or if nodes elsewhere show it as well: then it is the fleet's. A fleet that
    is one NVLink domain is called by it, and a selection in one place by that, if there are more such places.
    """
    inside = _grouped(shown, lambda each: kind.of_finding(each.finding, places[each.node]))
    members = Counter(name for place in places.values() for name in set(kind.of_node(place)))
    full = {name: (own, members[name]) for name, own in inside.items() if name and _nearly_all(own, members[name])}
    elsewhere = {each.node for each in shown} - {each.node for own, _ in full.values() for each in own}
    outside = sum(1 for place in places.values() if not full.keys() & set(kind.of_node(place)))
    is_one_of_more = len(members) == 1 and any(set(kind.of_node(place)) - set(members) for place in others)
    is_apart = len(full) < len(members) or is_one_of_more or (len(members) == 1 and kind.tag)
    return full if is_apart and len(elsewhere) <= _FEW * outside else {}


def _nearly_all(shown: Sequence[_Shown], members: int) -> bool:
    count = len({each.node for each in shown})
    return count >= FEWEST_NODES and count >= _NEARLY_ALL * members


def _cause(scope: SharedScope, name: str, shown: Sequence[_Shown], members: int, check: Check) -> _Cause:
    """Return the findings as one, in the words of most of them."""
    nodes = tuple(dict.fromkeys(each.node for each in shown))
    message, count = Counter(each.finding.message for each in shown).most_common(1)[0]
    example = next(each.finding for each in shown if each.finding.message == message)
    often = "" if count == len(shown) else "most often "
    parts = {each.finding.part for each in shown}
    part = f"{next(iter(parts))}: " if len(parts) == 1 and _has_label(example) else ""
    is_switch = scope in {"leaf", "rail"}
    fixes = {each.finding.fix for each in shown}
    own_fix = fixes.pop() if len(fixes) == 1 else check.fix
    first = _FIXES[scope].format(name) if is_switch or not check.fix_in_common else ""
    finding = replace(
        example,
        message=f"{len(nodes)} of {members} nodes: {part}{often}{message}",
        fix="; then ".join(filter(None, (first, own_fix))) if first else check.fix_in_common,
        part=PartName(f"{scope}:{name}" if name else scope, _WORDS[scope].format(name)),
        severity=max((each.finding for each in shown), key=severity_rank).severity,
        host="",
        hosts=nodes,
        scope=scope,
        effects=_each(shown),
    )
    return _Cause(finding, tuple(shown))


def _each(shown: Sequence[_Shown]) -> tuple[str, ...]:
    """Return what each node shows, if that differs, or if the part has a number of its own."""
    is_same = len({(each.finding.part, each.finding.message) for each in shown}) == 1
    if is_same and not any(_has_label(each.finding) for each in shown):
        return ()
    return tuple(
        f"{each.node} {each.finding.part_label or each.finding.part}: {each.finding.message}" for each in shown
    )


def _has_label(finding: Finding) -> bool:
    """Return True for parts that are described by more than their name: serial number, address."""
    return finding.part_label not in {"", finding.part}


_SPREADING_XIDS: dict[str, frozenset[str]] = {
    "149": frozenset({"45", "74", "144", "145", "146", "147", "148", "150"}),
    "144": frozenset({"45", "145"}),
}
"""The Xid of one broken link, and those that it makes the other GPUs of the NVLink domain log.

Source: marin-community/marin issue 9086 (one GPU logged 149, the 63 others of the rack 145).
"""


def _spreads(shown: Sequence[_Shown], places: _Places) -> Iterator[_Cause]:
    """Yield the GPU of an NVLink domain whose Xid made many others log theirs; of several, the first has them."""
    xids = [each for each in shown if each.finding.check == "xid"]
    for own in _grouped(xids, lambda each: places[each.node].nvlink_domain or each.node).values():
        for code, following in _SPREADING_XIDS.items():
            roots = [each for each in own if each.finding.code == code]
            effects = [each for each in own if each.finding.code in following]
            if roots and len(_gpus(effects)) >= FEWEST_NODES:
                yield _spread(roots[0], effects)
                break


def _spread(root: _Shown, effects: Sequence[_Shown]) -> _Cause:
    codes = ", ".join(dict.fromkeys(each.finding.code for each in effects))
    nodes = tuple(dict.fromkeys([root.node, *(each.node for each in effects)]))
    on = f"{len(_gpus(effects))} GPUs of {len(nodes)} nodes" if len(nodes) > 1 else f"{len(_gpus(effects))} GPUs"
    effect = f"xid: Xid {codes} on {on} of this NVLink domain"
    finding = replace(root.finding, effects=(*root.finding.effects, effect), hosts=nodes if len(nodes) > 1 else ())
    return _Cause(finding, (root, *effects), root.finding)


def _awaited(shown: Sequence[_Shown]) -> Iterator[_Cause]:
    """Yield the fault of each node that others only wait for; a node that waits for one without a fault has its own."""
    waiting = [each for each in shown if each.finding.waits_for]
    own = {(each.finding.check, each.node): each for each in shown if not each.finding.waits_for}
    explained = [each for each in waiting if all((each.finding.check, n) in own for n in each.finding.waits_for)]
    for key, effects in _grouped(explained, lambda each: (each.finding.check, each.finding.waits_for[0])).items():
        effect = f"{key[0]}: {len(effects)} other nodes wait for it ({node_set(each.node for each in effects)})"
        finding = replace(own[key].finding, effects=(*own[key].finding.effects, effect))
        yield _Cause(finding, (own[key], *effects), own[key].finding)


def _gpus(shown: Iterable[_Shown]) -> set[tuple[str, str]]:
    return {(each.node, each.finding.part) for each in shown}


def _without(shown: Sequence[_Shown], causes: Iterable[_Cause]) -> list[_Shown]:
    folded = {id(each.finding) for cause in causes for each in cause.shown}
    return [each for each in shown if id(each.finding) not in folded]


def _without_shared(verdict: Verdict, cause_by_finding: Mapping[int, _Cause]) -> Verdict:
    """Return the verdict with its status, and without the findings that are reported as part of another."""
    causes = [cause_by_finding[id(f)] for f in verdict.findings if id(f) in cause_by_finding]
    if not causes:
        return verdict
    kept = tuple(own for finding in verdict.findings if (own := _own(finding, cause_by_finding.get(id(finding)))))
    where = next((c.finding for c in causes if c.finding not in kept), None)
    why = f"part of a finding on {_place(where)}" if where else verdict.why
    shared = tuple(f for f in verdict.findings if (cause := cause_by_finding.get(id(f))) and not cause.root)
    return replace(verdict, findings=kept, why=why, shared=shared)


def _own(finding: Finding, cause: _Cause | None) -> Finding | None:
    """Return what remains of a finding: all of it, the cause of others with them, or nothing."""
    if cause is None:
        return finding
    return cause.finding if cause.root is finding else None


def _place(finding: Finding) -> str:
    return f"{finding.host} {finding.part}" if finding.host else finding.part_label


def _grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups

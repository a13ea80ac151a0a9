"""Shares: the evidence of one measurement as one JSON text a node, so that it is saved and judged again with its facts.

A figure stands with the first node of its group, so that the shares of many nodes are no longer than the evidence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from gpuops.facts import Facts
from gpuops.isolation.evidence import Evidence, Measured
from gpuops.isolation.fabric import Fabric, FabricNic, FabricNode
from gpuops.isolation.rounds import GroupResult, RankGroup, Round, Scope
from gpuops.probing import Probe, Unknown
from gpuops.shell import Command, Completed

SCHEMA = "gpuops.allreduce/1"
QUESTION = Command(("gpuops", "allreduce"))
"""What stands in saved facts as the question that a measurement answers; it is never sent to a node."""


@dataclass(frozen=True)
class EvidenceRow:
    """One figure of a share: its round's number, scope and why, what it should have been, and what was counted."""

    number: int
    scope: Scope
    why: str
    figure: GroupResult
    expected: float | None
    counters: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class NodeEvidence:
    """What one node brings to the evidence; ``node`` is its place in the fabric, ``settings`` how it was measured."""

    node: FabricNode
    engine: str
    settings: tuple[str, ...]
    scopes: tuple[Scope, ...]
    rows: tuple[EvidenceRow, ...]


def to_answers(evidence: Evidence, engine: str, settings: Mapping[str, Sequence[str]]) -> dict[str, Completed]:
    """One answer a node, as `gpuops.facts` saves them; ``settings`` are those of each node, in words."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in evidence.fabric.nodes}
    took_part: dict[str, set[int]] = {name: set() for name in evidence.fabric.nodes}
    for number, row in _rows(evidence):
        first, *_ = nodes = row["figure"]["group"]["nodes"]
        rows[first].append(row)
        for name in nodes:
            took_part[name].add(number)
    common = {"schema": SCHEMA, "engine": engine, "scopes": evidence.scopes}
    return {
        name: _answer(
            name,
            {
                **common,
                "settings": settings.get(name, ()),
                "node": asdict(node),
                "took_part": sorted(took_part[name]),
                "rows": rows[name],
            },
        )
        for name, node in evidence.fabric.nodes.items()
    }


def _answer(name: str, told: dict[str, Any]) -> Completed:
    return Completed(name, QUESTION, 0, json.dumps(told, separators=(",", ":")))


@dataclass(frozen=True)
class Unfit:
    """A node that took no part because something was found wrong with it: why, and what to do."""

    why: str
    do: str


def left_out(node: str, why: str, *, spared: bool) -> Completed:
    """The answer of a node that took no part; ``spared`` was left alone on purpose."""
    return Completed(node, QUESTION, _SPARED if spared else _UNABLE, err=why)


def unfit(node: str, found: Unfit) -> Completed:
    """The answer of a node that is unfit."""
    return _answer(node, {"schema": SCHEMA, "unfit": asdict(found)})


_SPARED, _UNABLE = 1, 2


def _rows(evidence: Evidence) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, measured in enumerate(evidence.rounds):
        told = {"number": number, "scope": measured.round.scope, "why": measured.round.why}
        for figure in measured.figures:
            own = {part: counts for part, counts in measured.counters.items() if _node(part) in figure.group.nodes}
            expected = evidence.expected.get(figure.group)
            yield number, {**told, "figure": asdict(figure), "expected": expected, "counters": own}


def _node(part: str) -> str:
    return part.partition(":")[0]


def parse_share(answer: Completed) -> NodeEvidence | Unfit | Unknown:
    """The share in ``answer``; `Unknown` where the node was left out, which is then said in its place."""
    if answer.exit != 0:
        return Unknown(answer.err or "no all-reduce was measured here", skipped_on_purpose=answer.exit == _SPARED)
    told = json.loads(answer.out)
    if told["schema"] != SCHEMA:
        return Unknown(f"an all-reduce of schema {told['schema']!r:.40}, not {SCHEMA}")
    if "unfit" in told:
        return Unfit(str(told["unfit"]["why"]), str(told["unfit"]["do"]))
    if not told["took_part"]:
        return Unknown("no all-reduce was measured here")
    node = told["node"]
    nics = tuple(FabricNic(str(n["name"]), int(n["rail"]), float(n["gb_per_s"]), n["leaf"]) for n in node["nics"])
    return NodeEvidence(
        FabricNode(str(node["name"]), tuple(int(gpu) for gpu in node["gpus"]), nics),
        str(told["engine"]),
        tuple(str(words) for words in told.get("settings", ())),
        tuple(cast("Scope", str(scope)) for scope in told["scopes"]),
        tuple(_row(row) for row in told["rows"]),
    )


def _row(told: dict[str, Any]) -> EvidenceRow:
    counters = {str(part): {str(k): int(v) for k, v in counts.items()} for part, counts in told["counters"].items()}
    expected = None if told["expected"] is None else float(told["expected"])
    scope = cast("Scope", str(told["scope"]))
    return EvidenceRow(int(told["number"]), scope, str(told["why"]), _figure(told["figure"]), expected, counters)


def _figure(told: dict[str, Any]) -> GroupResult:
    group = told["group"]
    rail = None if group["rail"] is None else int(group["rail"])
    nodes, gpus = tuple(str(name) for name in group["nodes"]), tuple(int(gpu) for gpu in group["gpus"])
    found = None if told["gb_per_s"] is None else float(told["gb_per_s"])
    absent = tuple(str(name) for name in told["absent"])
    where = RankGroup(nodes, rail, gpus, group["variant"])
    return GroupResult(where, found, told["trouble"], absent, float(told["spread"]), str(told["detail"]))


all_reduce: Probe[NodeEvidence | Unfit] = Probe("all_reduce", QUESTION, parse_share, accepts=None, cost="heavy")
"""What an all-reduce showed of a node: `gpuops allreduce` answers it, with every node's help."""


def evidence_of(shares: Mapping[str, NodeEvidence]) -> Evidence:
    """The evidence that ``shares`` make together. What a figure says of a node whose share is gone is left out."""
    rounds: dict[int, Measured] = {}
    expected: dict[RankGroup, float] = {}
    for row in (row for share in shares.values() for row in share.rows):
        before = rounds.get(row.number) or Measured(Round(row.scope, (), row.why), ())
        figures = (*before.figures, row.figure)
        counters = {**before.counters, **row.counters}
        rounds[row.number] = Measured(replace(before.round, groups=tuple(f.group for f in figures)), figures, counters)
        if row.expected is not None:
            expected[row.figure.group] = row.expected
    fabric = Fabric({name: share.node for name, share in shares.items()})
    scopes = tuple(dict.fromkeys(scope for share in shares.values() for scope in share.scopes))
    whole = Evidence(fabric, tuple(rounds[number] for number in sorted(rounds)), expected, scopes)
    return whole.without({name for m in whole.rounds for g in m.round.groups for name in g.nodes} - set(shares))


def shares_of(known: Mapping[str, Facts]) -> tuple[dict[str, NodeEvidence], dict[str, str]]:
    """The shares of the nodes whose facts hold one, and why the others have none."""
    shares, left = {}, {}
    for node, facts in known.items():
        told = facts[all_reduce]
        if isinstance(told, NodeEvidence):
            shares[node] = told
        else:
            left[node] = told.why
    return shares, left

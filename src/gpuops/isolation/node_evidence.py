"""A measurement as one JSON text per node, so that it is saved and judged again with the node's facts.

Each result is stored with the first node of its group, so that the texts of all nodes are no longer than the evidence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from gpuops.bandwidth import Operation
from gpuops.facts import Facts
from gpuops.isolation.evidence import Evidence, Measured
from gpuops.isolation.fabric import Fabric, FabricNic, FabricNode
from gpuops.isolation.rounds import GroupResult, RankGroup, Round, Scope
from gpuops.probing import Probe, Unknown
from gpuops.reasons import Excluded, ExclusionKind
from gpuops.shell import Command, Completed

SCHEMA = "gpuops.allreduce/1"
QUESTION = Command(("gpuops", "allreduce"))
"""The question that a measurement answers in saved facts; it is never sent to a node."""
_NOTHING = "no all-reduce was measured on this node"
_AT_FAULT: frozenset[ExclusionKind] = frozenset({"defective", "lost"})
"""Kinds of exclusion that are the node's own fault: a check reads them as a finding, not as unknown."""
_LEFT_ALONE = 1
"""The exit code that meant "skipped on purpose" in files from before exclusions had a kind."""


@dataclass(frozen=True)
class EvidenceRow:
    """One result: its round's number, scope and reason, the expectation, and the counters that increased."""

    number: int
    scope: Scope
    why: str
    figure: GroupResult
    expected: float | None
    counters: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class NodeEvidence:
    """The evidence of one node; ``node`` is its entry in the fabric, ``settings`` describe how it was measured.

    ``operation`` and ``size_bytes`` are those of `Evidence`.
    """

    node: FabricNode
    engine: str
    settings: tuple[str, ...]
    scopes: tuple[Scope, ...]
    rows: tuple[EvidenceRow, ...]
    operation: Operation = "all_reduce"
    size_bytes: int | None = None


def to_answers(evidence: Evidence, engine: str, settings: Mapping[str, Sequence[str]]) -> dict[str, Completed]:
    """Return one answer per node, as `gpuops.facts` saves them; ``settings`` are those of each node, in words."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in evidence.fabric.nodes}
    took_part: dict[str, set[int]] = {name: set() for name in evidence.fabric.nodes}
    for number, row in _rows(evidence):
        first, *_ = nodes = row["figure"]["group"]["nodes"]
        rows[first].append(row)
        for name in nodes:
            took_part[name].add(number)
    load = {"operation": evidence.operation, "size_bytes": evidence.size_bytes}
    common = {"schema": SCHEMA, "engine": engine, "scopes": evidence.scopes, **load}
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


def _answer(name: str, document: dict[str, Any]) -> Completed:
    return Completed(name, QUESTION, 0, json.dumps(document, separators=(",", ":")))


@dataclass(frozen=True)
class NotMeasured(Unknown):
    """The node was not measured, because it was ``excluded``."""

    excluded: Excluded | None = None


def excluded_answer(excluded: Excluded) -> Completed:
    """Return the answer of a node that took no part."""
    reason = {**excluded.to_document(), "do": excluded.do}
    return _answer(excluded.host, {"schema": SCHEMA, "excluded": reason})


def _rows(evidence: Evidence) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each result with its round; what a node counted is in the first result of its round."""
    for number, measured in enumerate(evidence.rounds):
        common = {"number": number, "scope": measured.round.scope, "why": measured.round.why}
        counted: dict[str, dict[str, Mapping[str, int]]] = {}
        for part, counts in measured.counters.items():
            counted.setdefault(part.partition(":")[0], {})[part] = counts
        for figure in measured.figures:
            own = {part: counts for node in figure.group.nodes for part, counts in counted.pop(node, {}).items()}
            expected = evidence.expected.get(figure.group)
            yield number, {**common, "figure": asdict(figure), "expected": expected, "counters": own}


def parse_node_evidence(answer: Completed) -> NodeEvidence | Excluded | Unknown:
    """Return the evidence in ``answer``; `Excluded` for a node at fault, `Unknown` if it was excluded otherwise.

    Files from before exclusions had a kind contain an exit code instead, and ``unfit`` for a node at fault.
    """
    if answer.exit != 0:
        return Unknown(answer.err or _NOTHING, skipped_on_purpose=answer.exit == _LEFT_ALONE)
    document = json.loads(answer.out)
    if document["schema"] != SCHEMA:
        return Unknown(f"an all-reduce of schema {document['schema']!r:.40}, not {SCHEMA}")
    if "excluded" in document:
        return _exclusion(Excluded.from_document(answer.node, document["excluded"]))
    if "unfit" in document:
        return Excluded(answer.node, "defective", str(document["unfit"]["why"]), do=str(document["unfit"]["do"]))
    return _evidence(document) if document["took_part"] else Unknown(_NOTHING)


def _exclusion(excluded: Excluded) -> Excluded | NotMeasured:
    if excluded.kind in _AT_FAULT:
        return excluded
    return NotMeasured(excluded.why, skipped_on_purpose=excluded.on_purpose, excluded=excluded)


def _evidence(document: dict[str, Any]) -> NodeEvidence:
    node = document["node"]
    nics = tuple(
        FabricNic(str(n["name"]), int(n["rail"]), float(n["gb_per_s"]), n["leaf"], str(n.get("link_layer", "")))
        for n in node["nics"]
    )
    return NodeEvidence(
        FabricNode(str(node["name"]), tuple(int(gpu) for gpu in node["gpus"]), nics),
        str(document["engine"]),
        tuple(str(words) for words in document.get("settings", ())),
        tuple(cast("Scope", str(scope)) for scope in document["scopes"]),
        tuple(_row(row) for row in document["rows"]),
        cast("Operation", str(document.get("operation", "all_reduce"))),  # files from before 0.1 have none
        document.get("size_bytes"),
    )


def _row(saved: dict[str, Any]) -> EvidenceRow:
    counters = {str(part): {str(k): int(v) for k, v in counts.items()} for part, counts in saved["counters"].items()}
    expected = None if saved["expected"] is None else float(saved["expected"])
    scope = cast("Scope", str(saved["scope"]))
    return EvidenceRow(int(saved["number"]), scope, str(saved["why"]), _figure(saved["figure"]), expected, counters)


def _figure(saved: dict[str, Any]) -> GroupResult:
    group = saved["group"]
    rail = None if group["rail"] is None else int(group["rail"])
    nodes, gpus = tuple(str(name) for name in group["nodes"]), tuple(int(gpu) for gpu in group["gpus"])
    rate = None if saved["gb_per_s"] is None else float(saved["gb_per_s"])
    absent = tuple(str(name) for name in saved["absent"])
    ranks = RankGroup(nodes, rail, gpus, group["variant"])
    return GroupResult(ranks, rate, saved["trouble"], absent, float(saved["spread"]), str(saved["detail"]))


all_reduce: Probe[NodeEvidence | Excluded] = Probe(
    "all_reduce", QUESTION, parse_node_evidence, accepts=None, cost="heavy"
)
"""The results of an all-reduce on a node, reported by `gpuops allreduce` with the help of all nodes."""


def evidence_of(evidence_by_node: Mapping[str, NodeEvidence]) -> Evidence:
    """Return the combined evidence of all nodes, without groups that contain a node without evidence."""
    rounds: dict[int, Measured] = {}
    expected: dict[RankGroup, float] = {}
    for row in (row for own in evidence_by_node.values() for row in own.rows):
        before = rounds.get(row.number) or Measured(Round(row.scope, (), row.why), ())
        figures = (*before.figures, row.figure)
        counters = {**before.counters, **row.counters}
        rounds[row.number] = Measured(replace(before.round, groups=tuple(f.group for f in figures)), figures, counters)
        if row.expected is not None:
            expected[row.figure.group] = row.expected
    fabric = Fabric({name: own.node for name, own in evidence_by_node.items()})
    scopes = tuple(dict.fromkeys(scope for own in evidence_by_node.values() for scope in own.scopes))
    ordered = tuple(rounds[number] for number in sorted(rounds))
    whole = Evidence(fabric, ordered, expected, scopes)
    for own in list(evidence_by_node.values())[:1]:  # all nodes of a measurement have the same
        whole = replace(whole, operation=own.operation, size_bytes=own.size_bytes)
    return whole.without(
        {name for m in whole.rounds for g in m.round.groups for name in g.nodes} - set(evidence_by_node)
    )


def node_evidence_of(
    facts_by_node: Mapping[str, Facts],
) -> tuple[dict[str, NodeEvidence], dict[str, Excluded]]:
    """Return the evidence of the nodes whose facts contain some, and why the others have none."""
    evidence: dict[str, NodeEvidence] = {}
    excluded: dict[str, Excluded] = {}
    for node, facts in facts_by_node.items():
        value = facts[all_reduce]
        if isinstance(value, NodeEvidence):
            evidence[node] = value
        elif isinstance(value, Excluded):
            excluded[node] = value
        else:
            saved = value.excluded if isinstance(value, NotMeasured) else None
            excluded[node] = saved or Excluded(node, "unknown", value.why)
    return evidence, excluded

"""What the evidence lacks or cannot mean: nodes that took no part, and results that no NIC can reach, or all miss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from gpuops.isolation.evidence import BlamedPart, Evidence, Sentence
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.rounds import GroupResult, RankGroup

_TOO_FAST = "faster than the line rate: this rate or the measurement is wrong"
_HALF = 0.5
"""A slot of the PCIe generation before halves the rate of a NIC; nothing healthy takes more."""
_IMPOSSIBLE, _FEW = 1.2, 1 / 8
"""Rates are stated as 25, 50 or 100 GB/s for 200, 400 or 800 Gb/s; more than this is neither rounding nor noise."""
_SCOPES = {"pair": "pairs", "group": "groups"}


def left_out(evidence: Evidence, blamed: Sequence[BlamedPart]) -> Iterator[Sentence]:
    """Yield a sentence on the nodes that took no part with all of their GPUs, without those that ``blamed`` names.

    A node takes no part if it was slow or failed before, because it would slow all others of its group. A slow uplink
    that joins all units leaves out each group of several units.
    """
    scopes = [words for scope, words in _SCOPES.items() if scope in evidence.scopes]
    if not scopes or not any(measured.round.scope == "rail" for measured in evidence.rounds):
        return
    seen = {n for m in evidence.rounds if m.round.scope in _SCOPES for f in m.figures for n in f.group.nodes}
    known = {
        name for part in blamed for each in (part.part, *part.alternatives) for name in _behind(each, evidence.fabric)
    }
    nodes = [name for name in evidence.fabric.nodes if name not in seen and name not in known]
    if nodes and len(evidence.fabric.nodes.keys() - known) > 1:  # the only healthy node has no partner
        about = f"not measured in {' or '.join(scopes)}, because earlier results left them out"
        yield Sentence(f"{', '.join(nodes)}: {about}", nodes, about)
    uplinks = [part for part in blamed if part.part.startswith("unit:")]
    if "group" in evidence.scopes and uplinks and not _have_crossed(evidence):
        about = "each group of several units crosses it, so none was measured; repair it and measure again"
        yield Sentence(f"{uplinks[0].part}: {about}", [uplinks[0].part], about)


def _have_crossed(evidence: Evidence) -> bool:
    """Return True if any group of the round of groups crossed units."""
    rounds = [measured.round for measured in evidence.rounds if measured.round.scope == "group"]
    return any(evidence.fabric.leaves_block(group.nodes) for each in rounds for group in each.groups)


def without_impossible(evidence: Evidence) -> tuple[Evidence, list[GroupResult]]:
    """Return the evidence without figures between nodes that no NIC can reach, and these.

    If many are, these nodes have a faster way than the NICs, such as NVLink between the nodes of a rack.
    """
    figures = [f for m in evidence.rounds for f in m.figures if len(f.group.nodes) > 1]
    fast = [figure for figure in figures if _is_impossible(figure, evidence.fabric)]
    if not fast or len(fast) > _FEW * len(figures):
        return evidence, []
    known = set(map(id, fast))
    rounds = (measured.keeping(lambda figure: id(figure) not in known) for measured in evidence.rounds)
    return replace(evidence, rounds=tuple(rounds)), fast


def too_fast(impossible: Iterable[GroupResult]) -> Iterator[Sentence]:
    """Yield a sentence on each figure that is faster than the line rate: it is stated or measured wrongly."""
    for figure in impossible:
        nodes, rail = figure.group.nodes, figure.group.rail
        name = f"{len(nodes)} nodes with {nodes[0]}" if rail is None else f"{' and '.join(nodes)} on rail {rail}"
        yield Sentence(f"{name}: {figure.gb_per_s:.4g} GB/s, {_TOO_FAST}", [name], _TOO_FAST)


def far_too_slow(evidence: Evidence) -> Iterator[str]:
    """Yield that even the best rails are below half of their line rate; a rate of 0 is not known."""
    shares = [
        (figure.gb_per_s or 0.0) / line
        for measured in evidence.rounds
        for figure in (measured.figures if measured.round.scope == "rail" else ())
        if (line := _line_rate(figure.group, evidence.fabric)) and figure.gb_per_s
    ]
    if shares and max(shares) < _HALF:
        yield (
            f"rails: at best {100 * max(shares):.2g} % of the line rate that the ports state; "
            "either this rate is wrong, or all nodes have a fault in common"
        )


def _is_impossible(figure: GroupResult, fabric: Fabric) -> bool:
    line = _line_rate(figure.group, fabric)
    return line > 0 and (figure.gb_per_s or 0.0) > _IMPOSSIBLE * line


def _line_rate(group: RankGroup, fabric: Fabric) -> float:
    """Return what the slowest node's NICs carry in GB/s; 0 if that is unknown, or no bound, as for two whole nodes."""
    if group.rail is not None:
        return min(fabric.rates.get((name, group.rail), 0.0) for name in group.nodes)
    return min(fabric.node_rates[name] for name in group.nodes) if len(group.nodes) > 2 else 0.0


def _behind(part: str, fabric: Fabric) -> Iterable[str]:
    """Return the nodes that a part belongs to, or that it joins to others."""
    owner, _, name = part.partition(":")
    if owner == "leaf":
        return [node for node, _ in fabric.ports_of.get(name, ())]
    if owner == "unit":
        return fabric.units.get(name.partition("/")[0], ())
    return [owner]

"""Text report of a measurement: the nodes that took part, the result of each scope, and the blamed parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuops.collective.heat_map import heat_map
from gpuops.collective.measurement import Measurement
from gpuops.collective.network_tests.verdicts import NetworkFailure
from gpuops.collective.scope_lines import ScopeLine
from gpuops.isolation.evidence import BlamedPart, CommonCause
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.remedies import fix_for, fix_in_common
from gpuops.report.heatmap import lines as map_lines
from gpuops.report.page import Page, clean, fold, format_node_count

_PLAIN = Page()
_HEAD, _LABEL, _COUNT, _RATES = 8, 16, 9, 17
"""Columns: where the text of the head starts, and the widths of a scope's label, count and rates."""
_MOST_APART = 4


def render(measurement: Measurement, page: Page = _PLAIN) -> str:
    """Return the report as text: the pool and the scopes, then each blamed part with evidence and a fix."""
    heat = heat_map(measurement.evidence)
    scopes = measurement.scope_lines(heat)
    blocks = [
        [*_head(measurement, page)],
        [text for line in scopes for text in page.labelled("", _scope(line), 0)],
        [*map_lines(heat, page)] if heat.rows and not heat.without_outlier(heat.nodes) else [],
        *([*_failed(failure, page)] for failure in measurement.failures),
        *([*_common(cause, page)] for cause in measurement.blame.fleet),
        *([*_blamed(accusation, measurement.evidence.fabric, page)] for accusation in measurement.blame.blamed),
        [*_tail(measurement, [line for line in scopes if line.all_low], page)],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _head(measurement: Measurement, page: Page) -> Iterator[str]:
    took_part = len(measurement.evidence.fabric.nodes)
    by_reason: dict[str, list[str]] = {}
    for node, reason in measurement.excluded.items():
        by_reason.setdefault(clean(reason.why), []).append(node)
    pool = f"{took_part} of {format_node_count(took_part + len(measurement.excluded))}"
    yield from page.labelled("pool", pool, _HEAD)
    for why, nodes in by_reason.items():
        yield from page.labelled("", f"without {clean(fold(nodes))}: {why}", _HEAD)
    yield from page.labelled(
        "engine", clean("   ".join(filter(None, (measurement.engine, measurement.engine_why)))), _HEAD
    )
    if measurement.settings:
        yield from page.labelled("", clean("; ".join(_settings(measurement))), _HEAD)


def _settings(measurement: Measurement) -> Iterator[str]:
    """Yield the settings that all nodes share, then the differing ones, or their number if there are too many."""
    by_setting = measurement.nodes_by_setting
    apart = {words: nodes for words, nodes in by_setting.items() if len(nodes) < len(measurement.settings)}
    yield from (words for words in by_setting if words not in apart)
    if len(apart) > _MOST_APART:
        yield f"{len(apart)} settings differ between nodes: --json lists them"
    else:
        yield from (f"{words} ({fold(nodes)})" for words, nodes in apart.items())


def _scope(line: ScopeLine) -> str:
    count = f"{line.well}/{line.measured}"
    low, high = f"{line.low or 0:.3g}", f"{line.high or 0:.3g}"
    rates = "nothing measured" if line.high is None else f"{low if low == high else f'{low}-{high}'} GB/s"
    guess = "" if line.expected is None or line.expected.may_fail else ", a guess"
    expected = f"expected {line.expected.gb_per_s:.3g}{guess}" if line.expected else ""
    return f"{line.label:<{_LABEL}}{f'{count} ':<{_COUNT}}{rates:<{_RATES}} {expected}".rstrip()


def _blamed(accusation: BlamedPart, fabric: Fabric, page: Page) -> Iterator[str]:
    parts = [part_in_words(part, fabric) for part in (accusation.part, *accusation.alternatives)]
    yield from page.edges(clean(f"BLAMED  {' or '.join(parts)}"), accusation.kind)
    for sentence in filter(None, (*accusation.evidence, accusation.doubt)):
        yield from page.labelled("  ", clean(sentence), 2)
    yield from page.labelled("  do", clean(fix_for(accusation)), 6)


def _common(cause: CommonCause, page: Page) -> Iterator[str]:
    yield from page.edges(clean(f"FLEET  {cause.where}, {len(cause.nodes)} of {cause.tested} nodes"), cause.kind)
    for sentence in (cause.what, *cause.evidence):
        yield from page.labelled("  ", clean(sentence), 2)
    yield from page.labelled("  do", clean(fix_in_common(cause)), 6)


def _failed(failure: NetworkFailure, page: Page) -> Iterator[str]:
    yield from page.edges(clean(f"NETWORK TEST FAILED  {' and '.join(failure.nodes)}"), failure.test)
    yield from page.labelled("  ", clean(failure.why), 2)
    yield from page.labelled("  do", clean(failure.do), 6)


def part_in_words(part: str, fabric: Fabric) -> str:
    """Return the display name of a part: ``gpu017 mlx5_3 (rail 3)``, ``leaf L3 (gpu[001-016])``."""
    owner, _, name = part.partition(":")
    if owner == "leaf":
        behind = [n.name for n in fabric.nodes.values() if any(nic.leaf == name for nic in n.nics)]
        return f"leaf {name} ({fold(behind)})" if behind else f"leaf {name}"
    if owner == "unit":
        unit, _, rail = name.partition("/rail")
        return f"rail {rail} of unit {unit} ({fold(fabric.units.get(unit, ()))})"
    node = fabric.nodes.get(owner)
    rail_of = {nic.name: nic.rail for nic in node.nics} if node else {}
    if name in rail_of:
        return f"{owner} {name} (rail {rail_of[name]})"
    return f"{owner} GPU {name[3:]} (its NVLink)" if name.startswith("gpu") else f"{owner} {name}".strip()


def _tail(measurement: Measurement, low: Sequence[ScopeLine], page: Page) -> Iterator[str]:
    blame = measurement.blame
    for line in low:
        yield from page.labelled("low", f"{line.label}: all are low; look for what the nodes have in common", 12)
    for pairs in blame.contention:
        yield from page.labelled("contention", clean(pairs), 12)
    if blame.contention:
        yield from page.labelled("", "these pairs were slow once but not again; no part is blamed for it", 12)
    for why in blame.unclear:
        yield from page.labelled("unclear", clean(why), 12)
    if blame.suspects:
        yield from page.labelled("suspects", clean(f"{', '.join(blame.suspects)}: not confirmed"), 12)
    if measurement.interrupted:
        yield "interrupted before all rounds had run; this result is incomplete"
    elif not (blame.is_failed or blame.is_incomplete):
        yield "no part is blamed"

"""The report of an all-reduce: who took part, what each scope gave, who is blamed and why; for a person and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from gpuops.bandwidth import ExpectedBandwidth
from gpuops.collective.network_tests.rungs import NetworkFailure
from gpuops.isolation.evidence import Blame, BlamedPart, Evidence
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.remedies import fix_for
from gpuops.isolation.rounds import GroupResult, RankGroup
from gpuops.reasons import Excluded
from gpuops.report.heatmap import WELL, HeatMap, HeatmapRow, heat_map
from gpuops.report.heatmap import lines as map_lines
from gpuops.report.page import Page, clean, fold
from gpuops.secret import redact

SCHEMA = "gpuops.allreduce-report/1"
_PLAIN = Page()
_HEAD, _LABEL, _COUNT, _RATES = 8, 16, 9, 17
"""Columns: where the head's text begins, and the widths of a scope's label, count and figures."""
_MOST_APART = 4
_ALL_LOW = 0.85
"""The model is within 2 % of published runs, so less than this is no error of its own; yet nobody is accused by it."""


@dataclass(frozen=True)
class AllReduce:
    """What a measurement came to. ``excluded`` are the nodes that took no part, or none from some round on.

    ``engine`` measured, and ``why`` says why it was taken; ``settings`` may have changed the figures, by node in words.
    ``expect`` tells what a group should give. ``failures`` is what was wrong before the load.
    """

    evidence: Evidence
    blame: Blame
    engine: str
    why: str = ""
    excluded: Mapping[str, Excluded] = field(default_factory=dict)
    expect: Callable[[RankGroup], ExpectedBandwidth | None] = lambda _group: None
    settings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    failures: Sequence[NetworkFailure] = ()
    interrupted: bool = False


@dataclass(frozen=True)
class Line:
    """One scope: how many parts or groups were measured, how many are well, their GB/s, and what was expected."""

    label: str
    measured: int
    well: int
    low: float | None
    high: float | None
    expected: ExpectedBandwidth | None

    @property
    def all_low(self) -> bool:
        """Whether even the best is far below what is expected: then something is the matter with all alike."""
        return self.high is not None and self.expected is not None and self.high < _ALL_LOW * self.expected.gb_per_s


def render(report: AllReduce, page: Page = _PLAIN) -> str:
    """The report as lines of text: the pool and the scopes, then each part that is blamed, why, and what to do."""
    heat = heat_map(report.evidence)
    scopes = list(scope_lines(report, heat))
    blocks = [
        [*_head(report, page)],
        [text for line in scopes for text in page.labelled("", _scope(line), 0)],
        [*map_lines(heat, page)] if heat.rows and not heat.without_outlier(heat.nodes) else [],
        *([*_failed(failure, page)] for failure in report.failures),
        *([*_blamed(accusation, report.evidence.fabric, page)] for accusation in report.blame.blamed),
        [*_tail(report, [line for line in scopes if line.all_low], page)],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _head(report: AllReduce, page: Page) -> Iterator[str]:
    took_part = len(report.evidence.fabric.nodes)
    by_reason: dict[str, list[str]] = {}
    for node, reason in report.excluded.items():
        by_reason.setdefault(clean(reason.why), []).append(node)
    pool = f"{took_part} of {took_part + len(report.excluded)} nodes"
    yield from page.labelled("pool", pool, _HEAD)
    for why, nodes in by_reason.items():
        yield from page.labelled("", f"not {clean(fold(nodes))}: {why}", _HEAD)
    yield from page.labelled("engine", clean("   ".join(filter(None, (report.engine, report.why)))), _HEAD)
    if report.settings:
        yield from page.labelled("", clean("; ".join(_folded(report.settings))), _HEAD)


def _folded(told: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """What all nodes have in common, then what sets some of them apart, unless that is too much for a line or two."""
    found = _settings(told)
    apart = {words: nodes for words, nodes in found.items() if len(nodes) < len(told)}
    yield from (words for words in found if words not in apart)
    if len(apart) > _MOST_APART:
        yield f"{len(apart)} settings are not the same everywhere: --json lists them"
    else:
        yield from (f"{words} ({fold(nodes)})" for words, nodes in apart.items())


def _settings(told: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The nodes that have each setting; what most have in common comes first."""
    found: dict[str, list[str]] = {}
    for node, settings in told.items():
        for words in settings:
            found.setdefault(words, []).append(node)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def scope_lines(report: AllReduce, heat: HeatMap) -> Iterator[Line]:
    """A line for nodes by themselves, for all rails together, for pairs of full nodes, and for each size of group."""
    within = [row for row in heat.rows if row.rail is None]
    rails = [row for row in heat.rows if row.rail is not None]
    if within:
        yield _parts("within nodes", within, report.expect(RankGroup(heat.nodes[:1])))
    if rails:
        yield _parts("rails", rails, report.expect(RankGroup(heat.nodes[:2], rail=rails[0].rail)))
    by_size: dict[int, list[GroupResult]] = {}
    for measured in report.evidence.rounds:
        for figure in measured.figures if measured.round.scope in {"pair", "group"} else ():
            by_size.setdefault(len(figure.group.nodes), []).append(figure)
    for size, figures in sorted(by_size.items()):
        yield _groups(size, figures, report.expect(figures[-1].group))


def _parts(label: str, rows: Sequence[HeatmapRow], expected: ExpectedBandwidth | None) -> Line:
    cells = [cell for row in rows for cell in row.cells.values()]
    return _line(label, len(cells), [cell.gb_per_s for cell in cells if cell.gb_per_s and cell.well], expected)


def _groups(size: int, figures: Sequence[GroupResult], expected: ExpectedBandwidth | None) -> Line:
    rates = [figure.gb_per_s for figure in figures if figure.gb_per_s is not None]
    label = "pairs of nodes" if size == 2 else f"group of {size}" if len(figures) == 1 else f"groups of {size}"
    return _line(label, len(figures), [rate for rate in rates if rate >= WELL * max(rates)], expected)


def _line(label: str, measured: int, rates: Sequence[float], expected: ExpectedBandwidth | None) -> Line:
    return Line(label, measured, len(rates), min(rates, default=None), max(rates, default=None), expected)


def _scope(line: Line) -> str:
    count = f"{line.well}/{line.measured}"
    low, high = f"{line.low or 0:.3g}", f"{line.high or 0:.3g}"
    rates = "nothing measured" if line.high is None else f"{low if low == high else f'{low}-{high}'} GB/s"
    guess = "" if line.expected is None or line.expected.may_fail else ", a guess"
    expected = f"expected {line.expected.gb_per_s:.3g}{guess}" if line.expected else ""
    return f"{line.label:<{_LABEL}}{count:<{_COUNT}}{rates:<{_RATES}} {expected}".rstrip()


def _blamed(accusation: BlamedPart, fabric: Fabric, page: Page) -> Iterator[str]:
    parts = [part_in_words(part, fabric) for part in (accusation.part, *accusation.alternatives)]
    yield from page.edges(clean(f"BLAMED  {' or '.join(parts)}"), accusation.kind)
    for sentence in accusation.evidence:
        yield from page.labelled("  ", clean(sentence), 2)
    yield from page.labelled("  do", clean(fix_for(accusation)), 6)


def _failed(failure: NetworkFailure, page: Page) -> Iterator[str]:
    yield from page.edges(clean(f"BEFORE THE LOAD  {' and '.join(failure.nodes)}"), failure.rung)
    yield from page.labelled("  ", clean(failure.why), 2)
    yield from page.labelled("  do", clean(failure.do), 6)


def part_in_words(part: str, fabric: Fabric) -> str:
    """A part as a person calls it: ``gpu017 mlx5_3 (rail 3)``, ``leaf L3 (gpu[001-016])``."""
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


def _tail(report: AllReduce, low: Sequence[Line], page: Page) -> Iterator[str]:
    blame = report.blame
    for line in low:
        yield from page.labelled("low", f"{line.label}: all of them; look for what the nodes have in common", 12)
    for pair in blame.contention:
        yield from page.labelled("contention", clean(f"{pair}: slow once and not again; nobody is accused"), 12)
    for why in blame.unclear:
        yield from page.labelled("unclear", clean(why), 12)
    if blame.suspects:
        yield from page.labelled("suspects", clean(f"{', '.join(blame.suspects)}: not confirmed"), 12)
    if report.interrupted:
        yield "interrupted before all rounds were run; this is what is known"
    elif not (blame.blamed or blame.unclear or blame.suspects):
        yield "nobody is blamed"


def document(report: AllReduce) -> dict[str, Any]:
    """The same as plain data; GB/s, secrets masked. ``matrix`` gives each node's best figure by rail."""
    heat = heat_map(report.evidence)
    return {
        "schema": SCHEMA,
        "engine": {"name": report.engine, "why": redact(report.why)},
        "settings": [{"setting": redact(words), "nodes": nodes} for words, nodes in _settings(report.settings).items()],
        "nodes": list(report.evidence.fabric.nodes),
        "left": {node: redact(reason.why) for node, reason in report.excluded.items()},
        "rounds": len(report.evidence.rounds),
        "scopes": [{**asdict(line), "all_low": line.all_low} for line in scope_lines(report, heat)],
        "accused": [_accused(accusation) for accusation in report.blame.blamed],
        "contention": list(report.blame.contention),
        "suspects": list(report.blame.suspects),
        "unclear": [redact(why) for why in report.blame.unclear],
        "interrupted": report.interrupted,
        "matrix": [
            {"rail": row.rail, "usual": row.usual, "gb_per_s": {n: cell.gb_per_s for n, cell in row.cells.items()}}
            for row in heat.rows
        ],
    }


def _accused(accusation: BlamedPart) -> dict[str, Any]:
    told = asdict(accusation)
    return {**told, "evidence": [redact(text) for text in accusation.evidence], "do": redact(fix_for(accusation))}

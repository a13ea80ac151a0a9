"""Text report of a measurement: the nodes that took part, the result of each scope, and the blamed parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from gpuops.collective.heat_map import heat_map
from gpuops.collective.measurement import Measurement
from gpuops.collective.network_tests.verdicts import NetworkFailure
from gpuops.collective.scope_lines import ScopeLine
from gpuops.report.all_reduce import blame
from gpuops.report.all_reduce.heatmap import lines as map_lines
from gpuops.report.page import Page, clean, fold_briefly, format_node_count

_PLAIN = Page()
_HEAD, _LABEL, _COUNT, _RATES = 8, 16, 9, 17
"""Columns: where the text of the head starts, and the widths of a scope's label, count and rates."""
_MOST_APART = 4
_MAX_REASONS, _MAX_FAILURES = 6, 4
_LIST = 120
"""Characters of a list of nodes."""


def render(measurement: Measurement, page: Page = _PLAIN) -> str:
    """Return the report as text: the pool and the scopes, then each blamed part with evidence and a fix."""
    heat = heat_map(measurement.evidence)
    scopes = measurement.scope_lines(heat)
    low = [line for line in scopes if line.all_low]
    blocks = [
        [*_head(measurement, page)],
        [text for line in scopes_in_words(scopes) for text in page.labelled("", line, 0)],
        [*map_lines(heat, page)] if heat.rows and not heat.without_outlier(heat.nodes) else [],
        *_failures(measurement.failures, page),
        *blame.blocks(measurement.blame, measurement.evidence.fabric, page),
        [*blame.tail(measurement.blame, page, low=low, interrupted=measurement.interrupted)],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _head(measurement: Measurement, page: Page) -> Iterator[str]:
    took_part = len(measurement.evidence.fabric.nodes)
    by_reason = _by_value({node: clean(reason.why) for node, reason in measurement.excluded.items()})
    pool = f"{took_part} of {format_node_count(took_part + len(measurement.excluded))}"
    yield from page.labelled("pool", pool, _HEAD)
    for why, nodes in list(by_reason.items())[:_MAX_REASONS]:
        yield from page.labelled("", f"without {clean(fold_briefly(nodes, _LIST))}: {why}", _HEAD)
    if len(by_reason) > _MAX_REASONS:
        rest = sum(map(len, list(by_reason.values())[_MAX_REASONS:]))
        yield from page.labelled("", f"without {rest} more, for other reasons: --json lists them", _HEAD)
    yield from page.labelled(
        "engine", clean("   ".join(filter(None, (measurement.engine, measurement.engine_why)))), _HEAD
    )
    if measurement.settings:
        yield from page.labelled("", clean("; ".join(_settings(measurement))), _HEAD)
    for why, nodes in _by_value(measurement.unread_counters).items():
        yield from page.labelled("", clean(f"counters not read on {fold_briefly(nodes, _LIST)}: {why}"), _HEAD)


def _by_value(words_by_node: Mapping[str, str]) -> dict[str, list[str]]:
    nodes_by_words: dict[str, list[str]] = {}
    for node, words in words_by_node.items():
        nodes_by_words.setdefault(words, []).append(node)
    return nodes_by_words


def _settings(measurement: Measurement) -> Iterator[str]:
    """Yield the settings that all nodes share, then the differing ones, or their number if there are too many."""
    by_setting = measurement.nodes_by_setting
    apart = {words: nodes for words, nodes in by_setting.items() if len(nodes) < len(measurement.settings)}
    yield from (words for words in by_setting if words not in apart)
    if len(apart) > _MOST_APART:
        yield f"{len(apart)} settings differ between nodes: --json lists them"
    else:
        yield from (f"{words} ({fold_briefly(nodes, _LIST)})" for words, nodes in apart.items())


def scopes_in_words(lines: Sequence[ScopeLine]) -> Iterator[str]:
    """Yield how many parts of each scope are healthy, their rates, and what was expected."""
    counts = [f"{line.well}/{line.measured} " for line in lines]
    width = max([_COUNT, *map(len, counts)])
    for line, count in zip(lines, counts, strict=True):
        low, high = f"{line.low or 0:.3g}", f"{line.high or 0:.3g}"
        rates = "none healthy" if line.high is None else f"{low if low == high else f'{low}-{high}'} GB/s"
        guess = "" if line.expected is None or line.expected.may_fail else ", a guess"
        expected = f"expected {line.expected.gb_per_s:.3g}{guess}" if line.expected else ""
        yield f"{line.label:<{_LABEL}}{count:<{width}}{rates:<{_RATES}} {expected}".rstrip()


def _failures(failures: Sequence[NetworkFailure], page: Page) -> Iterator[list[str]]:
    """Yield a block for each failed test, but for many failures only the first of them and their number."""
    yield from ([*_failed(failure, page)] for failure in failures[:_MAX_FAILURES])
    if len(failures) > _MAX_FAILURES:
        rest = Counter(failure.test for failure in failures[_MAX_FAILURES:])
        yield [f"and {count} more failures of {test}: --json lists the nodes" for test, count in rest.items()]


def _failed(failure: NetworkFailure, page: Page) -> Iterator[str]:
    yield from page.edges(clean(f"NETWORK TEST FAILED  {' and '.join(failure.nodes)}"), failure.test)
    yield from page.labelled("  ", clean(failure.why), 2)
    yield from page.labelled("  do", clean(failure.do), 6)

"""Text report of NVLink SHARP and SHARP, with and without each: nodes with the same result are one entry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuops.collective.sharp import SETTINGS, Comparison, Feature, Repeats, SharpComparison
from gpuops.report.page import Page, clean, fold

_HEAD = 8
_TITLES: tuple[tuple[Feature, str], ...] = (("nvls", "NVLink SHARP within nodes"), ("sharp", "SHARP between nodes"))


def lines(result: SharpComparison, page: Page) -> Iterator[str]:
    """Yield the head, then for each feature its settings and an entry for the nodes with the same result."""
    yield from page.labelled("engine", clean(f"{result.engine}   {result.engine_why}".rstrip()), _HEAD)
    for why, nodes in _by_reason(result).items():
        yield from page.labelled("", f"without {clean(fold(nodes))}: {clean(why)}", _HEAD)
    for failure in result.failures:
        yield from page.labelled("FAILED", clean(f"{' and '.join(failure.nodes)}: {failure.why}"), _HEAD)
        yield from page.labelled("  do", clean(failure.do), _HEAD)
    for feature, title in _TITLES:
        comparisons = result.of(feature)
        if comparisons:
            yield from ("", f"{title} ({_settings(feature)})")
        for same in _alike(comparisons):
            yield from _entry(same, page)
    if result.interrupted:
        yield from ("", "interrupted before all runs had ended; this result is incomplete")
    elif not result.comparisons:
        yield from ("", "nothing was compared: that takes a node with several GPUs, or several nodes")


def _by_reason(result: SharpComparison) -> dict[str, list[str]]:
    nodes: dict[str, list[str]] = {}
    for node, reason in result.excluded.items():
        nodes.setdefault(reason.why, []).append(node)
    return nodes


def _settings(feature: Feature) -> str:
    on, off = SETTINGS[feature]
    (name,) = on
    return f"on: {name}={on[name]}, off: {off[name]}"


def _alike(comparisons: Sequence[Comparison]) -> Iterator[list[Comparison]]:
    """Yield the comparisons with the same words, faults first."""
    by_words: dict[tuple[object, ...], list[Comparison]] = {}
    for each in sorted(comparisons, key=lambda each: not each.is_fault):
        by_words.setdefault((each.status, each.why, each.do, _algorithms(each)), []).append(each)
    yield from by_words.values()


def _algorithms(comparison: Comparison) -> tuple[str, ...]:
    return tuple(runs.algorithm if runs else "" for runs in (comparison.on, comparison.off))


def _entry(same: Sequence[Comparison], page: Page) -> Iterator[str]:
    first = same[0]
    nodes = fold(node for each in same for node in each.nodes)
    yield from page.edges(clean(f"  {nodes}"), first.status.replace("-", " "))
    measured = [each for each in same if each.ratio is not None]
    if measured:
        on, off = [each.on for each in same if each.on], [each.off for each in same if each.off]
        yield from page.labelled("", f"on {_rates(on)}, off {_rates(off)}: {_ratio(measured)}", 4)
    if first.why:
        yield from page.labelled("", clean(first.why), 4)
    if first.do:
        yield from page.labelled("    do", clean(first.do), 8)


def _rates(runs: Sequence[Repeats]) -> str:
    rates = [rate for each in runs for rate in each.gb_per_s]
    low, high = f"{min(rates):.3g}", f"{max(rates):.3g}"
    algorithm = f" ({runs[0].algorithm})" if runs[0].algorithm else ""
    return f"{low if low == high else f'{low}-{high}'} GB/s{algorithm}"


def _ratio(measured: Sequence[Comparison]) -> str:
    ratios = [each.ratio for each in measured if each.ratio is not None]
    low, high = f"{min(ratios):.2f}", f"{max(ratios):.2f}"
    expected = {_expected(each) for each in measured if all(each.expected)}
    beside = f", expected {' or '.join(sorted(expected))}" if expected else ""
    return f"{low if low == high else f'{low}-{high}'} times{beside}"


def _expected(comparison: Comparison) -> str:
    values = zip(("on", "off"), comparison.expected, strict=True)
    rates = [f"{word} {each.gb_per_s:.3g}{'' if each.may_fail else ' (a guess)'}" for word, each in values if each]
    return f"{', '.join(rates)}: {comparison.expected_ratio or 0:.2f}"

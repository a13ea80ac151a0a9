"""Text report of a sweep: a row for each size, the crossover from latency to bandwidth, and a chart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuops.collective.crossover import Crossover, crossover_of
from gpuops.collective.engines import Curve, Point
from gpuops.collective.sweep import SweepResult, typical
from gpuops.report.page import Page, clean, fold, format_node_count
from gpuops.report.sweep.chart import LogChart, format_size

_HEAD = 12
_MOST_LISTED = 4


def lines(result: SweepResult, page: Page) -> Iterator[str]:
    """Yield the head, the table, the crossover and the chart; then what has no complete curve, and why."""
    yield from _head(result, page)
    complete = result.complete or result.curves[:1]  # a curve that broke off shows at least how far it came
    points = typical(complete)
    if points:
        yield from ("", *_table(points, complete))
        crossover = crossover_of(points)
        if crossover:
            yield from ("", *_crossover(crossover, page), *_expected(result, page))
            yield from ("", *_chart(points, crossover, page))
    yield from _tail(result, page)


def _head(result: SweepResult, page: Page) -> Iterator[str]:
    what = "all together" if result.scope == "group" else "each by itself"
    yield from page.labelled(
        "nodes", clean(f"{format_node_count(len(result.nodes))}, {what}: {fold(result.nodes)}"), _HEAD
    )
    for why, nodes in _by_reason(result).items():
        yield from page.labelled("", f"without {clean(fold(nodes))}: {clean(why)}", _HEAD)
    yield from page.labelled("operation", result.operation, _HEAD)
    yield from page.labelled("engine", clean(f"{result.engine}   {result.engine_why}".rstrip()), _HEAD)


def _by_reason(result: SweepResult) -> dict[str, list[str]]:
    nodes: dict[str, list[str]] = {}
    for node, reason in result.excluded.items():
        nodes.setdefault(reason.why, []).append(node)
    return nodes


def _table(points: Sequence[Point], curves: Sequence[Curve]) -> Iterator[str]:
    """Yield the rows; of several curves, the medians and the lowest and the highest bus bandwidth."""
    several = len(curves) > 1
    last = "lowest - highest" if several else "algorithm" if any(point.algorithm for point in points) else ""
    yield f"{'size':>10}{'time':>12}{'algbw':>12}{'busbw':>12}   {last}".rstrip()
    yield f"{'':>10}{'us':>12}{'GB/s':>12}{'GB/s':>12}" + (f"   of {len(curves)} nodes, GB/s" if several else "")
    for point in points:
        rates = [each.gb_per_s for curve in curves for each in curve.points if each.size_bytes == point.size_bytes]
        beside = f"{min(rates):.4g} - {max(rates):.4g}" if several else point.algorithm
        cells = (f"{value:>12.4g}" for value in (point.algbw_gb_per_s, point.gb_per_s))
        yield f"{format_size(point.size_bytes):>10}{_time(point):>12}{''.join(cells)}   {beside}".rstrip()


def _time(point: Point) -> str:
    microseconds = point.seconds * 1e6
    return f"{microseconds:.0f}" if microseconds >= 1000 else f"{microseconds:.4g}"


def _crossover(crossover: Crossover, page: Page) -> Iterator[str]:
    peak = f"{crossover.peak_gb_per_s:.4g} GB/s bus bandwidth at {format_size(crossover.peak_size_bytes)}"
    rising = "" if crossover.is_peak_reached else "; it still rises there, so the true peak is higher: use --max-size"
    yield from page.labelled("peak", peak + rising, _HEAD)
    if crossover.half_size_bytes is None:
        yield from page.labelled("crossover", "below the smallest size: even that reaches half of the peak", _HEAD)
    else:
        size = format_size(crossover.half_size_bytes)
        text = f"half of the peak at {size}: latency decides below, bandwidth above"
        yield from page.labelled("crossover", text, _HEAD)
    fit = crossover.fit
    if fit is None:
        yield from page.labelled("model", "these times do not fit alpha + size / B", _HEAD)
        return
    terms = f"{fit.alpha_seconds * 1e6:.3g} us + size / {fit.algbw_gb_per_s:.3g} GB/s"
    yield from page.labelled("model", f"time = {terms}, within {100 * fit.error:.0f} % of every time", _HEAD)
    half = f"n½ = {fit.alpha_seconds * 1e6:.3g} us · {fit.algbw_gb_per_s:.3g} GB/s = {format_size(fit.half_size_bytes)}"
    yield from page.labelled("", half, _HEAD)


def _chart(points: Sequence[Point], crossover: Crossover, page: Page) -> Iterator[str]:
    pairs = [(float(point.size_bytes), point.gb_per_s) for point in points]
    factor = points[-1].gb_per_s / points[-1].algbw_gb_per_s
    fit, half = crossover.fit, crossover.half_size_bytes
    marks = ("* measured", ". model" if fit else "", "| half of the peak" if half else "")
    yield f"busbw, GB/s    {'   '.join(filter(None, marks))}"
    line = (lambda size: size / fit.seconds(size) / 1e9 * factor) if fit else None
    yield from LogChart.over(pairs, min(page.width, 80)).lines(pairs, line, half)


def _tail(result: SweepResult, page: Page) -> Iterator[str]:
    """Yield what has no complete curve, and why."""
    for failure in result.failures:
        yield from ("", *page.labelled("FAILED", clean(f"{' and '.join(failure.nodes)}: {failure.why}"), _HEAD))
        yield from page.labelled("  do", clean(failure.do), _HEAD)
    for curve in (curve for curve in result.curves if curve.trouble):
        reached = f"; the last complete size is {format_size(curve.points[-1].size_bytes)}" if curve.points else ""
        missing = f" ({', '.join(curve.absent)} did not arrive)" if curve.absent else ""
        what = f"{fold(curve.sweep.group.nodes)}: {curve.trouble}{missing}: {curve.detail}{reached}"
        yield from ("", *page.labelled("unknown", clean(what), _HEAD))
    if result.interrupted:
        yield from ("", "interrupted before all sizes had run; this result is incomplete")
    elif not result.curves:
        why = "a group needs at least two nodes; use --scope node" if result.nodes else "no node is left"
        yield from ("", f"nothing was measured: {why}")


def _expected(result: SweepResult, page: Page) -> Iterator[str]:
    texts: dict[str, list[str]] = {}
    for group, expected in result.expected.items():
        guess = "" if expected.may_fail else ", a guess"
        text = f"{expected.gb_per_s:.3g} GB/s at {format_size(expected.size_bytes)}{guess}"
        texts.setdefault(text, []).extend(group.nodes)
    for text, nodes in texts.items():
        where = f" ({clean(fold(nodes))})" if len(texts) > 1 else ""
        yield from page.labelled("expected", text + where, _HEAD)

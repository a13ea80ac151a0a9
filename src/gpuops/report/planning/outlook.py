"""Text of what slow parts cost a job, and of what failures make of it: its checkpoints, its spares and its end."""

from __future__ import annotations

from collections.abc import Iterator

from gpuops.errors import format_count
from gpuops.planner.finishing import Finish
from gpuops.planner.price import Price
from gpuops.report.page import Page, clean
from gpuops.results.layout_plan import Outlook

_LEAST = 0.0005
"""The fraction of a step from which on a difference is shown: half of the last digit."""
_NEVER_DAYS = 3650.0
_HEADINGS = ("spares", "ends in", "runs", "trains", "checkpoints", "layout")
_DAY, _HOUR, _MINUTE = 86400.0, 3600.0, 60.0


def price_lines(prices: tuple[Price, ...], page: Page) -> Iterator[str]:
    """Yield what each slow part costs."""
    for price in prices:
        yield from page.labelled("", _priced(price), 0)


def lines(outlook: Outlook, page: Page, *, every: bool = False) -> Iterator[str]:
    """Yield how often the job fails, what that costs and when it ends; with ``every``, for each number of spares."""
    yield from page.labelled("", _failures(outlook), 0)
    if outlook.finishes:
        yield from page.labelled("", _end(outlook), 0)
        if every and len(outlook.finishes) > 1:
            yield ""
            yield from page.columns([_HEADINGS, *map(_row, outlook.finishes)])


def _priced(price: Price) -> str:
    part, more = price.part, 100 * price.fraction
    costs = "costs this job" if price.is_used else "is left out; it would cost this job"
    found = f"{part.name} at {part.gb_per_s:.3g} of {part.expected_gb_per_s:.3g} GB/s {costs}"
    if price.fraction < _LEAST:
        return clean(f"{found} nothing: other links and the GPUs take the time.")
    times = f"{step(price.step_seconds)} instead of {step(price.healthy_seconds)}"
    return clean(f"{found} {more:.{1 if more < 10 else 0}f} % a step ({times}).")


def _failures(outlook: Outlook) -> str:
    job, result = outlook.job, outlook.goodput
    often = f"On average a failure stops this job every {span(job.mean_seconds_between_failures)} ({job.rate.source})."
    best = f"A checkpoint of {span(job.checkpoint_seconds)} every {span(result.interval_seconds)} loses least"
    left = f"{100 * result.effective:.1f} % of the time trains, with restarts of {span(job.restart_seconds)}"
    return clean(f"{often} {best}: {left}.")


def _end(outlook: Outlook) -> str:
    first, work = outlook.finishes[0], _amount(outlook.tokens)
    alone = next((each for each in outlook.finishes if not each.spares), None)
    text = f"{work} take {_days(first.days)} with {_spares(first)}: {first.estimate.layout}."
    if len(outlook.finishes) == 1 and first.nodes > 1:
        return clean(f"{text} No layout of fewer nodes was found, so none can be a spare.")
    if alone is None or alone is first:
        return clean(text)
    waits = f"the job then waits {100 * (1 - alone.goodput.running):.0f} % of the time for repairs"
    return clean(f"{text} Without a spare, {_days(alone.days)}: {waits}, {span(outlook.job.repair_seconds)} each.")


def _amount(tokens: float) -> str:
    for unit, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if tokens >= unit:
            return f"{tokens / unit:.3g} {name} tokens"
    return f"{tokens:.0f} tokens"


def _spares(each: Finish) -> str:
    if not each.spares:
        return "no spare"
    nodes = format_count(each.nodes + each.spares, "node")
    return f"{each.spares} of {nodes} as {'a spare' if each.spares == 1 else 'spares'}"


def _row(each: Finish) -> tuple[str, ...]:
    result = each.goodput
    shares = (f"{100 * result.running:.1f} %", f"{100 * result.trained:.1f} %")
    return (str(each.spares), _days(each.days), *shares, span(result.interval_seconds), str(each.estimate.layout))


def _days(days: float) -> str:
    return span(days * _DAY) if days < _NEVER_DAYS else "more than ten years"


def span(seconds: float) -> str:
    """Return a span of time in the largest unit of which it has at least two, with two or three digits."""
    for unit, name in ((_DAY, "days"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.{1 if seconds < 100 * unit else 0}f} {name}".replace(".0 ", " ")
    return f"{seconds:.0f} s"


def step(seconds: float) -> str:
    """Return the duration of a step."""
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.2f} s" if seconds < 100 else f"{seconds:.0f} s"

"""Text report of expected all-reduce bandwidth: each figure with its formula, and the sources below."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuops.bandwidth import ExpectedBandwidth
from gpuops.report.page import Page, clean, fold, format_node_count
from gpuops.results.expectation import HostClass
from gpuops.trends.baselines import Baseline

_CARRIERS = {
    "rail": "one GPU and one NIC of each node",
    "ring": "ring",
    "tree": "tree",
    "nvls": "NVLink SHARP",
    "sharp": "SHARP, also in the network",
    "measured": "as measured with this many ranks",
    "pairs": "transfers between pairs of ranks",
}
_GUESSES = (
    "? is a guess: it can warn about a node but never fail it. e is the efficiency of the network, "
    "which an all-reduce between nodes measures."
)
_WHAT, _FORMULA = 19, 32


def lines(classes: Iterable[HostClass], page: Page) -> Iterator[str]:
    """Yield the figures of each class with their formulas, then the sources of their numbers."""
    classes = list(classes)
    for number, each in enumerate(classes):
        yield from [""] if number else []
        yield from page.labelled("", _heading(each), 0)
        for what, own in each.measured.items():
            yield from page.labelled(f"{what:<{_WHAT}}{own.gb_per_s:>5.0f} GB/s ", _told(own), _FORMULA)
        for what, expected in each.figures.items():
            yield from _figure(what, expected, page)
        for term in dict.fromkeys((term.name, term.source, term.grade) for term in each.caps):
            yield from page.labelled(f"{term[0]:>9}", clean(f"{term[1]} ({term[2]})"), 11)
    if any(expected and not expected.may_fail for each in classes for expected in each.figures.values()):
        yield ""
        yield from page.labelled("", _GUESSES, 0)


def _heading(each: HostClass) -> str:
    nodes = format_node_count(len(each.hosts))
    nics = f", {each.nics} NICs" if each.nics else ", no NIC for GPUs"
    return clean(f"{fold(each.hosts)}   {nodes}   {each.profile}, {each.gpus} GPUs{nics}")


def _told(own: Baseline) -> str:
    days = f"{own.oldest:%Y-%m-%d}" + (f" to {own.newest:%Y-%m-%d}" if own.newest.date() != own.oldest.date() else "")
    return f"measured here: median of {own.count}, spread {own.spread_gb_per_s:.1f} GB/s, {days}"


def _figure(what: str, expected: ExpectedBandwidth | None, page: Page) -> Iterator[str]:
    if expected is None:
        yield from page.labelled(f"{what:<{_WHAT}}", "unknown: the profile lacks the values", _WHAT + 2)
        return
    label = f"{what:<{_WHAT}}{expected.gb_per_s:>5.0f} GB/s{' ' if expected.may_fail else '?'}"
    for sentence in _formulas(expected):
        yield from page.labelled(label, sentence, _FORMULA)
        label = ""


def _formulas(expected: ExpectedBandwidth) -> Iterator[str]:
    """Yield each cap, the limiting one first; if there are several, also their figures and what carries the data."""
    if len(expected.terms) == 1:
        yield f"{expected.limit}: {expected.terms[0].sum}"
        return
    for term in sorted(expected.terms, key=lambda term: term.gb_per_s):
        yield f"{term.name} {term.gb_per_s:.0f} = {term.sum}"
    yield f"by {_CARRIERS[expected.algorithm]}"

"""What changed between runs, as text: new findings, those that are gone, and how long the others last."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence

from gpuops.errors import format_count
from gpuops.report.page import Page, clean, fold
from gpuops.store.records import FLEET, Changes, KeptFinding

_KIND_WIDTH = 12
_MOST = 12
_LONG = dt.timedelta(days=1)


def lines(changes: Changes, number: int | None, page: Page) -> Iterator[str]:
    """Yield the comparison with the runs before: a summary, then new and gone findings, a line each."""
    if changes.since is None:
        yield f"saved as run {number}, the first validation of these nodes"
        return
    began = f"{changes.since.began:%Y-%m-%d %H:%M}"
    counts = ", ".join(
        f"{len(found)} {kind}"
        for kind, found in (("new", changes.new), ("continuing", changes.continuing), ("gone", changes.gone))
    )
    unseen = f", {len(changes.unseen)} not looked at again" if changes.unseen else ""
    yield from page.labelled("", f"since run {changes.since.number} ({began} UTC): {counts}{unseen}", 0)
    for node, former in changes.renamed.items():
        yield from page.labelled(f"  {'name':<{_KIND_WIDTH - 2}}", clean(f"{former} is now named {node}"), _KIND_WIDTH)
    for kind, found in (("new", changes.new), ("gone", changes.gone)):
        yield from _listed(kind, found, page)
    if changes.no_longer_assessed:
        names = fold(changes.no_longer_assessed)
        yield from page.labelled(f"  {'unknown':<{_KIND_WIDTH - 2}}", f"{names}, assessed before", _KIND_WIDTH)
    yield from _longest(changes.continuing, page)


def _listed(kind: str, findings: Sequence[KeptFinding], page: Page) -> Iterator[str]:
    nodes_by_text: dict[str, list[str]] = {}
    for finding in findings:
        own = [finding.key.node] if finding.key.node != FLEET else finding.nodes
        nodes_by_text.setdefault(_text(finding, kind), []).extend(own)
    for text, nodes in list(nodes_by_text.items())[:_MOST]:
        where = fold(nodes) or "fleet"
        yield from page.labelled(f"  {kind:<{_KIND_WIDTH - 2}}", clean(f"{where} {text}"), _KIND_WIDTH)
    if len(nodes_by_text) > _MOST:
        yield f"  {kind:<{_KIND_WIDTH - 2}}{len(nodes_by_text) - _MOST} more: --json lists them"


def _text(finding: KeptFinding, kind: str) -> str:
    what = f"{finding.key.part} {finding.key.check}"
    if kind == "new":
        return what  # its words are above
    return f"{what}, seen in {format_count(finding.times, 'run')} since {finding.first_at:%Y-%m-%d %H:%M}"


def _longest(findings: Iterable[KeptFinding], page: Page) -> Iterator[str]:
    """Yield the finding that lasts longest, if it lasts longer than a day."""
    old = sorted(findings, key=lambda finding: finding.first_at)
    if old and old[0].last_at - old[0].first_at > _LONG:
        days = (old[0].last_at - old[0].first_at).days
        where = f"{old[0].key.node or 'fleet'} {old[0].key.part} {old[0].key.check}"
        text = clean(f"{where}: {format_count(days, 'day')}, {format_count(old[0].times, 'run')}")
        yield from page.labelled(f"  {'longest':<{_KIND_WIDTH - 2}}", text, _KIND_WIDTH)

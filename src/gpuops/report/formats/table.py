"""Health report as text: the verdict first, then each fault with its fix, equal answers folded."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from gpuops.errors import format_count
from gpuops.judging import SEVERITIES, Finding, Severity, Verdict
from gpuops.proposal import propose_again
from gpuops.report.finding import comparison
from gpuops.report.page import Page, clean, fold, format_node_count
from gpuops.report.past.changes import lines as change_lines
from gpuops.report.set_aside import lines as lines_set_aside
from gpuops.results.health import STATUSES, HostReport, Report, format_exclusion

SUFFIX = ".txt"
_PLAIN = Page()
_STATUS_INDENT = 13
_FINDING_INDENT = 18
_HINT_COLUMN = 42
_MAX_EFFECTS = 6
_NODE = "\0"  # replaces a node's name, so that equal texts of several nodes fold; `clean` escapes any other

K = TypeVar("K")
V = TypeVar("V")


def render(report: Report, page: Page = _PLAIN) -> str:
    """Return the whole report: about four lines if nothing is wrong, readable without colour."""
    blocks = [["", *_block_lines(block, page)] for block in _blocks(report)]
    tail = list(_tail(report, page))
    lines = [
        *_head(report, page),
        *_unmatched(report, page),
        *_statuses(report, page),
        *(line for block in blocks for line in block),
    ]
    return "\n".join([*lines, *([""] if blocks and tail else []), *tail]) + "\n"


def _head(report: Report, page: Page) -> Iterator[str]:
    run = report.run
    clock = run.started_at.astimezone(dt.timezone.utc)
    words = [f"gpuops {run.version}", clean(run.inventory), format_node_count(len(report.hosts)), f"level {run.level}"]
    return page.labelled("", "   ".join([*words, f"{run.seconds:.1f} s", f"{clock:%H:%M:%S} UTC"]), 0)


def _unmatched(report: Report, page: Page) -> Iterator[str]:
    """Yield what could not be judged because no profile has the numbers, a sentence for each kind of machine."""
    for each in report.unmatched:
        was = "was" if len(each.checks) == 1 else "were"
        skipped = f"{format_count(len(each.checks), 'check')} with numbers {was} skipped"
        nodes = each.hosts[0] if len(each.hosts) == 1 else format_node_count(len(each.hosts))
        do = f"to learn one: {each.do}" if each.do else "name one in the inventory (profile: NAME)"
        yield from page.labelled("", clean(f"no profile matches {nodes} ({each.kind}): {skipped}; {do}"), 0)


def _statuses(report: Report, page: Page) -> Iterator[str]:
    for status in STATUSES:
        hosts = [host for host in report.hosts if host.status == status]
        lead = f"{status.upper():<7}{len(hosts):>4}  "
        for reasons in _grouped(
            (_without_detail(_reason(host)), (host.name, _reason(host))) for host in hosts
        ).values():
            names, texts = zip(*reasons, strict=True)
            first, *more = _with_reason(fold(names), _common(texts), lead, page)
            yield page.paint(first[:7]) + first[7:]
            yield from more
            lead = ""


def _with_reason(names: str, reason: str, lead: str, page: Page) -> Iterator[str]:
    """Return the lines of ``names``, with ``reason`` right of a few names or below many."""
    label = f"{lead:<{_STATUS_INDENT}}{names:<10}  "
    if len(label) <= page.width // 2:
        return page.labelled(label, reason, len(label))
    below = page.labelled("", reason, _STATUS_INDENT + 2) if reason else ()
    return iter([*page.labelled(lead, names, _STATUS_INDENT), *below])


def _reason(host: HostReport) -> str:
    """Return why a node is unknown or skipped; empty if it was judged."""
    if host.excluded is not None:
        return clean(format_exclusion(host.excluded))
    if host.status == "unknown":
        blind = host.required_unknown
        checks = [v.check for v in blind if v.why == blind[0].why]
        others = f" (and {len(blind) - len(checks)} more checks)" if len(checks) < len(blind) else ""
        return clean(f"{', '.join(checks)}: {blind[0].why}{others}")
    return clean(f"nothing to judge: {host.verdicts[0].why}") if host.status == "skipped" else ""


@dataclass(frozen=True)
class _FoldedFinding:
    """Finding without its node's name, so that equal findings of many nodes become one."""

    check: str
    severity: Severity
    message: str
    comparison: str
    effects: tuple[str, ...]
    fix: str


@dataclass(frozen=True)
class _Block:
    """Findings about the same part of some nodes."""

    hosts: tuple[str, ...]
    label: str
    findings: tuple[_FoldedFinding, ...]

    @property
    def severity(self) -> Severity:
        return max((finding.severity for finding in self.findings), key=SEVERITIES.index)

    @property
    def where(self) -> str:
        return fold(self.hosts) if any(self.hosts) else "all nodes"


def _blocks(report: Report) -> list[_Block]:
    """Fold equal findings over nodes, then over parts; the most severe come first, else in inventory order."""
    by_part = _grouped(((_folded(finding), clean(finding.part)), finding) for finding in report.findings)
    by_hosts = _grouped(
        ((folded, tuple(dict.fromkeys(h for f in findings for h in _hosts(f)))), (part, _common(map(_label, findings))))
        for (folded, part), findings in by_part.items()
    )
    by_place = _grouped(
        ((hosts, tuple(part for part, _ in parts)), (folded, parts[0][1]))
        for (folded, hosts), parts in by_hosts.items()
    )
    blocks = [_block(hosts, parts, *zip(*folded, strict=True)) for (hosts, parts), folded in by_place.items()]
    return sorted(blocks, key=lambda block: SEVERITIES.index(block.severity), reverse=True)


def _block(
    hosts: tuple[str, ...], parts: tuple[str, ...], findings: tuple[_FoldedFinding, ...], labels: tuple[str, ...]
) -> _Block:
    """Return a block; a single part has its longest label, several have the folded set of their names."""
    return _Block(hosts, max(labels, key=len) if len(parts) == 1 else fold(parts), findings)


def _folded(finding: Finding) -> _FoldedFinding:
    def nameless(text: str) -> str:
        name = rf"(?<![\w.-]){re.escape(finding.host)}(?![\w-])"
        return re.sub(name, _NODE, clean(text)) if finding.host else clean(text)

    return _FoldedFinding(
        finding.check,
        finding.severity or "fail",
        nameless(finding.message),
        nameless(comparison(finding)),
        tuple(map(nameless, finding.effects)),
        nameless(finding.fix),
    )


def _hosts(finding: Finding) -> tuple[str, ...]:
    """Return the host of a finding, or those that share it."""
    return (finding.host,) if finding.host or not finding.hosts else finding.hosts


def _label(finding: Finding) -> str:
    return clean(finding.part_label or finding.part)


def _block_lines(block: _Block, page: Page) -> Iterator[str]:
    yield from page.edges(f"{block.where}  {block.label}", block.severity)
    for finding in block.findings:
        effects = (f"{'explains: ' if i == 0 else '':10}{effect}" for i, effect in enumerate(_few(finding.effects)))
        label = f"  {finding.check}"
        for line in filter(None, (finding.message, finding.comparison, *effects)):
            yield from page.labelled(label, line.replace(_NODE, block.where), _FINDING_INDENT)
            label = ""
    for fix in dict.fromkeys(finding.fix for finding in block.findings if finding.fix):
        yield from page.labelled("  do", fix.replace(_NODE, block.where), _FINDING_INDENT)


def _few(effects: Sequence[str]) -> Sequence[str]:
    """Return the first effects, and how many more there are: a finding that many nodes share has one for each."""
    hidden = len(effects) - _MAX_EFFECTS
    return effects if hidden <= 0 else (*effects[:_MAX_EFFECTS], f"and {hidden} more: --json lists them")


def _tail(report: Report, page: Page) -> Iterator[str]:
    """Yield what was not judged, and the command that would judge it."""
    for level, names in report.not_run.items():
        yield from _hint(f"not run: {', '.join(names)}", propose_again("validate", "--level", level), page)
    on_top = {(host.name, v.check) for host in report.hosts if host.status == "unknown" for v in host.required_unknown}
    blind = [v for host in report.hosts for v in host.unknown if (host.name, v.check) not in on_top]
    without_root = [v for v in blind if v.needs_root]
    if without_root:
        checks, nodes = sorted({v.check for v in without_root}), len({v.node for v in without_root})
        need = "check needs" if len(checks) == 1 else "checks need"
        yield from _hint(f"{len(checks)} {need} root on {format_node_count(nodes)}", "gpuops sudoers", page)
        yield from page.labelled("  ", ", ".join(checks), len("  "))
    for line in _unknowns(v for v in blind if not v.needs_root):
        yield from page.labelled("unknown: ", line, len("unknown: "))
    yield from lines_set_aside(report, page)
    if report.changes:
        yield from change_lines(report.changes, report.number, page)
    if report.interrupted:
        yield from page.labelled("", "interrupted before all checks had run; this result is incomplete", 0)


def _hint(what: str, command: str, page: Page) -> Iterator[str]:
    """Yield both in columns, or below each other if they do not fit into one line."""
    line = f"{what:<{_HINT_COLUMN - 3}}   {command}"
    if len(line) <= page.width:
        yield line
    else:
        yield from page.labelled("", what, 0)
        yield from page.labelled("", command, 2)


def _unknowns(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """Yield a line per check; checks that are unknown on the same nodes for the same reasons share one."""
    by_check = _grouped((v.check, (v.node, clean(v.why))) for v in verdicts)
    by_reasons = _grouped((tuple(why_by_node), check) for check, why_by_node in by_check.items())
    for why_by_node, checks in by_reasons.items():
        reasons = [_common(whys) for whys in _grouped((_without_detail(why), why) for _, why in why_by_node).values()]
        more = f" (and {len(reasons) - 1} more reasons)" if len(reasons) > 1 else ""
        yield f"{', '.join(checks)} on {_brief(node for node, _ in why_by_node)}: {reasons[0]}{more}"


def _brief(names: Iterable[str]) -> str:
    """Return a few nodes by name, many as a count."""
    names = list(names)
    folded = fold(names)
    return folded if len(folded) <= 24 else format_node_count(len(names))


def _without_detail(text: str) -> str:
    """Return ``text`` without the final detail in parentheses, such as an address or a serial number."""
    return re.sub(r" \([^()]*\)$", "", text)


def _common(texts: Iterable[str]) -> str:
    """Return what the texts have in common; they differ at most in their detail."""
    different = list(dict.fromkeys(texts))
    return different[0] if len(different) == 1 else _without_detail(different[0])


def _grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of each key, both in their original order."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups

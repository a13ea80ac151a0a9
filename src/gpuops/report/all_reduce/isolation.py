"""Text report of an isolation on a fabric that a program measures."""

from __future__ import annotations

from collections.abc import Iterator

from gpuops.collective.expectations import Expectations
from gpuops.collective.heat_map import heat_map
from gpuops.collective.scope_lines import scope_lines
from gpuops.isolation import action_for, max_rounds
from gpuops.report.all_reduce import blame
from gpuops.report.all_reduce.measurement import scopes_in_words
from gpuops.report.page import Page, format_node_count
from gpuops.results.isolation import Isolation

_WIDTH = 12


def lines(isolation: Isolation, page: Page) -> Iterator[str]:
    """Yield the fabric, the result of each scope, the blamed parts, and what could not be judged."""
    evidence = isolation.evidence
    fabric = evidence.fabric
    about = f"{format_node_count(len(fabric.nodes))}, units {len(fabric.units)}, leaves {len(fabric.ports_of)}"
    rounds = f"{len(evidence.rounds)}, at most {max_rounds(fabric)} for this many nodes"
    # without profiles, only the rates of rails are expected, from the line rates of the ports
    scopes = [*scope_lines(evidence, heat_map(evidence), Expectations(fabric, {}).of_evidence(evidence))]
    low = [line for line in scopes if line.all_low]
    blocks = (
        [*page.labelled("fabric", about, _WIDTH), *page.labelled("rounds", rounds, _WIDTH)],
        [text for line in scopes_in_words(scopes) for text in page.labelled("", line, 0)],
        *blame.blocks(isolation.blame, fabric, page, action_for),
        [*blame.tail(isolation.blame, page, low=low, interrupted=isolation.interrupted)],
    )
    for number, block in enumerate(filter(None, blocks)):
        yield from ["", *block] if number else block

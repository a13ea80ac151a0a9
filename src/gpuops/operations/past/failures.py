"""How often nodes fail, by the store: what began to fail on a node that was watched before."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping

from gpuops.errors import LockedError, OutputError
from gpuops.planner.goodput import DAY, LLAMA_3, FailureRate, recorded_rate
from gpuops.store import Runs
from gpuops.store.records import KeptFinding
from gpuops.trends.lemons import episodes
from gpuops.trends.past import OWN_CHECKS, Failure
from gpuops.workspace import Workspace

_First = Mapping[str, dt.datetime]


def failure_rate(work: Workspace, nodes: Collection[str], gpus_per_node: int) -> FailureRate:
    """Return the rate at which these nodes failed, if the store has seen enough failures of them, else a published one.

    A failure is a check that began to fail on a node that an earlier run saw; those within a day are one.
    """
    if not nodes or work.nodes.source == "saved":
        return LLAMA_3
    try:
        with Runs(work.project.store_path, create=False) as runs:
            watched, findings = runs.watched(), runs.findings()
    except (OutputError, LockedError) as error:
        work.note(f"how often these nodes failed is unknown: {error}")
        return LLAMA_3
    first = {node: watched[node][0] for node in nodes if node in watched}
    days = sum((watched[node][1] - watched[node][0]).total_seconds() for node in first) / DAY
    failures = sum(len(episodes(of_node)) for of_node in _by_node(findings, first).values())
    return recorded_rate(failures, gpus_per_node * len(nodes), days / len(nodes)) or LLAMA_3


def _by_node(findings: Iterable[KeptFinding], first: _First) -> dict[str, list[Failure]]:
    """Return the failures of each node since its ``first`` run; judging over time is not counted."""
    now = dt.datetime.now(dt.timezone.utc)
    found: dict[str, list[Failure]] = {}
    for each in findings:
        node, check, slot, _ = each.key
        if each.status == "fail" and check not in OWN_CHECKS and node in first and each.first_at > first[node]:
            found.setdefault(node, []).append(Failure(each.first_at, each.gone_at or now, check, slot))
    return found

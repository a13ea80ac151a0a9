"""JSON documents of what the store holds: runs, findings over time, and what changed between two runs."""

from __future__ import annotations

import datetime as dt
from typing import Any

from gpuops.store.records import Changes, KeptFinding, RunSummary


def changes_document(changes: Changes) -> dict[str, Any]:
    """Return what changed since the runs before."""
    kinds = ("new", "continuing", "gone", "unseen")
    return {
        "since": run_document(changes.since) if changes.since else None,
        **{kind: [finding_document(finding) for finding in getattr(changes, kind)] for kind in kinds},
        "no_longer_assessed": list(changes.no_longer_assessed),
    }


def run_document(run: RunSummary) -> dict[str, Any]:
    """Return a run's summary."""
    return {
        "number": run.number,
        "verb": run.verb,
        "level": run.level,
        "began": _text(run.began),
        "seconds": round(run.seconds, 3),
        "conclusion": run.conclusion,
        "who": run.who,
        "command": run.command,
        "inventory": run.inventory,
        "nodes": run.nodes,
        "unhealthy": run.unhealthy,
        "findings": run.findings,
    }


def finding_document(finding: KeptFinding) -> dict[str, Any]:
    """Return a finding, with the runs and times between which it was there."""
    return {
        "host": finding.key.node or None,
        "hosts": list(finding.nodes),
        "check": finding.key.check,
        "part": finding.key.part,
        "code": finding.key.code,
        "status": finding.status,
        "severity": finding.severity,
        "message": finding.message,
        "fix": finding.fix,
        "first": {"run": finding.first_run, "at": _text(finding.first_at)},
        "last": {"run": finding.last_run, "at": _text(finding.last_at)},
        "times": finding.times,
        "gone": {"run": finding.gone_run, "at": _text(finding.gone_at)} if finding.gone_at else None,
    }


def _text(at: dt.datetime) -> str:
    return at.astimezone(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

"""JSON documents of what the store holds: runs, findings over time, and what changed between two runs."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from functools import singledispatch
from typing import Any

from gpuops.results.history import (
    Explanation,
    FailureRecord,
    FleetHistory,
    History,
    LinkHistory,
    NodeHistory,
    PartHistory,
    RunDetails,
    RunDiff,
)
from gpuops.results.plain import plain
from gpuops.store.records import Changes, KeptFinding, KeptPart, KeptRun


def changes_document(changes: Changes) -> dict[str, Any]:
    """Return what changed since the runs before."""
    kinds = ("new", "continuing", "gone", "unseen")
    return {
        "since": run_document(changes.since) if changes.since else None,
        **{kind: [finding_document(finding) for finding in getattr(changes, kind)] for kind in kinds},
        "no_longer_assessed": list(changes.no_longer_assessed),
        "renamed": dict(changes.renamed),
    }


def run_document(run: KeptRun) -> dict[str, Any]:
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


def diff_document(diff: RunDiff) -> dict[str, Any]:
    """Return two runs compared."""
    return {
        "schema": "gpuops.run-diff/1",
        "before": run_document(diff.before),
        "after": run_document(diff.after),
        "changes": changes_document(diff.changes),
        "statuses": {node: {"before": before, "after": after} for node, (before, after) in diff.statuses.items()},
        "moved": [part_document(part) for part in diff.moved],
        "only_before": list(diff.only_before),
        "only_after": list(diff.only_after),
        "checks_before": list(diff.checks_before),
        "checks_after": list(diff.checks_after),
        "swapped": diff.swapped,
    }


def part_document(part: KeptPart) -> dict[str, Any]:
    """Return a part in one slot."""
    return {
        **{name: getattr(part, name) for name in ("kind", "serial", "model", "node", "slot", "is_there")},
        "first": {"run": part.first_run, "at": _text(part.first_at)},
        "last": {"run": part.last_run, "at": _text(part.last_at)},
    }


@singledispatch
def history_document(history: History) -> dict[str, Any]:
    """Return a history; each kind has its own schema."""
    raise TypeError(history)


@history_document.register
def _(history: FleetHistory) -> dict[str, Any]:
    records = {kind: [_failures(each) for each in getattr(history, kind)] for kind in ("nodes", "parts", "models")}
    never = list(history.never_reached)
    return {"schema": "gpuops.fleet-history/1", "runs": history.runs, "never_reached": never, **records}


def _failures(record: FailureRecord) -> dict[str, Any]:
    rate = record.per_1000_days
    return {
        "name": record.name,
        "failures": record.failures,
        "days": record.days,
        "intervals_days": list(record.intervals_days),
        "median_days": record.median_days,
        "per_1000_days": dict(zip(("rate", "low", "high"), rate, strict=True)) if rate else None,
        "latest": record.latest,
    }


@history_document.register
def _(history: NodeHistory) -> dict[str, Any]:
    visits = [
        {
            "run": each.run,
            "at": _text(each.at),
            "verb": each.verb,
            "status": each.visit.status,
            "why": each.visit.why,
            "boot": each.visit.boot,
            "checks": dict(each.visit.checks),
            "figures": dict(each.visit.figures),
        }
        for each in history.visits
    ]
    parts = [part_document(part) for part in history.parts]
    findings = [finding_document(finding) for finding in history.findings]
    document = {"schema": "gpuops.node-history/1", "node": history.node, "renames": plain(history.renames)}
    document["findings"] = findings
    return {**document, "parts": parts, "visits": visits}


@history_document.register
def _(history: PartHistory) -> dict[str, Any]:
    return {
        "schema": "gpuops.part-history/1",
        "serial": history.serial,
        "slots": [part_document(part) for part in history.slots],
        "findings": [finding_document(finding) for finding in history.findings],
        "figures": {n: [{"at": _text(at), "value": v} for at, v in points] for n, points in history.figures.items()},
    }


@history_document.register
def _(history: LinkHistory) -> dict[str, Any]:
    measured = [
        {
            "run": each.run,
            "at": _text(each.at),
            "rail": each.link.rail,
            "gb_per_s": each.link.gb_per_s,
            "expected_gb_per_s": each.link.expected_gb_per_s,
        }
        for each in history.measured
    ]
    return {"schema": "gpuops.link-history/1", "a": history.a, "b": history.b, "measured": measured}


def run_details(run: RunDetails) -> dict[str, Any]:
    """Return one run with the status of each node, and its findings."""
    return {
        "schema": "gpuops.kept-run/1",
        "run": run_document(run.run),
        "nodes": {name: {"status": visit.status, "why": visit.why} for name, visit in run.visits.items()},
        "findings": [finding_document(finding) for finding in run.findings],
    }


def why_document(why: Explanation) -> dict[str, Any]:
    """Return all that is known of a node now."""
    latest = why.latest
    return {
        "schema": "gpuops.why/1",
        "node": why.node,
        "state": plain(why.event),
        "last_run": latest and {"run": latest.run, "status": latest.visit.status, "why": latest.visit.why},
        "standing": [finding_document(finding) for finding in why.standing],
        "gone": [finding_document(finding) for finding in why.gone],
        "parts": [part_document(part) for part in why.parts],
        "part_failures": {part.serial: failures for part, failures in why.part_failures},
        "tried": plain(why.tried),
        "fixes": plain(why.fixes),
        "renames": plain(why.renames),
    }


def to_json(document: Mapping[str, Any]) -> str:
    """Return a document as text, secrets masked."""
    return json.dumps(plain(document), indent=1)


def _text(at: dt.datetime) -> str:
    return at.astimezone(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

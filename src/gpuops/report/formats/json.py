"""The report as a JSON document, ``gpuops.report/1``, described by docs/report.schema.json."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Mapping
from typing import Any

from gpuops.judging import Verdict
from gpuops.results.health import Entry, HostReport, Report, Run, entries
from gpuops.secret import redact

SCHEMA = "gpuops.report/1"
"""Within one number, fields may be added; none changes its meaning or goes away."""
SUFFIX = ".json"


def render(report: Report) -> str:
    """The document as indented ASCII text, keys in the order of the schema."""
    return json.dumps(document(report), indent=2, allow_nan=False) + "\n"


def document(report: Report) -> dict[str, Any]:
    """The document as plain dicts, lists and scalars, secrets masked."""
    return {
        "schema": SCHEMA,
        "run": _run(report.run) | {"not_run": {level: list(names) for level, names in report.not_run.items()}},
        "summary": {"nodes": len(report.hosts), **report.summary, "findings": len(report.findings)},
        "hosts": {host.name: _host(host) for host in report.hosts},
        "findings": [_finding(entry) for entry in report.findings],
    }


def _run(run: Run) -> dict[str, Any]:
    return {
        "version": run.version,
        "started_at": run.started_at.astimezone(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "seconds": round(run.seconds, 3),
        "inventory": redact(run.inventory),
        "level": run.level,
        "command": redact(run.command),
    }


def _host(host: HostReport) -> dict[str, Any]:
    return {
        "status": host.status,
        "profile": host.profile or None,
        "error": None if host.error is None else redact(host.error),
        "skipped_why": None if host.skipped_why is None else redact(host.skipped_why),
        "findings": [_finding(entry) for entry in entries(host.verdicts)],
        "unknown": [_unknown(host, verdict) for verdict in host.unknown],
        "skipped": [{"check": v.check, "why": redact(v.why)} for v in host.verdicts if v.status == "skipped"],
        "passed": [v.check for v in host.verdicts if v.status == "pass"],
    }


def _unknown(host: HostReport, verdict: Verdict) -> dict[str, Any]:
    return {
        "check": verdict.check,
        "why": redact(verdict.why),
        "required": verdict.check in host.required,
        "needs_root": verdict.needs_root,
    }


def _finding(entry: Entry) -> dict[str, Any]:
    finding = entry.finding
    return {
        "check": entry.check,
        "code": finding.code,
        "scope": entry.scope,
        "host": entry.host or None,
        "part": redact(finding.part),
        "subject": redact(finding.part),  # its former name
        "label": redact(finding.part_label),
        "status": entry.status,
        "severity": finding.severity or "fail",
        "message": redact(finding.message),
        "measured": _plain(finding.found),
        "expected": _plain(finding.expected),
        "unit": finding.unit,
        "fix": redact(finding.fix),
        "effects": [redact(effect) for effect in finding.effects],
    }


def _plain(value: object) -> Any:
    """``value`` as JSON can say it; what it cannot is told as text."""
    if value is None or isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, Mapping):
        return {redact(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(item) for item in value), key=str)
    return redact(str(value))

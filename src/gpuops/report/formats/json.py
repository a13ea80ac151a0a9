"""Health report as a JSON document, ``gpuops.report/1``, described by docs/schemas/report-1.json."""

from __future__ import annotations

from gpuops.results.health import Report

SUFFIX = ".json"


def render(report: Report) -> str:
    """Return the document as indented ASCII text."""
    return report.to_json(indent=2) + "\n"

"""What the project's store knows of a node: its findings and parts over time, and the figures of its last visits."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence

from gpuops.bundle.contents import Contents, File, LeftOut
from gpuops.bundle.items import FIGURES, HISTORY
from gpuops.bundle.private import Private, cleaned_document
from gpuops.results.changes import finding_document
from gpuops.results.plain import plain
from gpuops.store import Runs
from gpuops.store.records import KeptVisit

_VISITS = 50
_SOURCE = "the project's store"


def history_of(runs: Runs, node: str, private: Private) -> Contents:
    """Return the node's history; if no run saw the node, that is what is left out."""
    visits = runs.visits(node, _VISITS)
    if not visits:
        why = "no run in the store saw this node"
        return Contents(left_out=(LeftOut(HISTORY, "absent", why), LeftOut(FIGURES, "absent", why)))
    document = {
        "node": node,
        "findings": [finding_document(finding) for finding in runs.findings(node)],
        "parts": [plain(part) for part in runs.parts_of(node)],
        "visits": [
            {"run": v.run, "at": plain(v.at), "verb": v.verb, "status": v.visit.status, "boot": v.visit.boot}
            for v in visits
        ],
    }
    text = json.dumps(cleaned_document(document, private), indent=1).encode()
    return Contents((File(HISTORY, text, _SOURCE), File(FIGURES, _figures(visits).encode(), _SOURCE)))


def _figures(visits: Sequence[KeptVisit]) -> str:
    table = io.StringIO()
    rows = csv.writer(table, lineterminator="\n")
    rows.writerow(("at", "run", "verb", "figure", "value"))
    for visit in visits:
        for name, value in sorted(visit.visit.figures.items()):
            rows.writerow((visit.at.isoformat(timespec="seconds"), visit.run, visit.verb, name, f"{value:.12g}"))
    return table.getvalue()

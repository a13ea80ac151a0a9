"""Text report and JSON document of a simulated trial: the injected faults and the blamed parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuops.isolation import max_rounds
from gpuops.isolation.cases import Case
from gpuops.isolation.trials import Trial
from gpuops.report.page import Page

_WIDTH = 12


def lines(trial: Trial, page: Page) -> Iterator[str]:
    """Yield the fabric, its faults and the blamed parts."""
    for label, text in _rows(trial):
        yield from page.labelled(label, text, _WIDTH)


def _rows(trial: Trial) -> Iterator[tuple[str, str]]:
    yield "fabric", _fabric(trial.case)
    for fault in trial.case.faults:
        yield "injected", str(fault)
    for blamed in trial.blame.blamed:
        parts = " or ".join((blamed.part, *blamed.alternatives))
        yield "BLAMED", f"{parts}: {blamed.kind}. {'; '.join(blamed.evidence)}"
    for fault in trial.missed:
        yield "missed", str(fault)
    for blamed in trial.false_positives:
        yield "wrong", f"{blamed.part} is healthy"
    for text in trial.blame.unclear:
        yield "unclear", text
    count = len(trial.blame.contention)
    pairs = "1 pair was" if count == 1 else f"{count} pairs were"
    yield "contention", f"{pairs} slow once but not again; no part is blamed" if count else "none"
    yield "rounds", f"{trial.rounds}, at most {max_rounds(trial.case.fabric)} for this many nodes"


def _fabric(case: Case) -> str:
    cabling, fabric = case.cabling, case.fabric
    leaves = "known" if case.mapped else "unknown"
    return (
        f"{cabling.nodes} nodes with {cabling.gpus} GPUs, units {len(fabric.units)}, leaves {len(fabric.ports_of)} "
        f"({leaves}), oversubscription {cabling.oversubscription:g}"
    )


def document(trial: Trial) -> dict[str, Any]:
    """Return the names of the injected and the blamed parts, and the details of each."""
    return {
        "schema": "gpuops.simulation/1",
        "planted": [fault.part for fault in trial.case.faults],
        "accused": [blamed.part for blamed in trial.blame.blamed],
        "rounds": trial.rounds,
        "contention": list(trial.blame.contention),
        "faults": [{"part": fault.part, "kind": fault.kind, "percent": fault.percent} for fault in trial.case.faults],
        "accusations": [
            {
                "part": blamed.part,
                "kind": blamed.kind,
                "alternatives": list(blamed.alternatives),
                "found_gb_per_s": blamed.found_gb_per_s,
                "expected_gb_per_s": blamed.expected_gb_per_s,
                "evidence": list(blamed.evidence),
            }
            for blamed in trial.blame.blamed
        ],
        "missed": [fault.part for fault in trial.missed],
        "wrong": [blamed.part for blamed in trial.false_positives],
        "unclear": list(trial.blame.unclear),
    }

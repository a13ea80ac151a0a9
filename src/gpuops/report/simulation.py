"""A simulated trial for a person and as a document: what was injected, what was blamed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuops.isolation import max_rounds
from gpuops.isolation.cases import Case
from gpuops.isolation.trials import Trial
from gpuops.report.page import Page

_WIDTH = 12


def lines(trial: Trial, page: Page) -> Iterator[str]:
    """The fabric, its faults, and who is blamed."""
    for label, text in _rows(trial):
        yield from page.labelled(label, text, _WIDTH)


def _rows(trial: Trial) -> Iterator[tuple[str, str]]:
    yield "fabric", _fabric(trial.case)
    for fault in trial.case.faults:
        yield "planted", str(fault)
    for blamed in trial.blame.blamed:
        parts = " or ".join((blamed.part, *blamed.alternatives))
        yield "ACCUSED", f"{parts}: {blamed.kind}. {'; '.join(blamed.evidence)}"
    for fault in trial.missed:
        yield "missed", str(fault)
    for blamed in trial.false_positives:
        yield "wrong", f"{blamed.part} is well"
    for text in trial.blame.unclear:
        yield "unclear", text
    pairs = len(trial.blame.contention)
    yield "contention", f"{pairs} pairs were slow once and not again: nobody is accused" if pairs else "none"
    yield "rounds", f"{trial.rounds}, never more than {max_rounds(trial.case.fabric)} for so many nodes"


def _fabric(case: Case) -> str:
    cabling, fabric = case.cabling, case.fabric
    leaves = "known" if case.mapped else "not known"
    return (
        f"{cabling.nodes} nodes of {cabling.gpus} GPUs, units {len(fabric.units)}, leaves {len(fabric.ports_of)} "
        f"({leaves}), oversubscription {cabling.oversubscription:g}"
    )


def document(trial: Trial) -> dict[str, Any]:
    """The parts' names side by side, and of each what was injected and what was found."""
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

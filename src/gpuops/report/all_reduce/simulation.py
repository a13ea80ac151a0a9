"""Text report and JSON document of a simulated trial: the injected faults and the blamed parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from gpuops.isolation import action_for, max_rounds
from gpuops.isolation.cases import Case
from gpuops.isolation.trials import Trial
from gpuops.report.all_reduce import blame
from gpuops.report.page import Page

_WIDTH = 12
_MAX_LISTED = 10


def lines(trial: Trial, page: Page) -> Iterator[str]:
    """Yield the fabric, its faults and the blamed parts."""
    for label, text in (
        ("fabric", _fabric(trial.case)),
        ("rounds", f"{trial.rounds}, at most {max_rounds(trial.case.fabric)} for this many nodes"),
        *_listed("injected", map(str, trial.case.faults)),
        *_listed("missed", map(str, trial.missed)),
        *_listed("wrong", (f"{blamed.part} is healthy" for blamed in trial.false_positives)),
    ):
        yield from page.labelled(label, text, _WIDTH)
    blocks = blame.blocks(trial.blame, trial.case.fabric, page, action_for)
    for block in (*blocks, [*blame.tail(trial.blame, page)]):
        yield from ["", *block] if block else ()


def _listed(label: str, texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    texts = list(texts)
    yield from ((label, text) for text in texts[:_MAX_LISTED])
    if len(texts) > _MAX_LISTED:
        yield label, f"and {len(texts) - _MAX_LISTED} more"


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

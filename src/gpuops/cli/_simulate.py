"""``gpuops allreduce simulate``: faults planted in a simulated fabric, and what isolation makes of them."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from gpuops.isolation.cases import Case
    from gpuops.isolation.trials import Trial

_WIDTH = 12


@click.command(name="simulate")
@click.option("--nodes", type=click.IntRange(1, 16384), default=128, show_default=True, help="Nodes of the fabric.")
@click.option("--gpus", type=click.IntRange(1, 16), default=8, show_default=True, help="GPUs of a node, and its NICs.")
@click.option("--unit", type=click.IntRange(1), default=16, show_default=True, help="Nodes that share their leaves.")
@click.option("--leaves", type=click.IntRange(1), metavar="N", help="Leaves of a unit. [default: one for each rail]")
@click.option(
    "--oversubscription",
    type=click.FloatRange(1, 16),
    default=1.0,
    show_default=True,
    help="A leaf's bandwidth to nodes, as a multiple of that to the spine.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Draws faults and disturbances.")
@click.option("--fault", "faults", multiple=True, metavar="PART:slow=PERCENT|hang", help="gpu017:mlx5_3:slow=30, ...")
@click.option("--random-faults", "count", type=click.IntRange(0, 100), metavar="K", help="Plant K parts by the seed.")
@click.option("--no-leaf-map", "unmapped", is_flag=True, help="Isolate without knowing which port is on which leaf.")
@click.option("--no-disturbances", "quiet", is_flag=True, help="No collisions, other tenants or drift; little noise.")
@click.option("--json", "form", flag_value="json", help="One JSON document: planted, accused, rounds, contention.")
def command(  # noqa: PLR0913, PLR0917 - one argument an option
    nodes: int,
    gpus: int,
    unit: int,
    leaves: int | None,
    oversubscription: float,
    seed: int,
    faults: tuple[str, ...],
    count: int | None,
    form: str | None,
    *,
    unmapped: bool,
    quiet: bool,
) -> int:
    """Plant faults in a simulated fabric, measure it as a real one would be, and say who is accused.

    A part is a node (gpu017), its GPU's NVLink (gpu017:gpu3), an HCA (gpu017:mlx5_3), a leaf (leaf:L3), or what joins
    a rail of a unit to the spine (unit:U2/rail3). It is 1 to 99 % slow, or it hangs.

    \b
    Exit codes: 0 every part was named and no other, 1 not so, 2 wrong input.
    """  # noqa: D301 - click needs the character itself
    from gpuops.isolation.cabling import Cabling, build_fabric
    from gpuops.isolation.cases import Case, draw_disturbances, draw_faults
    from gpuops.isolation.faults import parse_fault
    from gpuops.isolation.simulation import QUIET
    from gpuops.isolation.trials import run

    cabling = Cabling(nodes, gpus, min(unit, nodes), leaves or gpus, oversubscription)
    fabric, rng = build_fabric(cabling), random.Random(seed)  # noqa: S311 - reproducible on purpose
    drawn = draw_faults(fabric, count or 0, rng)
    planted = tuple({fault.part: fault for fault in (*drawn, *(parse_fault(text, fabric) for text in faults))}.values())
    disturbances = QUIET if quiet else draw_disturbances(fabric, rng)
    trial = run(Case(cabling, planted, disturbances, not unmapped, seed=seed))
    if form == "json":
        click.echo(json.dumps(_document(trial), indent=1))
    else:
        _print(trial)
    return 1 if trial.missed or trial.false_positives else 0


def _document(trial: Trial) -> dict[str, object]:
    """The parts' names side by side, and of each what was planted and what was found."""
    return {
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


def _print(trial: Trial) -> None:
    from gpuops.report.page import Page

    page = Page.of(sys.stdout)
    for label, text in _said(trial):
        for line in page.labelled(label, text, _WIDTH):
            click.echo(line)


def _said(trial: Trial) -> Iterator[tuple[str, str]]:
    from gpuops.isolation import max_rounds

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
    known = "known" if case.mapped else "not known"
    return (
        f"{cabling.nodes} nodes of {cabling.gpus} GPUs, units {len(fabric.units)}, leaves {len(fabric.ports_of)} "
        f"({known}), oversubscription {cabling.oversubscription:g}"
    )

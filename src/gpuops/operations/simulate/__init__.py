"""Simulation of faults in a fabric, and the parts that isolation blames for them; no host is asked."""

from __future__ import annotations

import random
from collections.abc import Sequence

from gpuops.isolation.cabling import Cabling, build_fabric
from gpuops.isolation.cases import Case, draw_disturbances, draw_faults
from gpuops.isolation.faults import parse_fault
from gpuops.isolation.simulation import QUIET
from gpuops.isolation.trials import Trial, run


def simulate(  # noqa: PLR0913 - one argument per setting
    *,
    nodes: int = 128,
    gpus: int = 8,
    unit: int = 16,
    leaves: int | None = None,
    oversubscription: float = 1.0,
    seed: int = 0,
    faults: Sequence[str] = (),
    random_faults: int = 0,
    leaf_map: bool = True,
    disturbances: bool = True,
) -> Trial:
    """Measure a simulated fabric like a real one, and blame its slow parts.

    ``unit`` nodes share ``leaves`` leaf switches (by default one per rail). ``faults`` are texts such as
    ``gpu017:mlx5_3:slow=30``; ``random_faults`` more are drawn with ``seed``. Without ``leaf_map``, isolation does not
    know which port is on which leaf. Without ``disturbances``, there are no collisions, no other tenants and no drift.
    Raise `InputError` if a fabric or a fault is impossible.
    """
    cabling = Cabling(nodes, gpus, min(unit, nodes), leaves or gpus, oversubscription)
    fabric, generator = build_fabric(cabling), random.Random(seed)  # noqa: S311 - reproducible on purpose
    drawn = draw_faults(fabric, random_faults, generator)
    named = (parse_fault(text, fabric) for text in faults)
    injected = tuple({fault.part: fault for fault in (*drawn, *named)}.values())
    background = draw_disturbances(fabric, generator) if disturbances else QUIET
    return run(Case(cabling, injected, background, leaf_map, seed=seed))

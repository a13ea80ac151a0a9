"""Simulated fabrics with faults and disturbances, drawn from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

from gpuops.errors import InputError
from gpuops.isolation.cabling import Cabling, build_fabric, build_unmapped_fabric
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.faults import FabricFault, fabric_leaves, resolve
from gpuops.isolation.simulation import QUIET, Disturbances, Simulation, Tenant

MAX_FAULTS = 5
_ROUNDS_DISTURBED = 16  # other tenants come and go within the first rounds, which are the measured ones


@dataclass(frozen=True)
class Case:
    """One fabric under test: its faults, and the disturbances that hide them.

    ``mapped``: the inventory declares the leaves. ``reports_missing``: the engine names members that did not arrive.
    """

    cabling: Cabling
    faults: tuple[FabricFault, ...] = ()
    disturbances: Disturbances = QUIET
    mapped: bool = True
    reports_missing: bool = True
    seed: int = 0

    @property
    def fabric(self) -> Fabric:
        """The fabric with all its leaves."""
        return build_fabric(self.cabling)

    @property
    def declared_fabric(self) -> Fabric:
        """The fabric as the inventory declares it: without its leaves if they are not mapped."""
        return self.fabric if self.mapped else build_unmapped_fabric(self.cabling)

    def simulation(self) -> Simulation:
        """Return an engine that measures this case, always with the same figures for the same rounds."""
        return Simulation(
            self.fabric,
            self.faults,
            self.disturbances,
            oversubscription=self.cabling.oversubscription,
            reports_missing=self.reports_missing,
            seed=self.seed,
        )


def draw_case(nodes: int, seed: int, *, gpus: int = 8, mapped: bool | None = None, disturbed: bool = True) -> Case:
    """Draw a case of ``nodes`` nodes with 0 to 5 faults; with ``mapped`` None, half of the cases declare their leaves.

    The same seed gives the same fabric and faults, whatever ``disturbed`` and ``mapped`` are.
    """
    rng = random.Random(f"{nodes}/{gpus}/{seed}")  # noqa: S311 - reproducible on purpose
    cabling = _draw_cabling(nodes, gpus, rng)
    faults = draw_faults(build_fabric(cabling), rng.randint(0, min(MAX_FAULTS, nodes)), rng)
    reports_missing, drawn_mapped = rng.random() < 0.5, rng.random() < 0.5
    disturbances = draw_disturbances(build_fabric(cabling), rng) if disturbed else QUIET
    return Case(cabling, faults, disturbances, drawn_mapped if mapped is None else mapped, reports_missing, seed)


def _draw_cabling(nodes: int, gpus: int, rng: random.Random) -> Cabling:
    """Draw a rail-optimised fabric half of the time, else one or two leaves per unit; a unit has at most 32 nodes."""
    unit = rng.choice((16, 32)) if nodes >= 64 else rng.choice((max(1, nodes // 4), max(1, nodes // 2)))
    leaves = rng.choice((gpus, gpus, 1, 2 if gpus % 2 == 0 else 1))
    return Cabling(nodes, gpus, unit, leaves, rng.choice((1.0, 1.0, 1.5, 2.0)), shuffled=rng.random() < 0.25)


def draw_faults(fabric: Fabric, count: int, rng: random.Random) -> tuple[FabricFault, ...]:
    """Draw faults on ``count`` parts: 10 to 60 % slow, one in four hangs; one in four is on the leaf of another.

    Raise `InputError` if the fabric has fewer parts.
    """
    if count > len(fabric.nodes):
        raise InputError(f"{count} faults are too many for {len(fabric.nodes)} nodes; inject at most one per node")
    parts: list[str] = []
    while len(parts) < count:
        part = _draw_neighbour(fabric, parts[-1], rng) if parts and rng.random() < 0.25 else _draw_part(fabric, rng)
        if part not in parts:
            parts.append(part)
    return tuple(FabricFault(part, None if rng.random() < 0.25 else rng.randint(10, 60)) for part in parts)


def _draw_part(fabric: Fabric, rng: random.Random) -> str:
    """Draw a part; each kind is as likely as any other, however many parts it has."""
    node = fabric.nodes[rng.choice(tuple(fabric.nodes))]
    unit, rail = rng.choice(tuple(fabric.units)), rng.choice(fabric.rails)
    parts = [node.name, f"{node.name}:gpu{rng.choice(node.gpus)}", fabric.part(node.name, rail)]
    parts.append(f"leaf:{rng.choice(fabric_leaves(fabric))}")
    if len(fabric.units) > 1:
        parts.append(f"unit:{unit}/rail{rail}")
    return rng.choice(parts)


def _draw_neighbour(fabric: Fabric, part: str, rng: random.Random) -> str:
    """Draw the leaf of ``part``, or an HCA on it; for a part without a single leaf, one that its node or unit uses."""
    leaf = _leaf(fabric, part, rng)
    ports = [(node.name, nic.rail) for node in fabric.nodes.values() for nic in node.nics if nic.leaf == leaf]
    return f"leaf:{leaf}" if rng.random() < 0.25 else fabric.part(*rng.choice(ports))


def _leaf(fabric: Fabric, part: str, rng: random.Random) -> str | None:
    location = resolve(part, fabric)
    if location.leaf is not None:
        return location.leaf
    node = fabric.nodes[location.node if location.node is not None else fabric.units[str(location.unit)][0]]
    nic = node.nic(location.rail if location.rail is not None else rng.choice(node.nics).rail)
    return nic.leaf if nic else None


def draw_disturbances(fabric: Fabric, rng: random.Random) -> Disturbances:
    """Draw noise of 1 to 2 %, collisions of up to one in twenty crossing transfers, drift of up to 8 %, and tenants.

    There are up to 2 tenants, plus one for each 64 leaves; each stays for 1 to 3 rounds.
    """
    leaves = fabric_leaves(fabric)
    tenants = tuple(
        Tenant(rng.choice(leaves), rng.uniform(0.2, 0.6), range(first, first + rng.randint(1, 3)))
        for first in (rng.randrange(_ROUNDS_DISTURBED) for _ in range(rng.randint(0, 2 + len(leaves) // 64)))
    )
    return Disturbances(rng.uniform(0.01, 0.02), rng.uniform(0, 0.05), tenants, rng.uniform(0, 0.08))

"""Machines with the constants of a calibration in place of the priors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gpuops.document import load
from gpuops.operations.planning.machines import Machines
from gpuops.planner.calibration_file import read_calibration
from gpuops.workspace import Workspace


def calibrated(work: Workspace, machines: Machines, path: Path | None) -> Machines:
    """Return ``machines`` with the constants in the file at ``path``; a note says if it has no run on their GPU."""
    if path is None:
        return machines
    calibration, gpu = read_calibration(load(path)), machines.cluster.gpu.name
    if gpu not in calibration.factors:
        work.note(f"{path}: no run on {gpu} is in it, so its constants are used without a factor")
    constants, source = calibration.constants_on(gpu), f"constants calibrated by {path}"
    cluster, healthy = (each.with_constants(constants, source) for each in (machines.cluster, machines.healthy))
    return replace(machines, cluster=cluster, healthy=healthy)

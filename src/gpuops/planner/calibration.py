"""Constants fitted to measured runs, held near their priors: a loose fit keeps the error and ruins the order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gpuops.planner.candidates import Numbers
from gpuops.planner.constants import PRIORS, Constants
from gpuops.planner.published import PublishedRun
from gpuops.planner.scoring import predicted_seconds

SPREADS: Mapping[str, float] = {
    "gemm.ampere": 0.1,
    "gemm.hopper": 0.1,
    "gemm.blackwell": 0.1,
    "attention.ampere": 0.2,
    "attention.hopper": 0.2,
    "attention.blackwell": 0.2,
    "before_flash": 0.1,
    "low_precision": 0.15,
    "half_tokens": 0.2,
    "odd_tile": 0.15,
    "half_sequence": 0.5,
    "fused_attention": 0.1,
    "odd_head": 0.3,
    "score_passes": 0.3,
    "elementwise_passes": 0.2,
    "launch_us": 0.3,
    "tp_exposed": 0.3,
    "tp_exposed_overlapped": 0.3,
    "p2p_efficiency": 0.3,
    "zero3_unhidden": 0.5,
    "deepspeed_zero3": 0.3,
    "fixed_ms": 0.3,
}
"""How far a constant may lie from its prior: the standard deviation of its logarithm, our own judgement."""
_ERROR = 0.06
"""Standard deviation of the logarithm of a prediction that no constant can correct."""
_STEP = 0.02


def fit(runs: Sequence[PublishedRun], priors: Constants = PRIORS, spreads: Mapping[str, float] = SPREADS) -> Constants:
    """Return the most likely constants given ``runs`` and ``priors``: two Gauss-Newton steps in their logarithms."""
    return fit_each([runs], priors, spreads)[0]


def fit_each(
    groups: Sequence[Sequence[PublishedRun]], priors: Constants = PRIORS, spreads: Mapping[str, float] = SPREADS
) -> list[Constants]:
    """Return the constants fitted to each of ``groups``; runs that groups share are computed once."""
    runs = {id(run): run for group in groups for run in group}
    index = {key: row for row, key in enumerate(runs)}
    residuals, slopes = _linearized(list(runs.values()), priors, tuple(spreads))
    fitted = []
    for group in groups:
        rows = [index[id(run)] for run in group]
        moved = _solve(residuals[rows], slopes[rows], _weights(group), np.array(list(spreads.values())))
        fitted.append(_moved(priors, dict(zip(spreads, moved.tolist(), strict=True))))
    return fitted


def _weights(runs: Sequence[PublishedRun]) -> Numbers:
    """Return a weight for each run: many of one source say the same, so their sum grows as its square root."""
    counts: dict[str, int] = {}
    for run in runs:
        counts[run.source] = counts.get(run.source, 0) + 1
    return np.array([counts[run.source] ** -0.5 for run in runs])


def _linearized(runs: Sequence[PublishedRun], priors: Constants, names: Sequence[str]) -> tuple[Numbers, Numbers]:
    """Return log(measured / predicted) of each run, and how log(predicted) changes with each constant's logarithm."""
    base = np.log([predicted_seconds(run, priors) for run in runs])
    measured = np.log([run.seconds for run in runs])
    columns = []
    for name in names:
        changed = _moved(priors, {name: _STEP})
        columns.append((np.log([predicted_seconds(run, changed) for run in runs]) - base) / _STEP)
    return measured - base, np.array(columns).T


def _solve(residuals: Numbers, slopes: Numbers, weights: Numbers, spreads: Numbers) -> Numbers:
    """Return the most likely moves; a run that is far off counts less (Huber, at twice the error)."""
    moved = np.zeros(len(spreads))
    for _ in range(5):
        left = residuals - slopes @ moved
        robust = weights * np.minimum(1, 2 * _ERROR / np.maximum(np.abs(left), 1e-12)) / _ERROR**2
        normal = (slopes.T * robust) @ slopes + np.diag(spreads**-2.0)
        moved = np.linalg.solve(normal, (slopes.T * robust) @ residuals)
    return np.asarray(moved)


def _moved(constants: Constants, logarithms: Mapping[str, float]) -> Constants:
    """Return ``constants`` with each named one multiplied by e to its logarithm."""
    changes: dict[str, Any] = {}
    for name, logarithm in logarithms.items():
        field, _, key = name.partition(".")
        value = changes.get(field, getattr(constants, field))
        factor = float(np.exp(logarithm))
        changes[field] = {**value, key: value[key] * factor} if key else value * factor
    return replace(constants, **changes)

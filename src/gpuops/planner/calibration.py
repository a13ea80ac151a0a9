"""Constants fitted to measured runs, held near their priors: a loose fit keeps the error and ruins the order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
"""Standard deviation of the logarithm of a prediction that no constant can correct. What a run is off by more counts in
proportion, not squared (Huber); twice this as the limit is worse for sources that were left out of the fit."""
_FACTOR_SPREAD, _FACTOR_FREEDOM = 0.1, 3
"""Prior of a GPU's factor, in its logarithm: Student's t. One run that is a little off hardly moves it; runs that all
are far off move it as far as they say."""
_STEP = 0.02
_REWEIGHTED = 20


@dataclass(frozen=True)
class Calibration:
    """Fitted ``constants``, and by GPU the factor by which its steps take longer than the constants say."""

    constants: Constants = PRIORS
    factors: Mapping[str, float] = field(default_factory=dict, hash=False)

    @property
    def values(self) -> dict[str, float]:
        """The fitted constants by name."""
        return {name: value_of(self.constants, name) for name in SPREADS}

    def constants_on(self, gpu: str) -> Constants:
        """Return the constants for a cluster of ``gpu``; without runs on it, those of all."""
        return replace(self.constants, scale=self.constants.scale * self.factors.get(gpu, 1.0))

    def seconds(self, run: PublishedRun) -> float:
        """Return the seconds of a step of ``run``."""
        return predicted_seconds(run, self.constants_on(run.cluster.gpu.name))


def calibrate(runs: Sequence[PublishedRun]) -> Calibration:
    """Return the constants and factors that are most likely given ``runs``; none at all leaves the priors."""
    return _calibrations(runs, [np.arange(len(runs))])[0] if runs else Calibration()


def left_out_seconds(runs: Sequence[PublishedRun]) -> list[float]:
    """Return the seconds of each run, with a calibration by all others; of one run, by the priors."""
    every = np.arange(len(runs))
    calibrations = _calibrations(runs, [every[every != row] for row in every])
    return [each.seconds(run) for run, each in zip(runs, calibrations, strict=True)]


def _calibrations(runs: Sequence[PublishedRun], groups: Sequence[Numbers]) -> list[Calibration]:
    """Return the calibration by each of ``groups``, which are rows of ``runs``."""
    residuals, slopes = _linearized(runs, PRIORS, tuple(SPREADS))
    names = np.array([run.cluster.gpu.name for run in runs])
    spreads = np.array([*SPREADS.values()])
    calibrations = []
    for rows in groups:
        gpus = sorted(set(names[rows].tolist()))
        on_gpu = (names[rows][:, None] == np.array(gpus, dtype=names.dtype)).astype(np.float64)
        weights = _weights([runs[row] for row in rows])
        moved, factors = _solve(residuals[rows], slopes[rows], weights, spreads, on_gpu)
        constants = _moved(PRIORS, dict(zip(SPREADS, moved.tolist(), strict=True)))
        calibrations.append(Calibration(constants, dict(zip(gpus, np.exp(factors).tolist(), strict=True))))
    return calibrations


def fit(runs: Sequence[PublishedRun], priors: Constants = PRIORS, spreads: Mapping[str, float] = SPREADS) -> Constants:
    """Return the most likely constants given ``runs`` and ``priors``: a Gauss-Newton step in their logarithms."""
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
        moved, _ = _solve(residuals[rows], slopes[rows], _weights(group), np.array([*spreads.values()]))
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
    return measured - base, np.array(columns).reshape(len(names), len(runs)).T


def _solve(
    residuals: Numbers, slopes: Numbers, weights: Numbers, spreads: Numbers, on_gpu: Numbers | None = None
) -> tuple[Numbers, Numbers]:
    """Return the most likely moves of the constants, and those of the factors of the GPUs that ``on_gpu`` marks.

    Weights are set anew from what is left: Huber's for runs, Student's for factors. Factors begin at the median.
    """
    used = np.zeros((len(residuals), 0)) if on_gpu is None else on_gpu
    columns, size = np.hstack([slopes, used]), len(spreads)
    factors = [float(np.median(residuals[column > 0])) for column in used.T]
    moved = np.concatenate([np.zeros(size), factors])
    for _ in range(_REWEIGHTED):
        left = residuals - columns @ moved
        robust = weights * np.minimum(1, _ERROR / np.maximum(np.abs(left), 1e-12)) / _ERROR**2
        held = (_FACTOR_FREEDOM + 1) / (_FACTOR_FREEDOM * _FACTOR_SPREAD**2 + moved[size:] ** 2)
        normal = (columns.T * robust) @ columns + np.diag(np.concatenate([spreads**-2.0, held]))
        moved = np.linalg.solve(normal, (columns.T * robust) @ residuals)
    return moved[:size], moved[size:]


def _moved(constants: Constants, logarithms: Mapping[str, float]) -> Constants:
    """Return ``constants`` with each named one multiplied by e to its logarithm."""
    values = {name: value_of(constants, name) * float(np.exp(move)) for name, move in logarithms.items()}
    return with_values(constants, values)


def value_of(constants: Constants, name: str) -> float:
    """Return one constant; ``gemm.hopper`` is that of a generation."""
    field_name, _, key = name.partition(".")
    value = getattr(constants, field_name)
    return float(value[key] if key else value)


def with_values(constants: Constants, values: Mapping[str, float]) -> Constants:
    """Return ``constants`` with the named ones replaced."""
    changes: dict[str, Any] = {}
    for name, value in values.items():
        field_name, _, key = name.partition(".")
        before = changes.get(field_name, getattr(constants, field_name))
        changes[field_name] = {**before, key: value} if key else value
    return replace(constants, **changes)

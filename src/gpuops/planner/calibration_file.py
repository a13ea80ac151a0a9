"""Calibrations as YAML files: each constant that was fitted, by name, and a factor for each GPU."""

from __future__ import annotations

from gpuops.document import YamlNode, dump
from gpuops.errors import LayoutError, did_you_mean
from gpuops.planner.calibration import SPREADS, Calibration, value_of, with_values
from gpuops.planner.constants import PRIORS
from gpuops.planner.gpus import gpu_named

SCHEMA = "gpuops.calibration/1"
_FURTHEST = 100.0
"""A constant that is this many times its prior, or a factor of this size, is a slip of whoever edited the file."""


def calibration_text(calibration: Calibration, about: str) -> str:
    """Return the file's content, which begins with ``about`` as a comment."""
    values = {name: _rounded(value) for name, value in calibration.values.items()}
    factors = {gpu: _rounded(factor) for gpu, factor in calibration.factors.items()}
    return f"# {about}\n" + dump({"schema": SCHEMA, "constants": values, "factors": factors})


def read_calibration(document: YamlNode) -> Calibration:
    """Return the calibration in a file; raise `DocumentError` for a key or a number that cannot be one."""
    keys = document.only({"schema", "constants", "factors"}, "a calibration of gpuops plan calibrate")
    if "schema" not in keys or keys["schema"].text() != SCHEMA:
        raise document.fail(f"not a calibration: expected schema: {SCHEMA}, as gpuops plan calibrate writes it")
    constants = {name: _constant(name, node) for name, node in _entries(keys, "constants")}
    factors = {gpu_named(name).name: _between(node, 1.0) for name, node in _entries(keys, "factors")}
    return Calibration(with_values(PRIORS, constants), factors)


def check_factors(calibration: Calibration, name: str) -> None:
    """Raise `LayoutError` if a factor is so far from 1 that `read_calibration` refuses it: a slip in table ``name``."""
    for gpu, factor in calibration.factors.items():
        if not 1 / _FURTHEST <= factor <= _FURTHEST:
            raise LayoutError(
                f"{name}: steps on {gpu} take {factor:.3g} times the predicted time, which is not possible; correct "
                "step_time_s (seconds of one step) or achieved_tflops_per_gpu"
            )


def _entries(keys: dict[str, YamlNode], name: str) -> list[tuple[str, YamlNode]]:
    return [*keys[name].map(f"a map of {name}").items()] if name in keys else []


def _constant(name: str, node: YamlNode) -> float:
    if name not in SPREADS:
        raise node.fail(f'no constant named "{name}"{did_you_mean(name, SPREADS)}')
    return _between(node, value_of(PRIORS, name))


def _between(node: YamlNode, usual: float) -> float:
    value = node.number()
    if not usual / _FURTHEST <= value <= usual * _FURTHEST:
        raise node.fail(f"{value:g} is not possible; about {usual:.3g} is usual")
    return value


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")

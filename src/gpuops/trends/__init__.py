"""Judging over time: counters, drift and repeated failures of the runs in the store; pure."""

from __future__ import annotations

from gpuops.trends.counters import climbing
from gpuops.trends.drift import drifting
from gpuops.trends.lemons import lemons
from gpuops.trends.machine import least_gpus
from gpuops.trends.past import Record, past
from gpuops.trends.spread import robust_spread

__all__ = ["Record", "climbing", "drifting", "least_gpus", "lemons", "past", "robust_spread"]

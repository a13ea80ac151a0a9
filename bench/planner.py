"""Errors of predicted step times on a table of published runs: the planner, beside one constant MFU a GPU.

    python bench/planner.py TABLE.csv

Prints the planner's figures with priors only, with whole sources left out of the fit, fitted to the table, and with one
calibration run a cluster; memory that was refused or caught; and how many layouts a second are computed.
"""

import pathlib
import statistics
import sys
import time

import numpy as np

from gpuops.planner.candidates import Candidates
from gpuops.planner.memory import memory
from gpuops.planner.published import read_table
from gpuops.planner.scoring import score
from gpuops.planner.step_time import step_time
from gpuops.planner.validation import WAYS, scorable, scored


def line(name, result):
    ranking = f"{result.regret:6.1f} {result.kendall:6.2f}" if result.regret is not None else "     -      -"
    print(f"{name:38} {result.scored:5} {result.mape:6.1f} {result.median:7.1f} {result.spearman:9.3f} {ranking}")


def constant_mfu(runs):
    """The step times that one MFU a GPU and number format, the median of all runs there, gives."""
    kind = [(run.cluster.gpu.name, run.training.precision) for run in runs]
    peak = [run.cluster.gpu.peak_tflops(run.training.precision) * 1e12 * run.cluster.gpus for run in runs]
    used = [run.model_flops / run.seconds / p for run, p in zip(runs, peak, strict=True)]
    median = {k: statistics.median(u for u, other in zip(used, kind, strict=True) if other == k) for k in set(kind)}
    return [run.model_flops / p / median[k] for run, p, k in zip(runs, peak, kind, strict=True)]


def memory_figures(runs):
    """Print what is predicted to run out: a run may need all of its GPUs' memory, of which the search uses less.

    A run whose recomputation is not given is refused only if even full recomputation does not fit.
    """
    fits = [bool(memory(r.model, r.cluster, r.training, _leanest(r)).fits(r.cluster, usable=1.0).any()) for r in runs]
    ran = [fit for run, fit in zip(runs, fits, strict=True) if not run.ran_out]
    caught = [not fit for run, fit in zip(runs, fits, strict=True) if run.ran_out]
    print(f"out of memory: {sum(caught)} of {len(caught)} predicted; {ran.count(False)} of {len(ran)} that ran refused")


def _leanest(run):
    columns = {name: getattr(run.candidates, name) for name in run.candidates.__dataclass_fields__}
    return run.candidates if run.recompute_given else Candidates.product(**{**columns, "recompute": 2})


def speed(run):
    """Layouts a second: of one model, a mix of 100,000 layouts."""
    random = np.random.default_rng(1)
    powers = {name: 2 ** random.integers(0, 4, 100_000) for name in ("dp", "pp", "tp", "mbs", "chunks")}
    layouts = Candidates.product(**powers, zero=random.integers(0, 4, 100_000))
    start = time.perf_counter()
    step_time(run.model, run.cluster, run.training, layouts)
    both = time.perf_counter()
    memory(run.model, run.cluster, run.training, layouts)
    end = time.perf_counter()
    print(f"layouts a second: {1e5 / (both - start):,.0f} step times, {1e5 / (end - start):,.0f} with memory")


def main(path):
    table = read_table(pathlib.Path(path).read_text(), path)
    (runs, _), (experts, _) = scorable(table), scorable(table, experts=True)
    print(f"{'dense models':38} {'runs':>5} {'MAPE %':>6} {'median':>7} {'Spearman':>9} {'regret':>6} {'tau':>6}")
    for kind, way in WAYS.items():
        line(f"planner, {way.about}", scored(runs, kind))
    line("one MFU a GPU, fitted to the table", score(runs, constant_mfu(runs)))
    if experts:
        line("mixtures of experts, priors only", scored(experts, "priors"))
    memory_figures(table.runs)
    speed(runs[0])


if __name__ == "__main__":
    main(sys.argv[1])

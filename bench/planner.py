"""Errors of predicted step times on a table of published runs: the planner, beside constant MFUs and llm-analysis.

    python bench/planner.py TABLE.csv [--llm-analysis peer/bin/python]

Prints the planner's figures as `gpuops plan score` does; those of one MFU a GPU, fitted to the table and with each
source left out; those of llm-analysis, if a Python that has it is named; what a few runs of a cluster, chosen by
chance, improve there; the memory that was refused or caught; and how many layouts a second are computed.
"""

import argparse
import collections
import dataclasses
import json
import pathlib
import random
import statistics
import subprocess
import time

import numpy as np

from gpuops.planner.calibration import calibrate
from gpuops.planner.candidates import Candidates
from gpuops.planner.memory import memory
from gpuops.planner.published import read_table
from gpuops.planner.scoring import predicted_seconds, score
from gpuops.planner.step_time import step_time
from gpuops.planner.validation import WAYS, scorable, scored


def line(name, result):
    ranking = f"{result.regret:6.1f} {result.kendall:6.2f}" if result.regret is not None else "     -      -"
    print(f"{name:38} {result.scored:5} {result.mape:6.1f} {result.median:7.1f} {result.spearman:9.3f} {ranking}")


def constant_mfu(runs, *, left_out):
    """The step times that one MFU gives, the median of all runs on a GPU with a number format.

    If ``left_out``, those of the same source do not count; where there are no others, the median of all GPUs does.
    """

    def mfu(run):
        others = [other for other in runs if not left_out or other.source != run.source]
        like = [used(other) for other in others if _kind(other) == _kind(run)]
        return statistics.median(like or map(used, others))

    return [run.model_flops / _peak(run) / mfu(run) for run in runs]


def used(run):
    return run.model_flops / run.seconds / _peak(run)


def _kind(run):
    return run.cluster.gpu.name, run.training.precision


def _peak(run):
    return run.cluster.gpu.peak_tflops(run.training.precision) * 1e12 * run.cluster.gpus


def llm_analysis(runs, python):
    """The runs that llm-analysis predicts, and its step times; of an open layout the fastest, as for the planner."""
    jobs = [job for run in runs for job in _jobs(run)]
    program = pathlib.Path(__file__).with_name("llm_analysis_times.py")
    done = subprocess.run([python, program], input=json.dumps(jobs), capture_output=True, text=True, check=True)
    times = iter(json.loads(done.stdout))
    best = [min((t for t in [next(times) for _ in _jobs(run)] if t), default=None) for run in runs]
    found = [(run, seconds) for run, seconds in zip(runs, best, strict=True) if seconds]
    return [run for run, _ in found], [seconds for _, seconds in found]


def same(whole, runs):
    """The score of `runs` with the predictions that `whole` has of them."""
    seconds = {each.id: each.predicted_seconds for each in whole.predictions}
    return score(runs, [seconds[run.id] for run in runs])


def _jobs(run):
    model, cluster, training, c = run.model, run.cluster, run.training, run.candidates
    names = ("layers", "heads", "hidden", "vocab", "kv_heads", "ffn", "gated")
    job = {name: getattr(model, name) for name in names} | {
        "sequence": training.sequence,
        "flash_attention": training.flash_attention,
        "memory_gb_per_s": cluster.gpu.memory_gb_per_s,
        "nvlink_gb_per_s": cluster.nvlink_gb_per_s,
        "network_gb_per_s": cluster.network_gb_per_s,
        "tflops": cluster.gpu.peak_tflops(training.precision),
    }
    degrees = ("tp", "pp", "dp", "mbs", "chunks", "recompute", "zero", "sequence_parallel")
    return [{**job, **{name: getattr(c, name)[row].item() for name in degrees}} for row in range(len(c))]


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


REPEATS, MANY = 20, 9
"""How often the runs that calibrate a cluster are chosen anew, and how many runs a cluster must have."""


def calibrated_by_chance(runs, count, times=1.0):
    """The mean errors, in percent, of the other runs of each cluster if `count` of its own, by chance, calibrate.

    With the priors, with the median of their ratios as a factor, and as `plan calibrate` does; of clusters with at
    least MANY runs. If `times` is not 1, every run took so many times as long.
    """
    fleets, errors, dice = collections.defaultdict(list), [[], [], []], random.Random(1)
    for run in runs:
        fleets[run.fleet].append(dataclasses.replace(run, seconds=times * run.seconds))
    for fleet in (each for each in fleets.values() if len(each) >= MANY):
        priors = {run.id: predicted_seconds(run) for run in fleet}
        for _ in range(REPEATS):
            chosen = dice.sample(fleet, count)
            calibration = calibrate(chosen)
            factor = statistics.median(run.seconds / priors[run.id] for run in chosen)
            ids = {run.id for run in chosen}
            for run in (run for run in fleet if run.id not in ids):
                ways = (priors[run.id], factor * priors[run.id], calibration.seconds(run))
                for found, seconds in zip(errors, ways, strict=True):
                    found.append(abs(seconds / run.seconds - 1))
    return [100 * statistics.mean(each) for each in errors]


def chance_figures(runs):
    """Print what a few runs of one's own, whichever they are, improve."""
    print(f"{'runs of the cluster, by chance':38} priors  factor  plan calibrate")
    for count, times in ((1, 1.0), (2, 1.0), (4, 1.0), (8, 1.0), (8, 2.0)):
        figures = calibrated_by_chance(runs, count, times)
        print(
            f"{count:5} {'if all took twice as long' if times > 1 else '':32}" + "".join(f"{e:6.1f} %" for e in figures)
        )


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


def main(path, python):
    table = read_table(pathlib.Path(path).read_text(), path)
    (runs, _), (experts, _) = scorable(table), scorable(table, experts=True)
    print(f"{'dense models':38} {'runs':>5} {'MAPE %':>6} {'median':>7} {'Spearman':>9} {'regret':>6} {'tau':>6}")
    for kind, way in WAYS.items():
        line(f"planner, {way.about}", scored(runs, kind))
    line("one MFU a GPU, source left out", score(runs, constant_mfu(runs, left_out=True)))
    line("one MFU a GPU, fitted to the table", score(runs, constant_mfu(runs, left_out=False)))
    if python:
        known, seconds = llm_analysis(runs, python)
        line("llm-analysis, FLOPs efficiency 0.5", score(known, seconds))
        line("planner, without the source, the same", same(scored(runs, "left-out"), known))
    if experts:
        line("mixtures of experts, priors only", scored(experts, "priors"))
    chance_figures(runs)
    memory_figures(table.runs)
    speed(runs[0])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("table")
    parser.add_argument("--llm-analysis", dest="python", help="a Python that has llm-analysis")
    arguments = parser.parse_args()
    main(arguments.table, arguments.python)

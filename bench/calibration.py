"""Compare the stated bound on false accusations with how often healthy fabrics are accused, over many seeds.

    python bench/calibration.py runs.jsonl [--bounds 0.5,0.1,0.01,0.001] [--cells calm,noisy] [--nodes 16] [--cases 100]
        [--minutes 60] [--svg FILE]

Each fabric of `fabric_simulator.py` is healthy, and is measured anew with each bound (`--confidence`), which also
decides how many rounds are spent. A run counts as accused if it blames any part, or finds anything on the fleet. The
file has one line for each run; a call adds missing ones until its minutes are over. The last column is the largest rate
that so few accused runs do not contradict, by the exact 95 % limit of Clopper and Pearson (Biometrika 26, 1934).
"""

import argparse
import dataclasses
import itertools
import math
import os
from pathlib import Path

from accusations import percent, run_here
from fabric_model.setting import CELLS
from isolation_table import fill, lower_limit, read, upper_limit, write_between

COLUMNS = 60
WIDTH, HEIGHT, MARGIN = 480, 360, 56
LEAST = 1e-4
"""Rates below this are drawn at the edge."""


@dataclasses.dataclass
class Healthy:
    bound: float
    cell: str
    nodes: int
    seed: int
    is_accused: bool


def measure(key):
    bound, cell, nodes, seed = key
    _, result = run_here(cell, nodes, seed, "none", bound)
    return Healthy(bound, cell, nodes, seed, bool(result["blamed"] or result["fleet"]))


def svg(rows):
    """Return a plot of observed over stated rates, both logarithmic, with the limits as bars and the diagonal."""

    def x(rate):
        return MARGIN + (WIDTH - 2 * MARGIN) * (1 - math.log(max(rate, LEAST)) / math.log(LEAST))

    def y(rate):
        return HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * (1 - math.log(max(rate, LEAST)) / math.log(LEAST))

    size = f'width="{WIDTH}" height="{HEIGHT}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    yield f'<rect {size} fill="white"/>'
    yield f'<path d="M{x(LEAST)} {y(LEAST)} L{x(1)} {y(1)}" stroke="gray" stroke-dasharray="4"/>'
    for rate in (1e-4, 1e-3, 1e-2, 1e-1, 1):
        yield f'<text x="{x(rate)}" y="{HEIGHT - MARGIN + 18}" text-anchor="middle">{rate:g}</text>'
        yield f'<text x="{MARGIN - 8}" y="{y(rate) + 4}" text-anchor="end">{rate:g}</text>'
    for bound, count, runs in rows:
        yield f'<path d="M{x(bound)} {y(count / runs)} V{y(upper_limit(count, runs))}" stroke="black"/>'
        yield f'<circle cx="{x(bound)}" cy="{y(count / runs)}" r="4"/>'
    yield f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle">stated bound</text>'
    yield f'<text x="{MARGIN}" y="24">accused runs of healthy fabrics; bars end at the 95 % limit</text>'
    yield "</svg>"


def text_plot(rows):
    """Yield the observed rates as ``o`` with their 95 % interval, and the stated ones as ``|``; the axis is a log."""

    def column(rate):
        return round(COLUMNS * (1 - math.log(max(rate, LEAST)) / math.log(LEAST)))

    axis = [" "] * (COLUMNS + 8)
    for rate in (1e-4, 1e-3, 1e-2, 1e-1, 1):
        label = f"{100 * rate:g} %"
        axis[column(rate) : column(rate) + len(label)] = label
    yield f"  stated  {''.join(axis)}accused"
    for bound, count, runs in rows:
        line = [" "] * (COLUMNS + 8)
        first, last = (column(limit(count, runs, 0.025)) for limit in (lower_limit, upper_limit))
        line[first : last + 1] = "-" * (last + 1 - first)
        line[column(bound)] = "|"
        line[column(count / runs)] = "o"
        yield f"{100 * bound:>6g} %  {''.join(line)}{count}/{runs}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--bounds", default="0.5,0.1,0.01,0.001")
    parser.add_argument("--cells", default=",".join(cell for cell in CELLS if cell not in ("fleet", "errors")))
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--cases", type=int, default=100, help="fabrics of each cell")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the plot into its block for it")
    parser.add_argument("--svg", type=Path, metavar="FILE")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.cases)
    bounds = list(map(float, options.bounds.split(",")))
    done = {(run.bound, run.cell, run.nodes, run.seed) for run in read(options.file, Healthy)}
    keys = [
        (bound, cell, options.nodes, seed)
        for seed, cell, bound in itertools.product(seeds, options.cells.split(","), bounds)
    ]
    fill(options.file, measure, [key for key in keys if key not in done], options.minutes, options.processes)
    runs, rows = list(read(options.file, Healthy)), []
    print("| stated bound, % | healthy fabrics | accused, % | at most, % (95 %) |\n|---|---|---|---|")
    for bound in sorted({run.bound for run in runs}, reverse=True):
        own = [run for run in runs if run.bound == bound]
        accused = sum(run.is_accused for run in own)
        rows.append((bound, accused, len(own)))
        limit = 100 * upper_limit(accused, len(own))
        print(f"| {100 * bound:g} | {len(own)} | {percent(accused, len(own))} | {limit:.2f} |")
    for run in runs:
        if run.is_accused:
            print(f"accused: {run.cell} {run.nodes} seed {run.seed}, bound {run.bound:g}")
    plot = ("```", *text_plot(rows), "```")
    print("", *plot, sep="\n")
    if options.page:
        write_between(options.page, "calibration.py", plot)
    if options.svg:
        options.svg.write_text("\n".join(svg(rows)) + "\n", "utf-8")


if __name__ == "__main__":
    main()

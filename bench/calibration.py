"""Compare the stated bound on false accusations with how often healthy fabrics are accused, over many seeds.

    python bench/calibration.py [--bounds 0.1,0.01,0.001] [--cells calm,noisy] [--nodes 16] [--cases 100] [--svg FILE]

Each fabric of `fabric_simulator.py` is healthy, and is measured anew with each bound (`--confidence`), which also
decides how many rounds are spent. A run counts as accused if it blames any part, or finds anything on the fleet.
The last column is the largest rate that so few accused runs do not contradict, by the exact 95 % limit of Clopper and
Pearson (Biometrika 26, 1934).
"""

import argparse
import functools
import itertools
import math
import multiprocessing
import os
from pathlib import Path

from accusations import percent, run_here
from fabric_model.setting import CELLS

WIDTH, HEIGHT, MARGIN = 480, 360, 56
LEAST = 1e-4
"""Rates below this are drawn at the edge."""


def is_accused(nodes, case):
    bound, cell, seed = case
    _, result = run_here(cell, nodes, seed, "none", bound)
    return bool(result["blamed"] or result["fleet"])


def upper_limit(count, runs):
    """Return the rate with which `count` or fewer of `runs` are accused with a chance of 5 %."""
    low, high = count / runs, 1.0
    for _ in range(60):
        rate = (low + high) / 2
        chance = sum(math.comb(runs, k) * rate**k * (1 - rate) ** (runs - k) for k in range(count + 1))
        low, high = (rate, high) if chance > 0.05 else (low, rate)
    return high


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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bounds", default="0.1,0.01,0.001")
    parser.add_argument("--cells", default=",".join(cell for cell in CELLS if cell not in ("fleet", "errors")))
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--cases", type=int, default=100, help="fabrics of each cell")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--svg", type=Path, metavar="FILE")
    options = parser.parse_args()
    cells, seeds = options.cells.split(","), range(options.first, options.first + options.cases)
    rows = []
    print("| stated bound, % | healthy fabrics | accused, % | at most, % (95 %) |\n|---|---|---|---|")
    with multiprocessing.Pool(options.processes) as pool:
        for bound in map(float, options.bounds.split(",")):
            cases = [(bound, cell, seed) for cell, seed in itertools.product(cells, seeds)]
            accused = pool.map(functools.partial(is_accused, options.nodes), cases, 1)
            rows.append((bound, sum(accused), len(cases)))
            limit = 100 * upper_limit(sum(accused), len(cases))
            print(f"| {100 * bound:g} | {len(cases)} | {percent(sum(accused), len(cases))} | {limit:.2f} |", flush=True)
            for (_, cell, seed), is_bad in zip(cases, accused, strict=True):
                if is_bad:
                    print(f"accused: {cell} {options.nodes} seed {seed}, bound {bound:g}")
    if options.svg:
        options.svg.write_text("\n".join(svg(rows)) + "\n", "utf-8")


if __name__ == "__main__":
    main()

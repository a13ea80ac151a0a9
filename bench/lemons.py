"""Back-test of `lemon` on a public trace of faults: do the nodes that it names fail again more often than others?

    python bench/lemons.py fault_trace.json [NODES]

The trace is ``fault_trace.json`` of stepfun-ai/InfiniteHBD-Trace (Apache-2.0): 584 faults of 400 nodes in 348 days;
NODES (400) counts those without a fault, which are not in it. The first half of the trace chose the window of the check
among five. The second half tries it: on five days, 30 days apart, the check sees what lies before and is judged by the
30 days after. The same count for the first half shows how much of the result is the choice.

Nodes that are down on the day itself are left out. Shares have Wilson's 95 percent interval, the ratio one from 2,000
samples of the nodes with replacement, because the days of one node depend on each other. Chance is as many nodes drawn
from all. The last line is the share that is named in fleets where all fail at the same rate.
"""

import datetime as dt
import json
import math
import pathlib
import random
import sys
from dataclasses import dataclass
from statistics import mean

from gpuops.trends.lemons import lemons
from gpuops.trends.past import Failure, NodePast, Record, Sight, Watch

BEGAN = dt.datetime(2024, 3, 30, tzinfo=dt.timezone.utc)
AHEAD_DAYS = 30
HALVES = {"first half, chose the window": (54, 84, 114, 144), "second half": (174, 204, 234, 264, 294)}
SAMPLES = 2000
HEALTHY_FLEETS = 200


@dataclass(frozen=True)
class Outcome:
    """One node on one day: whether it was named, and whether it failed in the days after."""

    node: int
    named: bool
    failed: bool


def faults(path):
    """Return the faults by node as pairs of days (start, end)."""
    pending, found = {}, {}
    for event in json.loads(pathlib.Path(path).read_text()):
        key = (event["node_id"], *event["fault_type"].values())
        if event["event_type"] == "fault_start":
            pending.setdefault(key, []).append(event["event_time"])
        else:
            found.setdefault(event["node_id"], []).append((pending[key].pop(0), event["event_time"]))
    return found


def is_named(own, others, nodes, day):
    """Return whether the check names a node with these faults; ``others`` is the number of all others'."""
    now = BEGAN + dt.timedelta(days=day)
    failures = tuple(
        Failure(BEGAN + dt.timedelta(days=a), min(now, BEGAN + dt.timedelta(days=b)), "fault", "node")
        for a, b in own
        if a < day
    )
    past = NodePast("n", Sight(1, now, "", {}), (), {}, failures, day, fleet=Watch(others, day * (nodes - 1)))
    return any(getattr(each, "found", 0) for each in lemons(Record(past)))


def outcomes(by_node, nodes, day):
    """Return the outcome of each node that is up on ``day``."""
    histories = [*by_node.values(), *[[]] * (nodes - len(by_node))]
    total = sum(a < day for own in histories for a, _ in own)
    return [
        Outcome(
            number,
            is_named(own, total - sum(a < day for a, _ in own), nodes, day),
            any(day <= a < day + AHEAD_DAYS for a, _ in own),
        )
        for number, own in enumerate(histories)
        if not any(a < day <= b for a, b in own)
    ]


def wilson(hits, total):
    """Return a share and the bounds of its 95 percent interval."""
    if not total:
        return 0.0, 0.0, 1.0
    z, p = 1.959964, hits / total
    middle, half = p + z * z / (2 * total), z * math.sqrt(p * (1 - p) / total + z * z / (4 * total * total))
    return p, (middle - half) / (1 + z * z / total), (middle + half) / (1 + z * z / total)


def ratio(results, nodes, rng):
    """Return how much more often named nodes fail than all, with a 95 percent interval."""
    by_node = [[each for each in results if each.node == node] for node in range(nodes)]
    samples = ([each for own in rng.choices(by_node, k=nodes) for each in own] for _ in range(SAMPLES))
    ratios = sorted(map(_ratio, samples))
    return _ratio(results), ratios[int(0.025 * SAMPLES)], ratios[int(0.975 * SAMPLES)]


def _ratio(results):
    named = [each.failed for each in results if each.named]
    return mean(named) / mean(each.failed for each in results) if named else 0.0


def healthy_share(rate, nodes, day, rng):
    """Return the share of nodes that are named where all fail at the same rate, each fault half a day long."""
    named = 0
    for _ in range(HEALTHY_FLEETS):
        fleet = {}
        for node in range(nodes):
            at = rng.expovariate(rate)
            while at < day:
                fleet.setdefault(node, []).append((at, at + 0.5))
                at += rng.expovariate(rate)
        named += sum(each.named for each in outcomes(fleet, nodes, day))
    return named / (HEALTHY_FLEETS * nodes)


def main(path, nodes=400):
    by_node, nodes, rng = faults(path), int(nodes), random.Random(1)
    starts = [a for own in by_node.values() for a, _ in own]
    print(f"{len(starts)} faults of {nodes} nodes; each node on each day is judged by the {AHEAD_DAYS} days after it")
    for half, days in HALVES.items():
        results = [each for day in days for each in outcomes(by_node, nodes, day)]
        named, rest = ([each for each in results if each.named is flag] for flag in (True, False))
        hits = sum(each.failed for each in named)
        share, low, high = wilson(hits, len(named))
        times, least, most = ratio(results, nodes, rng)
        print(
            f"{half}: {len(named)} of {len(results)} named, {hits} of them failed: {share:.0%} [{low:.0%}, {high:.0%}],"
            f" of the others {mean(each.failed for each in rest):.1%}; {times:.1f} [{least:.1f}, {most:.1f}] times"
            f" chance; {hits / sum(each.failed for each in results):.0%} of all that failed"
        )
    rate = len(starts) / (nodes * max(starts))
    print(f"all alike at {rate * 1000:.2f} per 1,000 node-days: {healthy_share(rate, nodes, 174, rng):.2%} named")


if __name__ == "__main__":
    main(*sys.argv[1:])

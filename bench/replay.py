"""Replay weeks of a simulated fleet, to see what judging over time finds, and which healthy parts it accuses.

    python bench/replay.py [--nodes 600] [--days 30] [--runs 5] [--seed 0] [--times 1] [--folder DIR]
        [--minutes M] [--json FILE]

The fleet is that of `replay_model`, which imports nothing from gpuops and shares no figure with it. ``--times 5``
plants five times as many faults as the public trace has, so that a small fleet has enough of them. Each run is judged
and saved as `validate` does it. The store stays in DIR, if one is given; the same command goes on from the last run in
it. After ``--minutes`` no further run begins.
"""

import argparse
import collections
import datetime as dt
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from replay_model.judgement import truth
from replay_model.plan import BEYOND
from replay_model.world import World

from gpuops.operations.past import history
from gpuops.operations.past.overtime import MOST_RUNS, judge_over_time, with_verdicts
from gpuops.results.history import poisson_interval
from gpuops.store import Runs
from gpuops.store.records import FindingKey, RunRecord, SeenFinding, SeenPart, Visit

BEGAN = dt.datetime(2026, 3, 2, 1, 0, tzinfo=dt.timezone.utc)
OTHER_CHECKS = ("xid", "ib-ports", "bmc", "own-stress")
OVER_TIME = {"counters-over-time", "drift", "lemon"}
TRUE = ("building", "failed", "aftermath")
MOST_SPECIMENS = 3
KEPT, MOST_BYTES = dt.timedelta(days=400), 2**30
"""What a project keeps if it says nothing else."""


class Remembered(Runs):
    """The store, with the visits of nodes kept in memory too: each run of a replay reads what the one before read."""

    def __init__(self, path):
        super().__init__(path)
        self.kept = {}

    def visits(self, node, limit=-1):
        if node not in self.kept:
            self.kept[node] = super().visits(node, MOST_RUNS)
        own = self.kept[node]
        own += [latest for latest in super().visits(node, 1) if not own or own[-1].run < latest.run]
        del own[:-MOST_RUNS]
        return own[-limit:]


class Score:
    """What the store has of each run: findings by check and truth, verdicts by check and status; and seconds.

    ``remarks`` are findings of severity info, which accuse no part.
    """

    def __init__(self):
        self.new = collections.Counter()
        self.verdicts = collections.Counter()
        self.remarks = collections.Counter()
        self.specimens = []
        self.lemons = {}
        self.node_days = 0.0
        self.seconds = {"judge": [], "save": []}

    def count(self, world, runs, number):
        seen = set()
        for kept in runs.visits_of(number).values():
            seen.update(kept.findings)
            away = "" if kept.visit.boot else ", not reached"
            self.verdicts.update(
                (check, kept.visit.checks[check] + away) for check in OVER_TIME & kept.visit.checks.keys()
            )
        for kept in runs.findings_between(number - 1, number):
            if kept.number not in seen or kept.key.check not in OVER_TIME:
                continue
            if kept.severity == "info":
                self.remarks[kept.key.check, kept.key.code] += kept.first_run == number
                continue
            self._found(world, kept.key)
            if kept.first_run == number:
                self._new(world, kept)

    def _found(self, world, key):
        kind, _, fault = truth(world, key.node, key.part)
        if kind == "building":
            own = fault.found if key.check != "lemon" else fault.found_beside
            own.setdefault(key.check, world.now)

    def _new(self, world, kept):
        node, check, part, _ = kept.key
        if check == "lemon":
            failures = sum(f.fails <= world.now for f in world.faults if world.place(f)[0] == node)
            kind = "lemon" if node in world.lemons else "failed again" if failures > 1 else "nothing"
            if kind == "lemon":
                self.lemons.setdefault(node, failures)
            words = f"{'a planted lemon' if kind == 'lemon' else 'no lemon'}, {failures} failures so far"
        else:
            kind, words, _ = truth(world, node, part)
        self.new[check, kind] += 1
        if kind not in (*TRUE, "lemon"):
            self.specimens.append(
                {"day": round(world.now, 1), "check": check, "truth": kind, "node": node, "part": part}
                | {"message": kept.message, "planted": words}
            )


def run_days(world, days, runs):
    """Yield the true days of the runs, with one soon after each step of the control machine's clock."""
    planned = [(n + world.random.uniform(0.2, 0.8)) / runs for n in range(days * runs)]
    yield from sorted([*planned, *(day + 0.01 for day in world.clock_days)])


def visit(world, node, failing):
    """Return what `validate` keeps of a node, before it judges over time."""
    fresh = [fault for fault in failing if world.now - fault.fails < 0.5 or not fault.is_replaced]
    if not node.is_reachable or any(fault.is_silent for fault in failing):
        node.is_reachable = True
        return Visit("unknown", "cannot be reached")
    if failing and not fresh:
        return Visit("skipped", "drained")
    checks = dict.fromkeys(OTHER_CHECKS, "pass") | {fault.check: "fail" for fault in failing}
    found = [
        SeenFinding(FindingKey(node.name, f.check, world.place(f)[1], f.kind), "fail", "drain", f"{f.kind} failed")
        for f in failing
    ]
    parts = [SeenPart(p.kind, s, p.serial, p.model) for s, p in node.slots.items() if p.kind in ("gpu", "hca", "nvme")]
    status = "fail" if failing else "pass"
    return Visit(status, "", f"boot-{node.name}-{node.boot}", checks, tuple(found), tuple(parts), world.figures(node))


def replay(world, runs, days, per_day, minutes):
    """Replay all runs; return the score. Those that are in the store are not judged again."""
    score, before, there, ends = Score(), 0.0, runs.count(), time.monotonic() + 60 * minutes
    for number, day in enumerate(run_days(world, days, per_day), 1):
        if number > there and time.monotonic() > ends:
            break
        world.advance(day)
        failing = collections.defaultdict(list)
        for fault in world.failing():
            failing[world.place(fault)[0]].append(fault)
        visits = {name: visit(world, node, failing[name]) for name, node in world.nodes.items()}
        score.node_days += (day - before) * sum(bool(own.boot) for own in visits.values())
        before = day
        began = BEGAN + dt.timedelta(days=day - world.clock_back)
        if world.clock_back and day - world.clock_days[-1] > 0.7:
            world.clock_back = 0.0
        record = RunRecord(
            "validate", began, 30.0, "findings", "replay", "gpuops validate", level="quick", nodes=visits
        )
        if number > there:
            judge(runs, record, score)
        score.count(world, runs, number)
    with Runs(runs.path) as plain:
        started = time.perf_counter()
        judge_over_time(plain, record)
        score.seconds["judge, all read from the store,"] = [time.perf_counter() - started]
    return score


def judge(runs, record, score):
    """Judge a run and save it, as `validate` does."""
    started = time.perf_counter()
    verdicts = judge_over_time(runs, record)
    judged = time.perf_counter()
    runs.save(with_verdicts(record, verdicts))
    runs.prune(record.began - KEPT, MOST_BYTES)
    score.seconds["judge"].append(judged - started)
    score.seconds["save"].append(time.perf_counter() - judged)


def faults_found(world):
    """Return the counts of planted faults, and how many days before its failure each that builds up was found."""
    building = [f for f in world.faults if f.builds_up]
    failed = [f for f in building if f.fails <= world.now]
    leads = {id(f): f.fails - min(f.found.values()) for f in failed if f.found}
    by_kind = {}
    for fault in failed:
        found, of = by_kind.get(fault.kind, (0, 0))
        by_kind[fault.kind] = found + bool(fault.found), of + 1
    return {
        "planted": len(world.faults),
        "later": sum(f.fails > world.now for f in world.faults),
        "sudden": sum(not f.builds_up and f.fails <= world.now for f in world.faults),
        "build_up": len(failed),
        "found": len(leads),
        "leads_days": sorted(round(lead, 2) for lead in leads.values()),
        "by_kind": by_kind,
        "not_failed_yet": sum(f.fails > world.now for f in building),
        "of_these_found": sum(bool(f.found) for f in building if f.fails > world.now),
        "missed": [
            {"kind": f.kind, "node": f.node, "onset": round(f.onset, 1), "fails": round(f.fails, 1)}
            | {"total": round(f.total), "growth": round(f.growth, 1), "activity": round(f.activity, 2)}
            for f in failed
            if not f.found
        ],
    }


def outcome(world, score, settings):
    """Return all that was counted, as plain data."""
    months = score.node_days / 30
    false = collections.Counter()
    for (check, kind), number in score.new.items():
        if kind not in (*TRUE, "lemon"):
            false[check] += number
    return {
        "settings": settings,
        "node_months": round(months, 2),
        "faults": faults_found(world),
        "lemons": len(world.lemons),
        "lemons_named_after_failures": score.lemons,
        "new": {f"{check} / {kind}": number for (check, kind), number in sorted(score.new.items())},
        "remarks": {f"{check} / {code}": number for (check, code), number in sorted(score.remarks.items())},
        "verdicts": {f"{check} / {status}": number for (check, status), number in sorted(score.verdicts.items())},
        "false_parts": {
            check: len({(s["node"], s["part"]) for s in score.specimens if s["check"] == check})
            for check in sorted(OVER_TIME)
        },
        "false": {check: false[check] for check in sorted(OVER_TIME)},
        "false_per_node_month": {
            check: [round(number / months, 4) for number in (false[check], *poisson_interval(false[check]))]
            for check in sorted(OVER_TIME)
        },
        "events": dict(collections.Counter(e.what for e in world.events if e.day <= world.now)),
        "seconds": {
            f"{what} {name}": round(function(values), 3)
            for what, values in score.seconds.items()
            if values
            for name, function in (("median", statistics.median), ("last", lambda v: v[-1]), ("most", max))
        },
        "specimens": score.specimens,
    }


def query_seconds(folder, node):
    """Return the median seconds of each query: of the product's function, of the whole command, and its CPU time.

    Commands have byte code, as where gpuops is installed, even if the environment says that Python writes none.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(
        [sys.executable, "-m", "gpuops", "diff"], cwd=folder, env=environment, check=False, stdout=subprocess.DEVNULL
    )
    store, found = folder / ".gpuops" / "state.db", {}
    functions = {
        "diff": lambda: history.diff(store, ()),
        "history": lambda: history.of_fleet(store),
        f"history {node}": lambda: history.of_node(store, node),
        f"why {node}": lambda: history.why(store, node),
    }
    for words, function in functions.items():
        inside, whole, cpu = [], [], []
        for _ in range(3):
            started = time.perf_counter()
            function()
            inside.append(time.perf_counter() - started)
            used, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            command = [sys.executable, "-m", "gpuops", *words.split()]
            subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
            whole.append(time.perf_counter() - started)
            now = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu.append(now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime)
        found[words] = [round(statistics.median(values), 3) for values in (inside, whole, cpu)]
    return found


def show(result):
    """Print what was counted."""
    faults = result["faults"]
    print(f"{result['settings']}: {result['node_months']} node-months")
    print(f"faults: {faults['planted']} planted, {faults['sudden']} sudden, {faults['later']} fail after the end")
    print(f"  build up and failed: {faults['build_up']}, found before: {faults['found']}, by kind {faults['by_kind']}")
    if len(leads := faults["leads_days"]) > 1:
        print(
            "  found before the failure, days, quartiles:",
            [round(q, 2) for q in statistics.quantiles(leads, method="inclusive")],
        )
    print(f"  not failed yet: {faults['not_failed_yet']}, of these found: {faults['of_these_found']}")
    for missed in faults["missed"][:MOST_SPECIMENS]:
        print("  missed:", missed)
    print(f"false alarms: {result['false']}, per node-month with 95 % [low, high] {result['false_per_node_month']}")
    print(f"  on so many parts: {result['false_parts']}")
    for name in ("new", "remarks", "verdicts", "events", "seconds"):
        print(f"{name}: {result[name]}")
    print(f"planted lemons: {result['lemons']}, named after failures: {result['lemons_named_after_failures']}")
    shown = collections.Counter()
    for each in result["specimens"]:
        shown[each["check"], each["truth"]] += 1
        if shown[each["check"], each["truth"]] <= MOST_SPECIMENS:
            print("  false:", *(f"{key}={value}" for key, value in each.items()))
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"store: {result['store_mib']} MiB; queries (function, command, CPU of it, s): {result['queries']}")


def measure(folder, nodes, days, per_day, seed, times, minutes=math.inf):
    """Replay in a folder that is empty, or has the store of the same replay; return what was counted."""
    world = World(seed, nodes, days, times)
    (folder / ".gpuops").mkdir(mode=0o700, exist_ok=True)
    (folder / "inventory.ini").write_text("".join(f"{name}\n" for name in world.nodes))
    (folder / "gpuops.yml").write_text("inventory: inventory.ini\n")
    with Remembered(folder / ".gpuops" / "state.db") as runs:
        score = replay(world, runs, days, per_day, minutes)
        settings = {"nodes": nodes, "days": round(world.now, 1), "of": days, "runs": runs.count()}
        result = outcome(world, score, settings | {"seed": seed, "times": times, "beyond": BEYOND})
    result["store_mib"] = round(sum(f.stat().st_size for f in (folder / ".gpuops").glob("state.db*")) / 2**20, 1)
    return result | {"node": min(world.lemons, default=min(world.nodes))}


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, default in {"--nodes": 600, "--days": 30, "--runs": 5, "--seed": 0}.items():
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--times", type=float, default=1.0)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.folder or Path(scratch) / "project"
        folder.mkdir(parents=True, exist_ok=True)
        how = (asked.nodes, asked.days, asked.runs, asked.seed, asked.times, asked.minutes)
        result = measure(folder.resolve(), *how)
        result["queries"] = query_seconds(folder.resolve(), result["node"])
    if asked.json:
        asked.json.write_text(json.dumps(result, indent=1))
    show(result)


if __name__ == "__main__":
    main()

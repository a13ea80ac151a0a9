"""Measure the store of runs: its size, what saving a run costs, and how long each query takes.

    python bench/store.py [--runs 10000] [--nodes 64] [--cap MIB]

It saves validations and measurements of pairs through `Runs.save`, with figures as real nodes have them: most counters
stand still, temperatures and power change in every run. One node in fifty has a finding at a time, and cards move.
Without ``--cap``, nothing is deleted; with it, the oldest runs go as `keep_mib` has it. Then it prints the median of
five calls of each query in this process, and of three whole commands.
"""

import argparse
import datetime as dt
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

from gpuops.operations.past import history
from gpuops.store import Runs
from gpuops.store.records import FindingKey, RunRecord, SeenFinding, SeenLink, SeenPart, Visit

BEGAN = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
GPUS, HCAS, DRIVES, CHECKS = 8, 9, 10, 60
FAULTS = (("gpu-lost", "gpu5", "isolate"), ("ib-ports", "mlx5_3", "fail"), ("row-remap-pending", "gpu1", "reset"))


class Node:
    """A node whose counters grow now and then, and whose readings never stand still."""

    def __init__(self, name, dice):
        self.name, self.dice, self.ends, self.fault = name, dice, 0, None
        self.serials = {f"gpu{k}": f"16{dice.randrange(10**11):011d}" for k in range(GPUS)}
        self.serials |= {f"mlx5_{k}": f"{dice.randrange(16**16):016x}" for k in range(HCAS)}
        self.serials |= {f"nvme{k}n1": f"S{dice.randrange(10**12):012d}" for k in range(DRIVES)}
        counters = [f"gpu{g}.{c}" for g in range(GPUS) for c in ("ecc_corrected_volatile", "rows_remapped_corrected")]
        counters += [f"gpu{g}.link{n}.recovery_errors" for g in range(GPUS) for n in range(18)]
        counters += [f"mlx5_{h}.{c}" for h in range(HCAS) for c in ("symbol_error", "link_downed", "port_rcv_errors")]
        counters += [f"nvme{d}n1.media_errors" for d in range(DRIVES)]
        self.counters = dict.fromkeys(counters, 0)
        self.boot = f"{dice.randrange(16**32):032x}"

    def visit(self, run):
        for name in self.dice.sample(sorted(self.counters), 2):
            self.counters[name] += self.dice.randrange(3)
        if run >= self.ends:
            self.fault = self.dice.choice(FAULTS) if self.dice.random() < 0.004 else None
            self.ends = run + self.dice.randrange(5, 60)
        readings = {}
        for gpu in range(GPUS):
            readings[f"gpu{gpu}.temperature_celsius"] = round(self.dice.gauss(45, 6))
            readings[f"gpu{gpu}.power_draw_watts"] = round(self.dice.gauss(300, 120), 2)
            readings[f"gpu{gpu}.memory_used_mib"] = self.dice.randrange(80000)
        checks = {f"check-{k:02d}": "pass" for k in range(CHECKS)} | {fault[0]: "pass" for fault in FAULTS}
        findings = ()
        if self.fault:
            check, part, severity = self.fault
            checks[check] = "fail"
            key = FindingKey(self.name, check, part, "")
            findings = (SeenFinding(key, "fail", severity, f"{part} failed in run {run}", "replace it"),)
        parts = tuple(
            SeenPart({"g": "gpu", "m": "hca", "n": "nvme"}[slot[0]], slot, serial, "model")
            for slot, serial in self.serials.items()
        )
        status = "fail" if findings else "pass"
        return Visit(status, "", self.boot, checks, findings, parts, {**self.counters, **readings}, {"gpus": GPUS})


def record(verb, run, nodes, links=()):
    began = BEGAN + dt.timedelta(minutes=15 * run)
    visits = {node.name: node.visit(run) for node in nodes}
    return RunRecord(verb, began, 8.0, "ok", "ops", f"gpuops {verb}", "prod.yml", "quick", visits, links=links)


def fill(path, count, names, cap_mib):
    """Save the runs; return the seconds that each took."""
    dice = random.Random(7)
    nodes = [Node(name, dice) for name in names]
    seconds = []
    with Runs(path) as runs:
        for run in range(count):
            if run % 500 == 499:  # two cards change places
                a, b = dice.sample(nodes, 2)
                a.serials["gpu1"], b.serials["gpu1"] = b.serials["gpu1"], a.serials["gpu1"]
            is_measured = run % 100 == 99
            pairs = zip(names[::2], names[1::2], strict=True) if is_measured else ()
            links = tuple(SeenLink(a, b, rail, dice.gauss(47, 1), 47.6) for a, b in pairs for rail in range(8))
            new = record("allreduce" if is_measured else "validate", run, nodes, links)
            began = time.perf_counter()
            runs.save(new)
            if cap_mib:
                runs.prune(BEGAN, cap_mib * 2**20)
            seconds.append(time.perf_counter() - began)
    return seconds, nodes


def median(work, times):
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def queries(path, nodes):
    """Every query by name: as a function of the product, and as the words of its command."""
    a, b = nodes[0].name, nodes[1].name
    serial = nodes[0].serials["gpu1"]
    with Runs(path) as runs:
        last = runs.runs(1)[0].number
    names = [node.name for node in nodes]

    def recall():
        with Runs(path, create=False) as runs:
            runs.latest_visits(names, "validate")

    return {
        "diff": (lambda: history.diff(path, ()), ["diff"]),
        "diff, two far runs": (lambda: history.diff(path, (last - 900, last)), ["diff", str(last - 900), str(last)]),
        "history": (lambda: history.of_fleet(path), ["history"]),
        "history NODE": (lambda: history.of_node(path, a), ["history", a]),
        "history gpu": (lambda: history.of_part(path, serial), ["history", "gpu", serial]),
        "history link": (lambda: history.of_link(path, a, b), ["history", "link", a, b]),
        "why NODE": (lambda: history.why(path, a), ["why", a]),
        "runs show": (lambda: history.of_run(path, last), ["runs", "show", str(last)]),
        "place, recalled": (recall, None),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10000)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--cap", type=int, default=0, metavar="MIB")
    asked = parser.parse_args()
    names = [f"gpu{k:03d}" for k in range(1, asked.nodes + 1)]
    with tempfile.TemporaryDirectory() as folder:
        project = pathlib.Path(folder)
        project.joinpath("gpuops.yml").write_text("inventory: prod.yml\n")
        hosts = "".join(f"    {name}:\n" for name in names)
        project.joinpath("prod.yml").write_text(f"all:\n  hosts:\n{hosts}")
        path = project / ".gpuops" / "state.db"
        seconds, nodes = fill(path, asked.runs, names, asked.cap)
        size = sum(file.stat().st_size for file in path.parent.glob("state.db*")) / 2**20
        with Runs(path) as runs:
            kept = runs.count()
        print(
            f"{asked.runs} runs of {asked.nodes} nodes, {kept} kept: {size:.0f} MiB, {size * 1024 / kept:.1f} KiB a run"
        )
        tail = seconds[-200:]
        print(
            f"saving the last 200 runs: median {statistics.median(tail) * 1000:.0f} ms, most {max(tail) * 1000:.0f} ms"
        )
        environment = {**os.environ, "XDG_STATE_HOME": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # where gpuops is installed, it has byte code
        for name, (work, words) in queries(path, nodes).items():
            whole = ""
            if words:
                command = [sys.executable, "-m", "gpuops", *words]
                run = lambda c=command: subprocess.run(  # noqa: E731 - one call, timed as a whole
                    c, cwd=project, env=environment, check=True, stdout=subprocess.DEVNULL
                )
                whole = f", whole command {median(run, 3):.2f} s"
            print(f"{name:<20} {median(work, 5):.3f} s{whole}")


if __name__ == "__main__":
    main()

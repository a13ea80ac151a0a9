"""Run the chain of a job on a lab whose nodes have faults, and see that no rank lands on a node that has one.

    python bench/chain.py [--nodes 64] [--folder DIR]

Three of the five faults are visible to `validate`; two, a slow NIC and slow NVLinks, only under `allreduce`. `place`
and `render` follow, as a user types them. It prints what each command took and what it said of the faulty nodes, and
ends with 1 if a rank, or a rendered file, names one of them, or if the reason does not name the check and, of what was
measured, the part.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FAULTS = (
    ("gpu2:lost", "gpu-lost"),
    ("gpu3:slow=30", "gpu3"),
    ("mlx5_3:port-down", "ib-ports"),
    ("mlx5_5:slow=40", "mlx5_5"),
    ("gpu1:remap-failed", "row-remap-failed"),
)
"""Each with what the reason for the exclusion of its node has to name."""
FAST = ("place", "render")
"""The commands that query no node again."""


def gpuops(folder, *words):
    """Run a command, with byte code as where it is installed; return what it did, its seconds, and those of its CPU."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    used, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "gpuops", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds, now = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, seconds, now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime


def faulty(nodes):
    """Return the faults by node."""
    return {f"gpu{number * nodes // len(FAULTS) + 2:02d}": fault for number, fault in enumerate(FAULTS)}


def chain(folder, nodes):
    """Run the four commands; return their results by name."""
    layout = ("--layout", f"dp={nodes - len(FAULTS)},tp=8")
    commands = {
        "validate": ("validate", "--json"),
        "allreduce": ("allreduce", "--engine", "nccl-tests", "--json"),
        "place": ("place", *layout, "--json"),
        "render": ("render", "-t", "torchrun", *layout, "-o", "launch", "--", "train.py"),
    }
    (folder / "train.py").write_text("")
    return {name: gpuops(folder, *words) for name, words in commands.items()}


def wrong(folder, results, nodes):
    """Yield what does not hold."""
    placed, *_ = results["place"]
    if placed.returncode or results["render"][0].returncode:
        yield f"place and render end with {placed.returncode} and {results['render'][0].returncode}"
        return
    ranks = {rank["node"] for rank in json.loads(placed.stdout)["ranks"]}
    if len(ranks) != nodes - len(FAULTS):
        yield f"{len(ranks)} nodes have ranks"
    written = "\n".join(file.read_text() for file in (folder / "launch").rglob("*") if file.is_file())
    for name, (fault, reason) in faulty(nodes).items():
        told = [line for line in placed.stderr.splitlines() if f"excluded: {name}: " in line]
        if name in ranks or name in written:
            yield f"{name} has a rank in spite of {fault}"
        if not any(reason in line for line in told):
            yield f"{name}: {reason} is not in the reason: {told}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.folder or Path(scratch)
        faults = [word for name, (fault, _) in faulty(asked.nodes).items() for word in ("--fault", f"{name}:{fault}")]
        up, *_ = gpuops(folder, "lab", "up", "--nodes", str(asked.nodes), *faults)
        if up.returncode:
            sys.exit(up.stderr)
        try:
            (folder / "gpuops.yml").write_text("inventory: .gpuops/lab/inventory.yml\n")
            results = chain(folder, asked.nodes)
            found = list(wrong(folder, results, asked.nodes))
        finally:
            gpuops(folder, "lab", "down")
    print(f"{asked.nodes} nodes; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for name, (done, seconds, cpu) in results.items():
        print(f"{name:<10} {seconds:6.1f} s, {cpu:5.1f} s of CPU, exit {done.returncode}")
    print(f"{' and '.join(FAST)}: {sum(results[name][1] for name in FAST):.1f} s together")
    for line in results["place"][0].stderr.splitlines():
        print(f"  {line}")
    for each in found:
        print(f"wrong: {each}")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()

"""A simulated fabric for `gpuops allreduce simulate --program`, which shares no code and no figure with gpuops.

    gpuops allreduce simulate --program "python3 bench/fabric_simulator.py --cell ecmp --nodes 64 --truth truth.json"

Machines, cabling, routing, noise, other tenants and faults are drawn from the seed. `--fault KIND:PERCENT` plants one
fault of that kind in place of the drawn ones, `--fault none` none; `--truth FILE` writes what was planted.
"""

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from fabric_model.faults import KINDS, draw_faults
from fabric_model.measuring import Fabric
from fabric_model.setting import CELLS, draw_setting


def wish_of(text):
    """Return `None` for drawn faults, a word for a strength of drawn ones, or a kind and a percentage."""
    if text in (None, "none", "strong", "mild"):
        return text
    kind, _, percent = text.partition(":")
    if kind not in KINDS:
        raise argparse.ArgumentTypeError(f"unknown kind {kind!r}; expected one of {', '.join(KINDS)}")
    if not 1 <= float(percent or 30) <= 99:
        raise argparse.ArgumentTypeError(f"{percent} % is not from 1 to 99")
    return kind, float(percent or 30)


def draw(cell, nodes, seed, wish=None):
    """Return the fabric of a seed."""
    setting = draw_setting(cell, nodes, seed)
    return Fabric(setting, draw_faults(setting, wish))


def truth(fabric):
    """Return what was planted, as plain data."""
    setting = dataclasses.asdict(fabric.setting)
    del setting["names"]
    faults = [{**dataclasses.asdict(fault), "nodes": sorted(fault.nodes)} for fault in fabric.faults]
    crossed = [list(pair) for pair in fabric.crossed]
    return {"setting": setting, "faults": faults, "pairs_over_slow_links": crossed}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cell", choices=CELLS, default="mixed")
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", type=wish_of, metavar="KIND:PERCENT|none|strong|mild")
    parser.add_argument("--truth", metavar="FILE")
    options = parser.parse_args()
    if not 2 <= options.nodes <= 16384:
        parser.error("--nodes: expected 2 to 16384")
    fabric = draw(options.cell, options.nodes, options.seed, options.fault)
    print(json.dumps(fabric.document()), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("end"):
            break
        print(json.dumps({"figures": fabric.figures(request["round"], request["groups"])}), flush=True)
    if options.truth:
        Path(options.truth).write_text(json.dumps(truth(fabric), indent=1), "utf-8")


if __name__ == "__main__":
    main()

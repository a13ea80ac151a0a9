"""Measure how often isolation accuses a healthy part, and how often it names a faulty one, on independent fabrics.

    python bench/accusations.py [--nodes 16,64] [--cells calm,ecmp] [--cases 100] [--first 0] [--json FILE] [--through]

The fabrics are those of `fabric_simulator.py`, which shares nothing with gpuops. One case in four is healthy, two have
faults of 10 % and more, one has faults of 3 to 9.5 %. In their cells, each case that is not healthy has a fleet-wide
cause or a slow spine link. `--through` runs each case through `gpuops allreduce simulate --program`, which is slower.
"""

import argparse
import collections
import contextlib
import dataclasses
import functools
import itertools
import json
import math
import multiprocessing
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import fabric_simulator
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException
from fabric_model.measuring import LARGE
from fabric_model.setting import CELLS

BOUNDS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
EXACT_ONLY = ("fleet-slow",)
"""Evenly slow: without an expectation nothing shows it, so it counts only in that no part may be accused."""
WISHES = ("none", "strong", "strong", "mild")


@dataclasses.dataclass
class Outcome:
    cell: str
    nodes: int
    seed: int
    wish: str
    planted: list  # of each fault: kind, part, percent, whether it can be named, named exactly, named, shown
    undecidable: list  # of each fault that no judge could find: kind, part, why
    wrong: list  # part, kind, probability
    stated: list  # of each accusation: probability, whether it is wrong
    rounds: int
    limit: int
    seconds: float
    error: str = ""


def case(cell, nodes, seed, *, through=False):
    """Run the case of a seed and compare what is accused with what is planted."""
    wish, started = WISHES[seed % len(WISHES)], time.monotonic()
    run = run_through if through else run_here
    try:
        fabric, result = run(cell, nodes, seed, wish)
    except Exception as error:  # noqa: BLE001 - a crash of the code under test is a result
        return Outcome(cell, nodes, seed, wish, [], [], [], [], 0, 0, 0.0, f"{type(error).__name__}: {error}")
    return outcome(fabric, result, wish, time.monotonic() - started)


def run_here(cell, nodes, seed, wish, confidence=1e-3):
    from gpuops.collective.program_lines import parse_fabric, parse_figures, request_line
    from gpuops.isolation import blame, next_round
    from gpuops.isolation.evidence import Evidence, Measured
    from gpuops.results.isolation import Isolation

    model = fabric_simulator.draw(cell, nodes, seed, wish)
    fabric = parse_fabric(json.dumps(model.document()).encode())
    evidence = Evidence(fabric, confidence=confidence)
    while (planned := next_round(evidence)) is not None:
        number = len(evidence.rounds) + 1
        request = json.loads(request_line(number, planned))
        answer = json.dumps({"figures": model.figures(number, request["groups"])}).encode()
        measured = Measured(planned, parse_figures(answer, number, planned))
        evidence = dataclasses.replace(evidence, rounds=(*evidence.rounds, measured))
    return fabric_simulator.truth(model), Isolation(evidence, blame(evidence)).to_document()


def run_through(cell, nodes, seed, wish):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "truth"
        simulator = [sys.executable, fabric_simulator.__file__, "--cell", cell, "--nodes", str(nodes)]
        simulator += ["--seed", str(seed), "--fault", wish, "--truth", str(file)]
        words = [sys.executable, "-m", "gpuops", "allreduce", "simulate", "--json", "--program", shlex.join(simulator)]
        completed = subprocess.run(words, capture_output=True, text=True, check=False)
        if completed.returncode not in (0, 1, 3):
            raise RuntimeError(completed.stderr.strip())
        return json.loads(file.read_text("utf-8")), json.loads(completed.stdout)


def outcome(truth, result, wish, seconds):
    setting, faults = truth["setting"], truth["faults"]
    accusations = [(blamed, {blamed["part"], *blamed["alternatives"]}) for blamed in result["blamed"]]
    right = set(itertools.chain.from_iterable((*fault["names"], *fault["related"]) for fault in faults))
    if any(fault["kind"].startswith("fleet") and fault["kind"] != "fleet-half" for fault in faults):
        right = set()
    wrong = [
        (blamed["part"], blamed["kind"], blamed["probability"]) for blamed, names in accusations if not names & right
    ]
    wrong += [(str(cause["nodes"][:1]), cause["kind"], None) for cause in result["fleet"] if not faults]
    if right:
        some = (cause for cause in result["fleet"] if cause["rail"] is None and len(cause["nodes"]) < cause["tested"])
        wrong += [(name, cause["kind"], None) for cause in some for name in cause["nodes"] if name not in right]
    stated = [(blamed["probability"], not names & right) for blamed, names in accusations]
    hidden = [(fault["kind"], fault["part"], why) for fault in faults if (why := why_undecidable(fault, truth))]
    planted = [row(fault, accusations, result, truth) for fault in faults if not why_undecidable(fault, truth)]
    limit = 2 * math.ceil(math.log2(setting["nodes"])) + 6 + 4 * len(faults)
    keys = (setting["cell"], setting["nodes"], setting["seed"])
    return Outcome(*keys, wish, planted, hidden, wrong, stated, result["rounds"], limit, seconds)


def why_undecidable(fault, truth):
    """Return why no figure can tell of the fault, from what was planted and measured alone; "" if one can.

    A fault that comes and goes may have rested in every round that ran over its part. A judge that measures a part
    again once it was slow never had a reason to. A node that slows only groups of `LARGE` nodes shows in no group that
    can be told from one without it, if fewer than `LARGE` of the others are healthy. Such faults count in no other
    column.
    """
    if fault["kind"] == "straggler" and count_healthy(truth) < LARGE:
        return "too few healthy nodes for a large group without it"
    return "it never acted while it was measured" if fault["duty"] and not fault["acted"] else ""


def count_healthy(truth):
    """Return how many nodes have no fault and are behind none: the others slow each group that they are in."""
    setting, faulty = truth["setting"], set()
    for fault in truth["faults"]:
        if fault["node"] is not None:
            faulty.add(fault["node"])
        elif fault["leaf"] is not None:
            unit = fault["leaf"] // (setting["rails"] if setting["leaf_per_rail"] else 1)
            faulty |= set(range(unit * setting["unit"], (unit + 1) * setting["unit"]))
    return setting["nodes"] - len(faulty.intersection(range(setting["nodes"])))


def row(fault, accusations, result, truth):
    """Return of one fault: kind, part, percent, if it can be named, is named exactly, is named at all, is shown."""
    names, kind = set(fault["names"]), "flapping" if fault["duty"] else fault["kind"]
    exact = any(blamed["part"] in names and not set(blamed["alternatives"]) - names for blamed, _ in accusations)
    named = any(parts & names for _, parts in accusations)
    unclear = names_in((*result["unclear"], *result["suspects"]))
    shown = named or bool(unclear & {*names, fault["part"], fault["part"].partition(":")[0]})
    if kind == "spine":
        contended = names_in((*result["unclear"], *result["contention"], *evidence_of(result)))
        shown = named or any(contended.issuperset(pair) for pair in truth["pairs_over_slow_links"])
    if kind.startswith("fleet"):
        exact = named = shown = bool(result["fleet"])
    setting = truth["setting"]
    is_stated = setting["states_leaves"] or (setting["states_units"] and fault["kind"] == "uplink")
    is_mapped = is_stated or fault["node"] is not None
    return kind, fault["part"], fault["percent"], is_mapped and kind not in EXACT_ONLY, exact, named, shown


def names_in(texts):
    """Return the words of sentences that may name parts, with folded sets of nodes in full."""
    names = set()
    for word in itertools.chain.from_iterable(re.split(r"[\s;()]+", text) for text in texts):
        bare = word.strip(",:.")
        names |= {bare, bare.partition(":")[0]} if ":" in bare else {bare}
        if "[" in bare or "," in bare:
            with contextlib.suppress(NodeSetException):
                names |= set(NodeSet(bare, resolver=RESOLVER_NOGROUP))
    return names - {"", "leaf", "unit", "link"}


def evidence_of(result):
    return itertools.chain.from_iterable(blamed["evidence"] for blamed in result["blamed"])


def percent(count, total):
    return f"{100 * count / total:.1f} ({count}/{total})" if total else "-"


def table_row(cell, nodes, outcomes):
    healthy = [o for o in outcomes if o.wish == "none" and not o.error]
    faults = [(o, fault) for o in outcomes for fault in o.planted if fault[3]]
    strong = [fault for _, fault in faults if fault[2] >= 10]
    mild = [fault for _, fault in faults if 5 <= fault[2] < 10]
    ran = [o for o in outcomes if not o.error]
    late = [o for o in ran if o.rounds > o.limit]
    cells = [
        cell, nodes, len(outcomes),
        percent(sum(bool(o.wrong) for o in healthy), len(healthy)),
        percent(sum(bool(o.wrong) for o in ran), len(ran)),
        percent(sum(fault[4] for fault in strong), len(strong)),
        percent(sum(fault[5] for fault in strong), len(strong)),
        percent(sum(fault[6] for fault in mild), len(mild)),
        percent(sum(fault[6] for fault in strong), len(strong)),
        sum(len(o.undecidable) for o in ran),
        f"{statistics.median(o.rounds for o in ran) if ran else 0:.0f}, {max((o.rounds for o in ran), default=0)}",
        percent(len(late), len(ran)),
        sum(bool(o.error) for o in outcomes),
        f"{sum(o.seconds for o in ran) / max(1, len(ran)):.2f}",
    ]  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


HEAD = (
    "| cell | nodes | cases | healthy: any part accused, % | all: a healthy part accused, % | "
    "10 % and more: named exactly, % | or as A or B, % | 5 to 10 %: named or shown, % | "
    "10 % and more: named or shown, % | undecidable | rounds: median, maximum | over the limit, % | crashed | "
    "s per case |"
)


def by_kind(outcomes):
    """Return lines with each kind of fault of 10 % and more: named exactly, or as one of several, or shown."""
    rows = collections.defaultdict(list)
    for fault in itertools.chain.from_iterable(o.planted for o in outcomes):
        if fault[2] >= 10 and fault[3]:
            rows[fault[0]].append(fault)
    yield "| kind, 10 % and more | faults | named exactly, % | or as A or B, % | named or shown, % |"
    yield "|---|---|---|---|---|"
    for kind, faults in sorted(rows.items()):
        figures = (percent(sum(fault[column] for fault in faults), len(faults)) for column in (4, 5, 6))
        yield f"| {kind} | {len(faults)} | {' | '.join(figures)} |"


def calibration(outcomes):
    """Yield, for each bound, the runs in which a wrong accusation states at most it: they may be that many of all."""
    ran = [o for o in outcomes if not o.error]
    yield "| stated probability at most | accusations | of these wrong | runs with a wrong one, % | bound, % |"
    yield "|---|---|---|---|---|"
    for bound in (None, *BOUNDS):
        chosen = [[wrong for p, wrong in o.stated if _is_at_most(p, bound)] for o in ran]
        accusations = list(itertools.chain.from_iterable(chosen))
        label = "none stated" if bound is None else f"{bound:g}"
        allowed = "-" if bound is None else f"{100 * bound:g}"
        runs = percent(sum(map(any, chosen)), len(ran))
        yield f"| {label} | {len(accusations)} | {sum(accusations)} | {runs} | {allowed} |"


def _is_at_most(probability, bound):
    return probability is None if bound is None else probability is not None and probability <= bound


def details(outcomes):
    """Yield a line for each missed or undecidable fault, each wrong accusation and each crash."""
    for each in outcomes:
        case = f"{each.cell} {each.nodes} seed {each.seed}"
        for fault in each.planted:
            if not fault[6] and fault[2] >= 5:
                yield f"missed {case}: {fault[0]} {fault[1]} {fault[2]:.0f} %"
        yield from (f"undecidable {case}: {kind} {part}: {why}" for kind, part, why in each.undecidable)
        for part, kind, probability in each.wrong:
            yield f"wrong {case}: {part} {kind}, stated {probability}"
        if each.error:
            yield f"crashed {case}: {each.error}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", default="16,64,128")
    parser.add_argument("--cells", default=",".join(CELLS))
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--through", action="store_true", help="through the command line and its program")
    parser.add_argument("--list", action="store_true", help="list each wrong accusation and each missed fault")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    every, seeds = [], range(options.first, options.first + options.cases)
    print(f"{HEAD}\n|{'---|' * (HEAD.count('|') - 1)}")
    with multiprocessing.Pool(options.processes) as pool:
        for cell, nodes in itertools.product(options.cells.split(","), map(int, options.nodes.split(","))):
            outcomes = pool.map(functools.partial(case, cell, nodes, through=options.through), seeds, 1)
            print(table_row(cell, nodes, outcomes), flush=True)
            every += outcomes
    print("", *by_kind(every), "", *calibration(every), sep="\n")
    if options.list:
        print(*details(every), sep="\n")
    if options.json:
        options.json.write_text(json.dumps([dataclasses.asdict(each) for each in every], indent=1), "utf-8")


if __name__ == "__main__":
    main()

"""Measure how well isolation names faults in seeded simulated fabrics, compared with two simpler methods.

    python bench/isolation.py [--nodes 16,128,1024,4096] [--cases 1000] [--first 0] [--round-robin 0] [--star 0]

Each case has 0 to 5 faults, and one case in two has its leaf map. `--round-robin` and `--star` also run that many
cases, all with their map, through the simpler methods: all pairs of nodes, and the first node with each other one. Both
first measure every node by itself. They call a NIC slow if its median is 5 % below that of its rail. A round robin
takes about 40 s per case with 1,024 nodes. With 4,096 nodes it makes 67 million transfers, which take some minutes and
1.5 GB.
"""

import argparse
import array
import collections
import dataclasses
import functools
import math
import multiprocessing
import os
import statistics
import time

from gpuops.isolation.cases import draw_case
from gpuops.isolation.evidence import Blame, BlamedPart, Evidence, Measured
from gpuops.isolation.intra_node import searching as intra_node
from gpuops.isolation.rounds import RankGroup, Round
from gpuops.isolation.sweeps import rail_groups, round_robin_pairs
from gpuops.isolation.trials import Trial, run

SLOW = 0.95


@dataclasses.dataclass(frozen=True)
class Outcome:
    method: str
    mapped: bool
    faults: int
    named: bool
    ambiguous: bool
    wrong: bool
    rounds: int
    seconds: float


def outcome(method, trial, started):
    case = trial.case
    return Outcome(
        method,
        case.mapped,
        len(case.faults),
        not trial.missed,
        bool(trial.ambiguous),
        bool(trial.false_positives),
        trial.rounds,
        time.time() - started,
    )


def ours(nodes, disturbed, seed):
    started = time.time()
    case = draw_case(nodes, seed, mapped=None if disturbed else True, disturbed=disturbed)
    return outcome("ours", run(case), started)


def round_robin(case):
    fabric = case.declared_fabric
    names = list(fabric.nodes)
    for number in range(len(names) - 1 + len(names) % 2):
        yield tuple(group for pair in round_robin_pairs(names, number) for group in rail_groups(fabric, pair))


def star(case):
    first, *others = case.declared_fabric.nodes
    for other in others:
        yield tuple(rail_groups(case.declared_fabric, (first, other)))


def simple(method, nodes, seed):
    """The pairs of one method, judged by medians: a NIC against its rail, a leaf or node if all its NICs are slow."""
    started = time.time()
    case = draw_case(nodes, seed, mapped=True)
    engine, evidence = case.simulation(), Evidence(case.declared_fabric)
    first = Round("node", tuple(RankGroup((name,)) for name in case.declared_fabric.nodes))
    while first is not None:
        evidence = dataclasses.replace(evidence, rounds=(*evidence.rounds, Measured(first, engine.measure(first))))
        first = intra_node.next_round(evidence)
    figures, rounds = collections.defaultdict(functools.partial(array.array, "d")), len(evidence.rounds)
    for groups in {"round robin": round_robin, "star": star}[method](case):
        rounds += 1
        for figure in engine.measure(Round("rail", groups)):
            for node in figure.group.nodes:
                figures[node, figure.group.rail].append(figure.gb_per_s or 0.0)
    inside = intra_node.blame(evidence).blamed
    medians = {port: statistics.median(rates) for port, rates in figures.items()}
    trial = Trial(case, evidence, Blame((*inside, *judged(case.declared_fabric, medians))))
    return dataclasses.replace(outcome(method, trial, started), rounds=rounds)


def judged(fabric, medians):
    slow = {}
    for rail in fabric.rails:
        level = statistics.median(value for (_, number), value in medians.items() if number == rail)
        slow |= {port: value for port, value in medians.items() if port[1] == rail and value < SLOW * level}
    for leaf, ports in fabric.ports_of.items():
        if all(port in slow for port in ports):
            yield BlamedPart(f"leaf:{leaf}", kind(slow[port] for port in ports))
            for port in ports:
                del slow[port]
    for node in fabric.nodes.values():
        ports = [(node.name, nic.rail) for nic in node.nics]
        if all(port in slow for port in ports):
            yield BlamedPart(node.name, kind(slow[port] for port in ports))
            for port in ports:
                del slow[port]
    for port, value in slow.items():
        yield BlamedPart(fabric.part(*port), kind([value]))


def kind(values):
    return "slow" if any(values) else "hang"


def share(outcomes, what):
    return f"{100 * sum(map(what, outcomes)) / len(outcomes):.1f}" if outcomes else "-"


def row(nodes, label, outcomes):
    mapped = [o for o in outcomes if o.mapped]
    bare = [o for o in outcomes if not o.mapped]
    one = [o.rounds for o in outcomes if o.faults == 1] or [0]
    limit = 2 * math.ceil(math.log2(nodes)) + 6
    cells = [
        nodes,
        label,
        len(outcomes),
        share(mapped, lambda o: o.named),
        share(mapped, lambda o: o.ambiguous),
        share(mapped, lambda o: not o.wrong),
        share(bare, lambda o: o.named),
        share(bare, lambda o: not o.wrong),
        f"{statistics.median(one):g}, {max(one)} of {limit}",
        f"{statistics.median(o.seconds for o in outcomes):.2f}",
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


HEAD = (
    "| nodes | method | cases | map: all named, % | of these A or B, % | map: none wrongly blamed, % | "
    "no map: all named, % | no map: none wrongly blamed, % | rounds for one fault: median, maximum | s per case |"
)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", default="16,128,1024,4096")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--round-robin", type=int, default=0)
    parser.add_argument("--star", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    print(HEAD)
    print("|" + "---|" * (HEAD.count("|") - 1))
    seeds = range(options.first, options.first + options.cases)
    with multiprocessing.Pool(options.processes) as pool:
        for nodes in map(int, options.nodes.split(",")):
            for label, disturbed in (("ours", True), ("ours, undisturbed", False)) if seeds else ():
                print(row(nodes, label, pool.map(functools.partial(ours, nodes, disturbed), seeds, 4)), flush=True)
            for method, cases in (("round robin", options.round_robin), ("star", options.star)):
                some = range(options.first, options.first + cases)
                if some:
                    print(row(nodes, method, pool.map(functools.partial(simple, method, nodes), some, 1)), flush=True)


if __name__ == "__main__":
    main()

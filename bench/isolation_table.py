"""Fill one table of isolation results over time: both simulators, each cell, each number of nodes.

    python bench/isolation_table.py cases.jsonl --cases 16:1000,64:1000,1024:20 --minutes 50
    python bench/isolation_table.py cases.jsonl --minutes 0

The file has one line for each case that has run. A call runs missing cases until its minutes are over, evenly over
cells and sizes, and prints the table of all cases in the file. So a table can be filled in many sittings; --counts
FILE writes its rows as JSON lines, and --page FILE writes it into a page. The cells `own`, `own-quiet` and `own-
unmapped` are the cases of `isolation.py`, without disturbances and without a map of the leaves; the others are those
of `accusations.py`. Rates have a limit in brackets: the highest true rate of wrong accusations, or the lowest of
named faults, that the cases do not contradict with 95 % (Clopper and Pearson, 1934).
"""

import argparse
import collections
import contextlib
import dataclasses
import json
import math
import multiprocessing
import os
import statistics
import time
from pathlib import Path

import accusations
from fabric_model.setting import CELLS

FEWEST = 5
"""Rows of fewer cases say nothing, so a page lacks them."""
OWN = {"own": (True, True), "own-quiet": (True, False), "own-unmapped": (False, True)}
"""The cells of gpuops' own simulator: whether the leaves of their fabrics are known, and whether they are disturbed."""


def upper_limit(count, of, chance=0.05):
    """Return the rate at which ``count`` or fewer ``of`` cases have a chance of 5 %."""
    if count >= of:
        return 1.0
    ways = [math.lgamma(of + 1) - math.lgamma(k + 1) - math.lgamma(of - k + 1) for k in range(count + 1)]
    low, high = count / of, 1.0
    for _ in range(50):
        rate = (low + high) / 2
        logs = (way + k * math.log(rate) + (of - k) * math.log1p(-rate) for k, way in enumerate(ways))
        low, high = (rate, high) if sum(map(math.exp, logs)) > chance else (low, rate)
    return high


def lower_limit(count, of, chance=0.05):
    """Return the rate at which ``count`` or more ``of`` cases have a chance of 5 %."""
    return 1 - upper_limit(of - count, of, chance)


def write_between(page, marker, lines):
    """Replace what stands in the page between the comment ``from MARKER`` and the next comment ``end``."""
    text, begin = page.read_text("utf-8"), f"<!-- from {marker} -->\n"
    before, _, rest = text.partition(begin)
    _, end, after = rest.partition("<!-- end -->\n")
    if not end:
        raise SystemExit(f"{page} has no block <!-- from {marker} --> that ends with <!-- end -->; add one")
    page.write_text("\n".join((before + begin, *lines, "", end + after)), "utf-8")


def own_case(cell, nodes, seed):
    """Run a case of gpuops' own simulator and return it in the form of `accusations.Outcome`."""
    from gpuops.isolation.cases import draw_case
    from gpuops.isolation.faults import masking_faults
    from gpuops.isolation.trials import run

    started, (mapped, disturbed) = time.monotonic(), OWN[cell]
    case = draw_case(nodes, seed, mapped=mapped, disturbed=disturbed)
    try:
        trial = run(case)
    except Exception as error:  # noqa: BLE001 - a crash of the code under test is a result
        return accusations.Outcome(cell, nodes, seed, "", [], [], [], [], 0, 0, 0.0, f"{type(error).__name__}: {error}")
    blamed, unclear = trial.blame.blamed, accusations.names_in((*trial.blame.unclear, *trial.blame.suspects))
    faulty = {fault.part for fault in case.faults}
    hidden = [fault for fault in case.faults if masking_faults(fault, case.faults, case.fabric)]
    planted = [own_row(fault, case, blamed, unclear) for fault in case.faults if fault not in hidden]
    masked = [(fault.kind, fault.part, "a worse fault on its path hides it") for fault in hidden]
    wrong = [(each.part, each.kind, each.probability) for each in trial.false_positives]
    stated = [(each.probability, faulty.isdisjoint((each.part, *each.alternatives))) for each in blamed]
    limit, wish = 2 * math.ceil(math.log2(nodes)) + 6 + 4 * len(case.faults), "" if case.faults else "none"
    seconds = time.monotonic() - started
    return accusations.Outcome(cell, nodes, seed, wish, planted, masked, wrong, stated, trial.rounds, limit, seconds)


def own_row(fault, case, blamed, unclear):
    """Return the same row as `accusations.row`. Of two units, no figure tells an uplink from the other end."""
    percent = 100 if fault.percent is None else fault.percent
    same = {fault.part}
    if fault.part.startswith("unit:") and len(case.fabric.units) == 2:
        rail = fault.part.partition("/")[2]
        same |= {"spine", *(f"unit:{unit}/{rail}" for unit in case.fabric.units)}
    naming = [each for each in blamed if fault.part in {each.part, *each.alternatives}]
    exact = any(each.part in same and same.issuperset(each.alternatives) for each in blamed)
    shown = bool(naming) or bool(unclear & {fault.part, fault.part.partition(":")[0]})
    is_mapped = case.mapped or not fault.part.startswith(("leaf:", "unit:"))
    return fault.kind, fault.part, percent, is_mapped, exact, bool(naming), shown


def run_case(key):
    cell, nodes, seed = key
    return own_case(cell, nodes, seed) if cell in OWN else accusations.case(cell, nodes, seed)


def missing(cells, plan, first, done):
    """Yield the keys of cases that have not run, so that all cells and sizes are filled at the same pace."""
    keys = (
        ((number + 0.5) / cases, cell, nodes, first + number)
        for nodes, cases in plan.items()
        for cell in cells
        for number in range(cases)
    )
    yield from (key for _, *rest in sorted(keys) if (key := tuple(rest)) not in done)


def read(file, outcome_type):
    """Yield the outcomes in the file; an interrupted call may have left half a line at its end."""
    for line in file.read_text("utf-8").splitlines() if file.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):
            yield outcome_type(**json.loads(line))


def by_key(file):
    return {(each.cell, each.nodes, each.seed): each for each in read(file, accusations.Outcome)}


def fill(file, run, keys, minutes, processes):
    """Run a case for each key and append its outcome to the file, until the minutes are over or no key is left."""
    until = time.monotonic() + 60 * minutes
    with multiprocessing.Pool(processes) as pool, file.open("a", encoding="utf-8") as lines:
        for outcome in pool.imap_unordered(run, keys, 1) if minutes else ():
            print(json.dumps(dataclasses.asdict(outcome)), file=lines, flush=True)
            if time.monotonic() > until:
                pool.terminate()
                return


def counts(cell, nodes, outcomes):
    """Return the figures of one row, by name."""
    ran = [o for o in outcomes if not o.error]
    faults = [fault for o in ran for fault in o.planted if fault[3]]
    strong = [fault for fault in faults if fault[2] >= 10]
    with_strong = [o for o in ran if any(fault[2] >= 10 for fault in o.planted)]
    mild = [fault for fault in faults if 5 <= fault[2] < 10]
    return {
        "cell": cell,
        "nodes": nodes,
        "cases": len(outcomes),
        "crashed": len(outcomes) - len(ran),
        "accusations": sum(len(o.stated) for o in ran),
        "wrong_cases": sum(bool(o.wrong) for o in ran),
        "strong": len(strong),
        "strong_exact": sum(fault[4] for fault in strong),
        "strong_named": sum(fault[5] for fault in strong),
        "strong_shown": sum(fault[6] for fault in strong),
        "mild": len(mild),
        "mild_shown": sum(fault[6] for fault in mild),
        "undecidable": sum(len(o.undecidable) for o in ran),
        "rounds_median": statistics.median(o.rounds for o in ran) if ran else 0,
        "rounds_max": max((o.rounds for o in ran), default=0),
        "late": sum(o.rounds > o.limit for o in ran),
        "strong_cases": len(with_strong),
        "strong_late": sum(o.rounds > o.limit for o in with_strong),
        "seconds_median": round(statistics.median(o.seconds for o in ran), 2) if ran else 0,
    }


def at_most(count, of):
    return f"{count}/{of} (≤ {100 * upper_limit(count, of):.2g} %)" if of else "-"


def at_least(count, of):
    return f"{100 * count / of:.1f} % of {of} (≥ {100 * lower_limit(count, of):.1f})" if of else "-"


HEAD = (
    "| cell | nodes | wrong accusations in cases | 10 % and more: named exactly | named or as A or B | or shown | "
    "5 to 10 %: named or shown | undecidable | rounds: median, most | over the limit with faults of 10 %; of all |"
)


def table_row(row):
    of, ran = row["strong"], row["cases"] - row["crashed"]
    wrong = at_most(row["wrong_cases"], ran) + (f", {row['crashed']} crashed" if row["crashed"] else "")
    cells = [
        row["cell"], row["nodes"], wrong,
        at_least(row["strong_exact"], of), at_least(row["strong_named"], of), at_least(row["strong_shown"], of),
        at_least(row["mild_shown"], row["mild"]), row["undecidable"],
        f"{row['rounds_median']:.0f}, {row['rounds_max']}",
        f"{row['strong_late']}/{row['strong_cases']}; {row['late']}/{ran}",
    ]  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def rows_of(outcomes):
    """Return the counts of each cell and size, then of each size over all cells."""
    grouped = collections.defaultdict(list)
    for (cell, nodes, _), outcome in outcomes.items():
        grouped[nodes, "own cells" if cell in OWN else "all cells"].append(outcome)
        grouped[nodes, cell].append(outcome)
    order = (*OWN, "own cells", *CELLS, "all cells")
    keys = sorted(grouped, key=lambda key: (key[0], order.index(key[1])))
    return [counts(cell, nodes, grouped[nodes, cell]) for nodes, cell in keys]


def plan_of(text):
    return {int(nodes): int(cases) for nodes, _, cases in (part.partition(":") for part in text.split(","))}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--cells", default=",".join((*OWN, *CELLS)))
    parser.add_argument("--cases", type=plan_of, default="16:1000,64:1000,128:1000,1024:1000,4096:200")
    parser.add_argument("--first", type=int, default=1_000_000, help="the first seed")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--counts", type=Path, metavar="FILE")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the table into its block for it")
    parser.add_argument("--list", action="store_true", help="list wrong accusations, missed faults and crashes")
    options = parser.parse_args()
    keys = missing(options.cells.split(","), options.cases, options.first, by_key(options.file))
    fill(options.file, run_case, keys, options.minutes, options.processes)
    outcomes = by_key(options.file)
    rows = rows_of(outcomes)
    head, every = (HEAD, f"|{'---|' * (HEAD.count('|') - 1)}"), list(outcomes.values())
    print(*head, *map(table_row, rows), sep="\n")
    print("", *accusations.by_kind(every), "", *accusations.calibration(every), sep="\n")
    if options.list:
        print("", *accusations.details(every), sep="\n")
    if options.page:
        told = (table_row(row) for row in rows if row["cases"] >= FEWEST)
        write_between(options.page, "isolation_table.py", (*head, *told))
    if options.counts:
        options.counts.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")


if __name__ == "__main__":
    main()

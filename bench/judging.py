"""Measure the cost of one 8-GPU node's answer without transport: parsing and judging, in milliseconds of CPU time.

    python bench/judging.py

One lab host answers over real SSH. Its answers become those of many nodes (see render.py), each of which is parsed and
judged at the quick level, several times; the fastest round counts, because other programs only make one slower.
"""

import datetime as dt
import json
import pathlib
import subprocess
import sys
import tempfile
import time

from render import as_node

from gpuops import assessment, facts, judging
from gpuops.catalogue import Catalogue

NODES = 50
ROUNDS = 8


def saved_node(folder):
    """The saved answers of one healthy hgx-h100 host."""
    for words in (
        ("lab", "up", "--nodes", "1"),
        ("validate", "-i", ".gpuops/lab/inventory.yml", "--save", "saved", "-o", "report.json"),
        ("lab", "down"),
    ):
        subprocess.run([sys.executable, "-m", "gpuops", *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return (folder / "saved" / "gpu01.json").read_text()


def answers_of(number, said):
    document = json.loads(as_node(number, said))
    return [facts._restored(document["node"], answer) for answer in document["answers"]]


def milliseconds(work, items):
    """The CPU time of ``work`` on one of ``items``, in the fastest round over all of them."""
    seconds = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for item in items:
            work(item)
        seconds.append(time.process_time() - began)
    return min(seconds) / len(items) * 1000


def main():
    catalogue = Catalogue()
    checks = judging.choose(catalogue.checks(), "quick")
    probes = assessment.probes_for(checks)
    with tempfile.TemporaryDirectory() as folder:
        said = saved_node(pathlib.Path(folder))
    nodes = [answers_of(number, said) for number in range(NODES)]
    expected, now = catalogue.profiles()["hgx-h100"], dt.datetime.now(dt.timezone.utc)

    def parse(answers):
        return facts.read("gpu01", now, answers, probes)

    parsed = milliseconds(parse, nodes)
    judged = milliseconds(lambda known: judging.judge_node(checks, known, expected), [parse(own) for own in nodes])
    size = sum(len(answer.out) for answer in nodes[0]) / 1024
    print(f"answer           {size:.0f} KiB in {len(nodes[0])} parts, {len(checks)} checks of level quick")
    print(f"parse            {parsed:.2f} ms")
    print(f"judge            {judged:.2f} ms")
    print(f"parse and judge  {parsed + judged:.2f} ms")


if __name__ == "__main__":
    main()

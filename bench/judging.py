"""Measure the cost of one 8-GPU node's answer without transport: parsing and judging, in milliseconds.

    python bench/judging.py

The answer comes from one lab host over real SSH, and is then parsed and judged many times.
"""

import datetime as dt
import json
import pathlib
import subprocess
import sys
import tempfile
import time

from gpuops import assessment, facts, judging
from gpuops.catalogue import Catalogue
from gpuops.probes.nvidia.nvidia_smi import parse_smi

TIMES = 100


def recorded_answers(folder):
    """The answers of one healthy hgx-h100 host."""
    for words in (
        ("lab", "up", "--nodes", "1"),
        ("validate", "-i", ".gpuops/lab/inventory.yml", "--save", "saved", "-o", "report.json"),
        ("lab", "down"),
    ):
        subprocess.run([sys.executable, "-m", "gpuops", *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    document = json.loads((folder / "saved" / "gpu01.json").read_text())
    return [facts._restored("gpu01", answer) for answer in document["answers"]]


def milliseconds(work):
    began = time.process_time()
    for _ in range(TIMES):
        work()
    return (time.process_time() - began) / TIMES * 1000


def main():
    catalogue = Catalogue()
    checks = judging.choose(catalogue.checks(), "quick")
    probes = assessment.probes_for(checks)
    with tempfile.TemporaryDirectory() as folder:
        answers = recorded_answers(pathlib.Path(folder))
    expected = catalogue.profiles()["hgx-h100"]

    def parse():
        parse_smi.cache_clear()  # which would give the answer of the round before
        return facts.read("gpu01", dt.datetime.now(dt.timezone.utc), answers, probes)

    known = parse()
    size = sum(len(answer.out) for answer in answers) / 1024
    print(f"answer  {size:.0f} KiB in {len(answers)} parts, {len(checks)} checks")
    print(f"parse   {milliseconds(parse):.2f} ms")
    print(f"judge   {milliseconds(lambda: judging.judge_node(checks, known, expected)):.2f} ms")


if __name__ == "__main__":
    main()

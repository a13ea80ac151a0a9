"""Remove guards in a copy of the tree and run their tests, which must fail: ``remove_guards.py [WORD]...``.

A promise counts as proved only if its test notices that the guard is gone. ``promises.yml`` lists the promises with
their guards. A WORD chooses the guards whose description or file has it; ``--sample`` chooses some at random.
"""

import argparse
import contextlib
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

import yaml

ROOT = pathlib.Path(__file__).parents[2]
LONGEST_SECONDS = 300
"""Time limit of one test; without its guard, a test may hang, which counts as noticed."""


class Guard(NamedTuple):
    """Code that is removed: in ``file``, ``remove`` is replaced by ``put``, and ``test`` must fail."""

    what: str
    file: str
    remove: str
    test: str
    put: str = ""


def guards() -> list[Guard]:
    """Return every guard of every promise."""
    subjects = yaml.safe_load((ROOT / "tests" / "mutations" / "promises.yml").read_text("utf-8"))
    return [Guard(**each) for promises in subjects.values() for promise in promises for each in promise["guards"]]


def outcome(guard: Guard, copy: pathlib.Path) -> str:
    """Return how the guard's test ends in the copy: ``passed``, ``failed``, ``skipped`` or ``did not run``."""
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", guard.test]
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("GPUOPS_CI", None)  # with it, tests try more cases than a guard needs
    process = subprocess.Popen(
        words,
        cwd=copy,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=LONGEST_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return "failed"
    if process.returncode > 1:
        sys.stdout.write(said[-500:])
        return "did not run"
    return "failed" if process.returncode else "passed" if re.search(r"\d+ passed", said) else "skipped"


@contextlib.contextmanager
def removed(guard: Guard, copy: pathlib.Path) -> Iterator[None]:
    """Remove the guard in the copy, and put it back at the end."""
    path = copy / guard.file
    text = path.read_text("utf-8")
    if text.count(guard.remove) != 1:
        raise SystemExit(f"{guard.file}: the guard is there {text.count(guard.remove)} times: {guard.remove!r}")
    path.write_text(text.replace(guard.remove, guard.put), "utf-8")
    try:
        yield
    finally:
        path.write_text(text, "utf-8")


def verdict(guard: Guard, copy: pathlib.Path) -> str:
    """Return whether the test notices that the guard is gone, in capitals if not; it must pass with the guard."""
    before = outcome(guard, copy)
    if before != "passed":
        return "not tried" if before == "skipped" else f"{before} with the guard".upper()
    with removed(guard, copy):
        after = outcome(guard, copy)
    return "noticed" if after == "failed" else f"{after} without the guard".upper()


def main() -> int:
    """Try the chosen guards; return the number of those whose removal no test noticed.

    With GPUOPS_CI=1, no test may be skipped.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--sample", type=int, metavar="N", help="try N guards, chosen at random")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="choose others (default: 0)")
    options = parser.parse_args()
    words = options.words or [""]
    chosen = [guard for guard in guards() if any(word in f"{guard.what} {guard.file}" for word in words)]
    if options.sample is not None:
        chosen = random.Random(options.seed).sample(chosen, min(options.sample, len(chosen)))
    unproved = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "tree"
        ignored = shutil.ignore_patterns(".venv", ".git", "dist", "__pycache__", ".*_cache", ".hypothesis")
        shutil.copytree(ROOT, copy, ignore=ignored)
        for guard in chosen:
            word = verdict(guard, copy)
            unproved += word.isupper() or (word == "not tried" and os.environ.get("GPUOPS_CI") == "1")
            sys.stdout.write(f"{word:<13}  {guard.what} ({guard.file})\n")
            sys.stdout.flush()
    return unproved


if __name__ == "__main__":
    sys.exit(min(main(), 1))

"""The groups of a layout are those that the libraries make when they are asked, in each order and up to 512 ranks."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuops.layout import parse_layout

HERE = Path(__file__).parent
ORDERS = "tp-cp-ep-dp-pp tp-cp-ep-pp-dp dp-tp-cp-ep-pp pp-dp-tp-cp-ep cp-tp-ep-dp-pp".split()
LAYOUTS = [
    *((words, order) for words in ("dp=2,pp=2,tp=2", "dp=4,pp=2,tp=2", "dp=16,pp=4,tp=8") for order in ORDERS),
    ("dp=64,tp=8", "tp-cp-ep-dp-pp"),
    ("pp=8", "tp-cp-ep-dp-pp"),
    ("dp=2,pp=2,tp=2,cp=2", "tp-cp-ep-dp-pp"),
    ("dp=2,pp=2,tp=2,cp=2", "cp-tp-ep-dp-pp"),
    ("dp=4,pp=2,tp=2,cp=4,ep=8", "tp-cp-ep-dp-pp"),
    ("dp=4,pp=2,tp=2,ep=2", "tp-cp-ep-dp-pp"),
    ("dp=4,pp=2,tp=2,ep=4", "ep-dp-tp-cp-pp"),
    ("dp=8,pp=2,tp=4,cp=8,ep=16", "tp-cp-ep-dp-pp"),
]
DEEPSPEED_LAYOUTS = ["dp=2,pp=2", "dp=4,pp=2", "dp=2,pp=2,tp=2", "dp=4,pp=2,tp=2", "dp=16,pp=4,tp=8", "dp=64,pp=8"]


def some(ranks):
    """At most 17 of the ranks, the first and the last among them."""
    return sorted({*range(0, ranks, max(1, ranks // 15)), ranks - 1})


def groups(layout, *axes):
    """All groups of each axis, as lists."""
    return {axis: [list(group) for group in layout.groups(axis)] for axis in axes}


def ask(library, questions):
    """What a library's script answers to each question."""
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"there is no {library} here, which is of the extra gpuops[launch]")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", HERE / f"{library}_groups.py"],
        input="\n".join(map(json.dumps, questions)),
        env={**os.environ, "DS_ACCELERATOR": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def megatron():
    """What megatron-core makes of every layout: groups by rank, and by its RankGenerator."""
    layouts = [parse_layout(*case) for case in LAYOUTS]
    answers = ask("megatron", [{**vars(layout), "ranks": some(layout.ranks)} for layout in layouts])
    return dict(zip(LAYOUTS, answers, strict=True))


@pytest.mark.parametrize("case", LAYOUTS, ids=" ".join)
def test_a_rank_is_in_the_groups_that_megatron_core_puts_it_in(megatron, case):
    layout = parse_layout(*case)
    joined = megatron[case]["joined"]
    assert [int(rank) for rank in joined] == some(layout.ranks)
    for rank, theirs in joined.items():
        ours = {axis: [group for group in groups(layout, axis)[axis] if int(rank) in group] for axis in theirs}
        assert ours == {axis: [group] for axis, group in theirs.items()}


@pytest.mark.parametrize("case", LAYOUTS, ids=" ".join)
def test_all_groups_are_those_of_megatron_cores_rank_generator(megatron, case):
    theirs = {axis: sorted(found) for axis, found in megatron[case]["generated"].items()}
    assert groups(parse_layout(*case), "tp", "pp", "dp", "cp") == theirs


@pytest.fixture(scope="module")
def deepspeed():
    """The groups of DeepSpeed's topology for every layout."""
    layouts = [parse_layout(words) for words in DEEPSPEED_LAYOUTS]
    answers = ask("deepspeed", [{"dp": layout.dp, "pp": layout.pp, "tp": layout.tp} for layout in layouts])
    return dict(zip(DEEPSPEED_LAYOUTS, answers, strict=True))


@pytest.mark.parametrize("words", DEEPSPEED_LAYOUTS)
def test_all_groups_are_those_of_deepspeeds_topology(deepspeed, words):
    axes = ("pp", "dp", "tp") if "tp" in words else ("pp", "dp")  # it makes no groups of one
    theirs = {axis: sorted(deepspeed[words][axis]) for axis in axes}
    assert groups(parse_layout(words), *axes) == theirs

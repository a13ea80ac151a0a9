"""What an operator reads about a big fleet fits on a screen: 60 lines of 80 columns, with every fact in it."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import CI

from gpuops import simulate_program
from gpuops.collective.measurement import Measurement
from gpuops.collective.network_tests.verdicts import NetworkFailure
from gpuops.isolation.cabling import Cabling, build_fabric
from gpuops.isolation.evidence import Blame, BlamedPart, Evidence, Sentence
from gpuops.reasons import EXIT_CODES, Excluded
from gpuops.report.all_reduce import isolation
from gpuops.report.all_reduce.measurement import render
from gpuops.report.page import Page

pytestmark = pytest.mark.sampled

PROGRAM = Path(__file__).with_name("big_fabric.py")
NODES = 1024 if CI else 160
FEWER = {"contention": 384, "errors": 384}  # thousands of suspects, which take minutes among 1,024 nodes
LINES, WIDTH = 60, 80
BIG = build_fabric(Cabling(1024, 8, unit=16))
NAMES = list(BIG.nodes)


def fits(text):
    lines = text.splitlines()
    commands = [line for line in lines if line.strip().startswith("gpuops ")]  # they stay whole, to be pasted
    assert max(len(line) for line in lines if line not in commands) <= WIDTH
    assert len(lines) <= LINES
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("case", "code", "words"),
    [
        ("healthy", 0, ["no part is blamed"]),
        (
            "hca",
            1,
            [
                "BLAMED node0117 mlx5_3 (rail 3)",
                "optic and cable of mlx5_3",
                'if "allreduce loopback" finds it fast by itself',
            ],
        ),
        ("leaf", 1, ["BLAMED leaf SU7-2 (node[0140-0159])", "check switch SU7-2"]),
        ("sockets", 1, [f"FLEET between nodes, {NODES} of {NODES} nodes", "TCP instead of RDMA", "NET/Socket"]),
        ("even", 0, ["low rails: all are low; look for what the nodes have in common"]),
        ("half", 1, ["FLEET between nodes", f"of {NODES} nodes slow", "compare the NCCL version"]),
        pytest.param(
            *("contention", 0, ["% of normal", "no part is blamed"]),
            marks=pytest.mark.long,
        ),
        pytest.param(
            *("unmapped", 3, ["slow like others of the rail", "declare the leaf of each port (fabric:)"]),
            marks=pytest.mark.long,
        ),
        ("unclear", 3, ["unclear"]),
        pytest.param(
            *("errors", 3, ["Got completion from peer", "pairs, such as node0", "healthy with other partners"]),
            marks=pytest.mark.long,
        ),
        ("dead", 1, ["unreachable", "node0"]),
    ],
)
def test_each_condition_of_a_fleet_fits_on_a_screen(case, code, words):
    fewest = 1024 if case == "unmapped" else NODES  # among fewer, some of 20 slow NICs can be told apart
    nodes = min(fewest, FEWER.get(case, fewest))
    result = simulate_program([sys.executable, str(PROGRAM), case, str(nodes)])
    assert EXIT_CODES[result.conclusion()] == code
    program = fits("\n".join(isolation.lines(result, Page(WIDTH))))
    real = fits(render(Measurement(result.evidence, result.blame, "nccl"), Page(WIDTH)))
    for each in words:
        assert each in program
        if case != "even":  # a fleet without profiles is compared with nothing here
            assert each in real


def slow(part, kind="slow", *alternatives):
    return BlamedPart(part, kind, 30.0 + len(part) % 3, 48.0, evidence=("30 of 48 GB/s",), alternatives=alternatives)


def measured(blame, **more):
    return fits(render(Measurement(Evidence(BIG), blame, "nccl", **more), Page(WIDTH)))


def test_three_hundred_unclear_suspects_are_a_few_lines():
    parts = [f"{name}:mlx5_{number % 8}" for number, name in enumerate(NAMES[::3][:300])]
    words = [Sentence(f"{part} may be slow by {n % 9} %", [part], "may be slow") for n, part in enumerate(parts)]
    told = measured(Blame(unclear=tuple(words), suspects=(*parts, *NAMES[-300:])))
    assert "may be slow: 300 parts, gpu[" in told
    assert "suspects gpu[0724-1023]: not confirmed" in told


def test_a_hundred_kinds_of_unclear_sentences_are_counted():
    told = measured(Blame(unclear=tuple(f"reason {'x' * number}" for number in range(100))))
    assert "92 more: --json lists them" in told


def test_few_blamed_parts_are_told_in_full():
    blamed = [slow(f"{name}:mlx5_3") for name in NAMES[:5]]
    assert measured(Blame(tuple(blamed))).count("BLAMED") == 5


def test_many_blamed_parts_share_a_block_that_names_all_places():
    parts = [slow(f"{name}:mlx5_3") for name in NAMES[:20]]
    others = [slow("leaf:L3"), slow("leaf:L4"), slow("unit:U2/rail3", "slow", "unit:U3/rail3"), slow(NAMES[40], "hang")]
    told = measured(Blame((*parts, *others)))
    assert told.count("BLAMED") == 1
    assert "BLAMED 24 parts" in told
    assert "gpu[0000-0019] mlx5_3: slow, 3" in told
    assert "leaf L[3-4]: slow" in told
    assert "unit:U2/rail3 or unit:U3/rail3: slow" in told
    assert "gpu0040: hang" in told
    assert "do slow, such as gpu0000:mlx5_3: clean or replace the optic" in told


def test_parts_without_a_pattern_are_counted():
    blamed = [slow(f"{name}:gpu{number * 7 % 8}") for number, name in enumerate(NAMES[:900])]
    blamed += [slow(f"{name}:mlx5_{number % 8}", "error") for number, name in enumerate(NAMES[:700])]
    assert "BLAMED 1600 parts" in measured(Blame(tuple(blamed)))


def test_many_excluded_nodes_and_failed_tests_are_counted():
    reasons = {name: Excluded(name, "busy", f"skipped: busy (Slurm job {n})") for n, name in enumerate(NAMES[:300])}
    failures = [NetworkFailure("tcp", (name, NAMES[0]), "no connection", "open the ports") for name in NAMES[1:300]]
    told = measured(Blame(), excluded=reasons, failures=failures)
    assert "without 294 more, for other reasons: --json lists them" in told
    assert "and 295 more failures of tcp: --json lists the nodes" in told


def test_a_number_with_thousands_is_never_split():
    part = replace(slow("gpu0001"), evidence=("x" * 21,), probability=1 / 11000)
    assert "11,000 runs" in "\n".join(render(Measurement(Evidence(BIG), Blame((part,)), "nccl"), Page(61)).split("\n"))

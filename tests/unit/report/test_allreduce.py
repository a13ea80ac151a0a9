from dataclasses import replace

import pytest

from gpuops.collective.expectations import Expectations
from gpuops.collective.measurement import Measurement
from gpuops.isolation.cabling import Cabling, build_fabric
from gpuops.isolation.evidence import Blame, BlamedPart, Evidence, Measured
from gpuops.isolation.fabric import Fabric, FabricNic, FabricNode
from gpuops.isolation.rounds import GroupResult, RankGroup, Round
from gpuops.profile import load
from gpuops.reasons import Excluded
from gpuops.report.all_reduce.blame import part_in_words
from gpuops.report.all_reduce.measurement import render
from gpuops.report.page import Page

FABRIC = build_fabric(Cabling(8, 8, unit=4))
NAMES = tuple(FABRIC.nodes)
EXPECTATIONS = Expectations(FABRIC, dict.fromkeys(NAMES, load("hgx-h100")))
SLOW = BlamedPart(
    "gpu005:mlx5_6",
    "slow",
    31.2,
    48.0,
    ("gpu002", "gpu003"),
    2,
    ("31.2 of 48.0 GB/s with 2 partners in 2 units; its other rails 47.9-48.6", "symbol errors +412 on mlx5_6"),
)
ALIKE = ("NCCL 2.28.9, /usr/lib/libnccl.so.2", "driver for CUDA 13.0")
EXCLUDED = {
    "gpu017": Excluded("gpu017", "unhealthy", "fails gpu-lost", checks=("gpu-lost",)),
    **{name: Excluded(name, "unreachable", "unreachable") for name in ("gpu063", "gpu064")},
}
SETTINGS = {**dict.fromkeys(NAMES, ALIKE), NAMES[7]: (ALIKE[0], "driver for CUDA 12.8", "NCCL_ALGO=Ring")}


def evidence(slow=("gpu005", 6), rate=31.2):
    """Return rounds within nodes, of pairs on each rail (twice), of full pairs and of the whole group."""

    def on_rail(pair, rail):
        return rate if rail == slow[1] and slow[0] in pair else 48.0

    pairings = [[(NAMES[k], NAMES[k ^ bit]) for k in range(8) if k < k ^ bit] for bit in (1, 2)]
    rails = [[GroupResult(RankGroup(p, rail=r), on_rail(p, r)) for p in pairs for r in range(8)] for pairs in pairings]
    rounds = [
        ("node", [GroupResult(RankGroup((name,)), 478.0 + k) for k, name in enumerate(NAMES)]),
        *(("rail", figures) for figures in rails),
        ("pair", [GroupResult(RankGroup(pair), 470.0) for pair in pairings[0]]),
        ("group", [GroupResult(RankGroup(NAMES), 386.0)]),
    ]
    made = (Measured(Round(scope, tuple(f.group for f in fs)), tuple(fs)) for scope, fs in rounds)
    return Evidence(FABRIC, tuple(made))


def expecting(measurement):
    """Return a measurement of this evidence, with the expected bandwidths."""
    return replace(measurement, expected=EXPECTATIONS.of_evidence(measurement.evidence))


@pytest.fixture
def report():
    return expecting(Measurement(evidence(), Blame((SLOW,)), "nccl", "NCCL is on the nodes", EXCLUDED, SETTINGS))


def test_report_fits_one_page(report):
    said, _, remedy = render(report).partition("  do  ")
    assert "optic" in remedy
    assert (
        said
        == """\
pool    8 of 11 nodes
        without gpu017: fails gpu-lost
        without gpu[063-064]: unreachable
engine  nccl   NCCL is on the nodes
        NCCL 2.28.9, /usr/lib/libnccl.so.2; driver for CUDA 13.0 (gpu[000-006]);
        driver for CUDA 12.8 (gpu007); NCCL_ALGO=Ring (gpu007)

within nodes    8/8      478-485 GB/s      expected 466
rails           63/64    48 GB/s           expected 48, a guess
pairs of nodes  4/4      470 GB/s          expected 466, a guess
group of 8      1/1      386 GB/s          expected 366, a guess

gpu[000-007], each cell a node: . normal, 0-9 tenths of usual, x hangs
in nodes  ........
rail 0    ........
rail 1    ........
rail 2    ........
rail 3    ........
rail 4    ........
rail 5    ........
rail 6    .....6..
rail 7    ........
gpu005    rail 6: 31.2 of 48 GB/s

BLAMED  gpu005 mlx5_6 (rail 6)                                              slow
  31.2 of 48.0 GB/s with 2 partners in 2 units; its other rails 47.9-48.6
  symbol errors +412 on mlx5_6
"""
    )


def test_settings_that_differ_on_every_node_are_counted():
    own = {name: ("through eth0", f"/hosts/{name}/libnccl.so.2") for name in NAMES}
    said = render(Measurement(evidence(), Blame(), "nccl", settings=own))
    assert "        through eth0; 8 settings differ between nodes: --json lists them\n" in said


def test_healthy_nodes_have_no_map_and_no_blame():
    said = render(Measurement(evidence(rate=48.0), Blame(), "tcp"))
    assert said.count("\n\n") == 2
    assert "rails           64/64    48 GB/s\n" in said
    assert said.endswith("\nno part is blamed\n")
    assert "each cell" not in said


def test_slowness_everywhere_is_reported_and_blames_no_part():
    half = Measured(Round("rail", ()), tuple(GroupResult(RankGroup(NAMES[:2], rail=r), 24.0) for r in range(8)))
    said = render(expecting(Measurement(Evidence(FABRIC, (half,)), Blame(), "nccl")))
    assert "rails           16/16    24 GB/s           expected 48, a guess\n" in said
    assert "low         rails: all are low; look for what the nodes have in common\n" in said
    assert "low  " not in render(expecting(Measurement(evidence(), Blame(), "nccl")))


@pytest.mark.parametrize("width", [40, 60, 80, 132])
def test_lines_fit_the_page(report, width):
    lines = render(report, Page(width)).splitlines()
    assert max(len(line) for line in lines if not line.strip().startswith("gpuops ")) <= width  # a command stays whole


def test_uncertain_results_are_marked():
    blame = Blame(contention=("gpu001-gpu007 on rail 3",), suspects=("gpu002",), unclear=("gpu003: no libnccl.so.2",))
    said = render(Measurement(evidence(rate=48.0), blame, "nccl", interrupted=True))
    assert "contention  gpu001-gpu007 on rail 3\n" in said
    assert "            no part is blamed for this\n" in said
    assert "unclear     gpu003: no libnccl.so.2\n" in said
    assert "suspects    gpu002: not confirmed\n" in said
    assert "interrupted before all rounds had run" in said
    assert "\nno part is blamed" not in said


def test_hanging_groups_count_as_measured_and_not_healthy():
    hung = Measured(Round("group", (RankGroup(NAMES),)), (GroupResult(RankGroup(NAMES), None, "hang", ("gpu003",)),))
    said = render(expecting(Measurement(Evidence(FABRIC, (hung,)), Blame(), "nccl")))
    assert "group of 8      0/1      none healthy      expected 366, a guess\n" in said


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("gpu005", "gpu005"),
        ("gpu005:mlx5_6", "gpu005 mlx5_6 (rail 6)"),
        ("gpu005:gpu3", "gpu005 GPU 3 (its NVLink)"),
        ("leaf:L3", "leaf L3 (gpu[000-003])"),
        ("leaf:L99", "leaf L99"),
        ("unit:U1/rail3", "rail 3 of unit U1 (gpu[004-007])"),
        ("spine", "spine"),
        ("gone:mlx5_0", "gone mlx5_0"),
    ],
)
def test_parts_have_readable_names(part, words):
    assert part_in_words(part, FABRIC) == words


def test_ambiguous_fault_names_both_parts():
    either = BlamedPart("gpu001:mlx5_2", "slow", evidence=("slow together",), alternatives=("gpu002:mlx5_2",))
    said = render(Measurement(evidence(), Blame((either,)), "nccl"))
    assert "BLAMED  gpu001 mlx5_2 (rail 2) or gpu002 mlx5_2 (rail 2)" in said


def test_text_of_a_node_cannot_control_the_terminal():
    name = "n\x1b[31m"
    fabric = Fabric({name: FabricNode(name, (0, 1), (FabricNic("mlx5_0", 0, 50.0),))})
    figure = GroupResult(RankGroup((name,)), None, "hang")
    found = Evidence(fabric, (Measured(Round("node", (figure.group,)), (figure,)),))
    blame = Blame((BlamedPart(name, "hang", evidence=("\x1b[2J",)),), unclear=("\x07",))
    said = render(Measurement(found, blame, "nccl", "\x1b]0;x\x07", {"m\x1b": Excluded("m\x1b", "lost", "\x1b[1m")}))
    assert all(line.isprintable() for line in said.splitlines())

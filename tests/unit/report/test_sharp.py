"""The report of NVLink SHARP and SHARP, on and off."""

from tests.unit.collective.test_sharp import ALL, H100, MULTICAST, OFF, runs

from gpuops.collective.sharp import SharpComparison, compare
from gpuops.isolation.rounds import RankGroup
from gpuops.reasons import Excluded
from gpuops.report.all_reduce.sharp import lines
from gpuops.report.page import Page


def node(name, algorithm, *rates, log=""):
    group = RankGroup((name,))
    on = runs("nvls", 0, algorithm, *rates, group=group, log=log)
    return compare("nvls", on, runs("nvls", 1, "RING/SIMPLE", *OFF[3:], group=group), H100)


def test_nodes_with_the_same_result_are_one_entry_and_faults_come_first():
    healthy = [node(f"gpu{n:02}", "NVLS/SIMPLE", 470.0 + n) for n in range(1, 9)]
    broken = node("gpu09", "RING/SIMPLE", 366.0, log=MULTICAST.format("not "))
    sharp = compare(
        "sharp",
        runs("sharp", 0, "NVLS_TREE/SIMPLE", 360.0, group=ALL),
        runs("sharp", 1, "NVLS_TREE/SIMPLE", 361.0, group=ALL),
    )
    lost = {"gpu10": Excluded("gpu10", "busy", "skipped: busy")}
    text = list(lines(SharpComparison([*healthy, broken, sharp], "nccl", excluded=lost), Page()))
    assert text[1:10] == [
        "        without gpu10: skipped: busy",
        "",
        "NVLink SHARP within nodes (on: NCCL_NVLS_ENABLE=2, off: 0)",
        "  gpu09                                                                 inactive",
        "    on 366 GB/s (RING/SIMPLE), off 364-366 GB/s (RING/SIMPLE): 1.00 times,",
        "    expected on 466, off 365 (a guess): 1.28",
        "    NCCL chose RING/SIMPLE: NVLS multicast support is not available",
        "    do  check that nvidia-smi -q reports the fabric state Completed and that the",
        "        driver is not older than 530 (CUDA 12.1); drain the node and restart",
    ]
    assert "  gpu[01-08]                                                              faster" in text
    assert "    on 471-478 GB/s (NVLS/SIMPLE), off 364-366 GB/s (RING/SIMPLE): 1.29-1.31" in text
    assert max(map(len, text)) <= 80


def test_nothing_to_compare_says_what_it_takes():
    assert "nothing was compared" in list(lines(SharpComparison([], "none"), Page()))[-1]

"""The report of a sweep: table, crossover, chart and SVG."""

import xml.etree.ElementTree as ET

import pytest

from gpuops.collective.engines import Curve, Point, Sweep
from gpuops.collective.sweep import SweepResult
from gpuops.isolation.rounds import RankGroup
from gpuops.reasons import Excluded
from gpuops.report.page import Page
from gpuops.report.sweep.chart import LogChart, format_size
from gpuops.report.sweep.svg import draw
from gpuops.report.sweep.text import lines

SVG = "{http://www.w3.org/2000/svg}"


def curve(nodes, rate=200.0, alpha=50e-6, sizes=range(10, 31), **trouble):
    points = []
    for size in (1 << power for power in sizes):
        seconds = alpha + size / rate / 1e9
        points.append(Point(size, seconds, size / seconds / 1e9 * 1.75, algorithm="RING/LL"))
    return Curve(Sweep(RankGroup(tuple(nodes)), ()), tuple(points), **trouble)


def result(*curves, scope="group", **more):
    nodes = [node for each in curves for node in each.sweep.group.nodes]
    return SweepResult("all_reduce", scope, "nccl-tests", "it is there", nodes, curves, **more)


def shown(*curves, page=None, **more):
    return list(lines(result(*curves, **more), page or Page()))


def test_table_has_a_row_for_each_size_and_the_crossover():
    text = "\n".join(shown(curve(["gpu01", "gpu02"])))
    assert "     1 KiB       50.01     0.02048     0.03584   RING/LL" in text
    assert "peak        346.8 GB/s bus bandwidth at 1 GiB\n" in text
    assert "n½ = 50 us · 200 GB/s = 9.54 MiB" in text
    assert "half of the peak at 9." in text


def test_several_nodes_are_the_median_with_the_lowest_and_highest():
    text = "\n".join(shown(curve(["a"]), curve(["b"], 100.0), curve(["c"], 150.0), scope="node"))
    (row,) = [line for line in text.splitlines() if line.startswith("     1 GiB")]
    assert row.split() == ["1", "GiB", "7208", "149", "260.7", "174.2", "-", "346.8"]
    assert "of 3 nodes, GB/s" in text


@pytest.mark.parametrize("width", [80, 50])
def test_everything_fits_the_page(width):
    lost = {"gpu09": Excluded("gpu09", "busy", "skipped: busy (Slurm job 4711 train, user alice, and 8 more)")}
    broken = curve(
        ["gpu03"], sizes=range(10, 12), trouble="hang", absent=("gpu03:gpu1",), detail="not finished in time"
    )
    page = shown(curve(["gpu01"]), curve(["gpu02"], 90.0), broken, scope="node", excluded=lost, page=Page(width))
    assert max(map(len, page)) <= max(width, 70)  # the table needs 70 columns
    text = " ".join(" ".join(page).split())
    assert "gpu03: hang (gpu03:gpu1 did not arrive): not finished in time; the last complete size is 2 KiB" in text
    assert "without gpu09: skipped: busy" in text


def test_peak_that_is_not_reached_says_so():
    text = " ".join(" ".join(shown(curve(["a", "b"], sizes=range(10, 20)))).split())
    assert "it still rises there, so the true peak is higher: use --max-size" in text


def test_nothing_measured_says_why():
    alone = SweepResult("all_reduce", "group", "nccl", nodes=["gpu01"])
    assert list(lines(alone, Page()))[-1].endswith("a group needs at least two nodes; use --scope node")
    nobody = SweepResult("all_reduce", "group", "none", excluded={"a": Excluded("a", "busy", "alice")})
    assert list(lines(nobody, Page()))[-1] == "nothing was measured: no node is left"


def test_chart_puts_points_where_their_logarithms_are():
    chart = LogChart.over([(1024, 1.0), (1 << 20, 100.0)], 80)
    assert (chart.column(1024), chart.column(1 << 20), chart.column(1 << 15)) == (0, 68, 34)
    assert (chart.row(1.0), chart.row(100.0)) == (0, 13)
    drawn = list(chart.lines([(1024, 1.0), (1 << 20, 100.0)], mark=1 << 15))
    assert drawn[0].startswith("      100 |")
    assert drawn[0].endswith("*")
    assert all(line[11 + 34] == "|" for line in drawn[:13])
    assert max(map(len, drawn)) <= 80
    assert all(line.isascii() for line in drawn)


def test_chart_of_one_point_or_of_equal_rates_is_drawn():
    for points in ([(1024, 1.0)], [(1024, 3.0), (2048, 3.0)]):
        assert any("*" in line for line in LogChart.over(points, 80).lines(points))


@pytest.mark.parametrize(("size", "text"), [(8, "8 B"), (1024, "1 KiB"), (45_822_771, "43.7 MiB"), (8 << 30, "8 GiB")])
def test_sizes_have_their_unit(size, text):
    assert format_size(size) == text


def test_svg_has_a_dot_for_each_size_and_fits_its_frame():
    svg = ET.fromstring(draw(result(curve(["a", "b"]))))
    dots = list(svg.iter(f"{SVG}circle"))
    assert len(dots) == 21
    assert dots[0].findtext(f"{SVG}title") == "1 KiB, 50.01 us, 0.03584 GB/s, RING/LL"
    assert all(0 < float(dot.get("cx")) < 880 and 0 < float(dot.get("cy")) < 500 for dot in dots)
    assert "n½" in "".join(svg.itertext())


def test_svg_of_names_that_are_markup_is_only_text():
    svg = ET.fromstring(draw(result(curve(["<script>"]), curve(["b&\x1b"]), scope="node")))
    assert not list(svg.iter(f"{SVG}script"))
    assert "<script>" in "".join(svg.itertext())


def test_svg_without_points_is_a_picture():
    assert "nothing was measured" in draw(result())

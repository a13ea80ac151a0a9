import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.collective.heat_map import heat_map
from gpuops.isolation.cabling import Cabling, build_fabric
from gpuops.isolation.evidence import Evidence, Measured
from gpuops.isolation.fabric import Fabric, FabricNic, FabricNode
from gpuops.isolation.faults import FabricFault
from gpuops.isolation.rounds import GroupResult, RankGroup, Round
from gpuops.isolation.simulation import Disturbances, Simulation
from gpuops.report.all_reduce.heatmap import lines
from gpuops.report.page import Page
from gpuops.report.svg.heatmap import draw

SVG = "{http://www.w3.org/2000/svg}"


def measured(nodes, *faults, gpus=8, rounds=3):
    """Return figures within all nodes and of ``rounds`` rounds of pairs, with a new partner in each round."""
    fabric = build_fabric(Cabling(nodes, gpus, unit=nodes, leaves=1))
    engine = Simulation(fabric, [FabricFault(*fault) for fault in faults], Disturbances(noise=0.005))
    names = list(fabric.nodes)
    planned = [Round("node", tuple(RankGroup((name,)) for name in names))]
    for number in range(1, rounds + 1):
        pairs = [(a, names[k ^ number]) for k, a in enumerate(names) if k < k ^ number < nodes]
        planned.append(Round("rail", tuple(RankGroup(pair, rail=rail) for pair in pairs for rail in range(gpus))))
    return Evidence(fabric, tuple(Measured(each, engine.measure(each)) for each in planned))


def text(evidence, width=80):
    return list(lines(heat_map(evidence), Page(width)))


FAULTS = (("gpu001:mlx5_2", None), ("gpu005:mlx5_6", 35), ("gpu007", 25))


def test_each_row_is_a_rail_and_each_cell_a_node():
    said = text(measured(8, *FAULTS))
    assert said[0] == "gpu[000-007], each cell a node: . normal, 0-9 tenths of usual, x hangs"
    assert re.fullmatch(r"in nodes  \.{7}7", said[1])
    assert said[4] == "rail 2    .x.....7"
    assert re.fullmatch(r"rail 6    \.{5}6\.7", said[8])
    assert len([line for line in said if line.startswith("rail ")]) == 8


def test_outliers_are_named_with_figures_on_one_line():
    said = text(measured(8, *FAULTS))[10:]
    assert said[0] == "gpu001    rail 2: hangs"
    assert re.fullmatch(r"gpu005    rail 6: 31\.\d of 48\.\d GB/s", said[1])
    assert re.fullmatch(r"gpu007    in nodes: 3\d\d of 4\d\d GB/s; rails \[0-7\]: 36\S+-36\S+ of 48\.\d GB/s", said[2])
    assert len(said) == 3


def test_healthy_partner_of_a_slow_part_is_normal():
    rows = heat_map(measured(8, ("gpu005:mlx5_6", 35))).rows
    assert {cell.node for row in rows for cell in row.cells.values() if not cell.well} == {"gpu005"}


def test_nodes_slow_on_the_same_rails_are_folded():
    parts = [(f"gpu{k:03}:mlx5_3", 30) for k in (8, 9, 10, 12)]
    said = text(measured(16, *parts, rounds=7))
    assert said[10] == "gpu[008-010,012]"
    assert re.fullmatch(r" {10}rail 3: 34\S+-34\S+ of 48\.\d GB/s", said[11])
    assert len(said) == 12


@pytest.mark.parametrize("nodes", [1, 2, 69, 70, 512, 4096])
def test_map_of_any_size_fits_the_page_and_shows_every_outlier(nodes):
    last = max(nodes // 4 * 4 - 1, 0)  # measured with two partners if there are enough nodes
    slow = f"gpu{last:0{max(3, len(str(nodes - 1)))}}"
    said = text(measured(nodes, (slow, 40), gpus=2, rounds=2))
    assert max(map(len, said)) <= 80
    if nodes > 2:
        cells = [line[10:] for line in said if line.startswith("rail ")]
        assert all(re.fullmatch(r"\.*[5-6]\.* *", row) for row in cells), cells
        assert any(line.startswith(slow) for line in said)


def test_many_outliers_are_counted_and_still_named():
    rates = {f"n{k:03}": 10.0 + k for k in range(40)}
    fabric = Fabric({name: FabricNode(name, (0,), (FabricNic(f"mlx5_{k}", k, 50.0),)) for k, name in enumerate(rates)})
    figures = tuple(
        GroupResult(RankGroup((name, "n039"), rail=k), rate) for k, (name, rate) in enumerate(rates.items())
    )
    healthy = tuple(GroupResult(RankGroup(("n039",), rail=k), 50.0) for k in range(40))
    evidence = Evidence(fabric, (Measured(Round("rail", ()), (*figures, *healthy)),))
    said = "\n".join(text(evidence))
    assert re.search(r"and 3\d more: n\[", said)


def test_unmeasured_node_has_an_empty_cell():
    fabric = build_fabric(Cabling(3, 1, unit=3, leaves=1))
    figure = GroupResult(RankGroup(("gpu000", "gpu002"), rail=0), 48.0)
    evidence = Evidence(fabric, (Measured(Round("rail", (figure.group,)), (figure,)),))
    assert text(evidence)[1] == "rail 0    . ."


def test_empty_measurement_has_no_rows():
    evidence = Evidence(build_fabric(Cabling(2, 1, unit=2, leaves=1)))
    assert len(text(evidence)) == 1
    ET.fromstring(draw(evidence))


@given(st.lists(st.one_of(st.none(), st.floats(0.0, 1e4)), min_size=1, max_size=30), st.integers(40, 120))
def test_any_figures_can_be_shown(rates, width):
    nodes = {f"n{k}": FabricNode(f"n{k}", (0,), (FabricNic("mlx5_0", 0, 50.0),)) for k in range(len(rates) + 1)}
    figures = tuple(
        GroupResult(RankGroup((f"n{k}", f"n{k + 1}"), rail=0), r, "" if r else "hang") for k, r in enumerate(rates)
    )
    evidence = Evidence(Fabric(nodes), (Measured(Round("rail", ()), figures),))
    assert max(map(len, text(evidence, width))) <= width
    ET.fromstring(draw(evidence))


def rectangles(svg, title):
    return [r for r in svg.iter(f"{SVG}rect") if (r.findtext(f"{SVG}title") or "").startswith(title)]


def test_drawing_has_every_cell_with_its_figure():
    svg = ET.fromstring(draw(measured(8, *FAULTS)))
    (hung,) = rectangles(svg, "gpu001, rail 2: hangs")
    (slow,) = rectangles(svg, "gpu005, rail 6: 31.")
    (well,) = rectangles(svg, "gpu[000-006], rail 0: 4")
    assert len({hung.get("fill"), slow.get("fill"), well.get("fill")}) == 3
    assert int(well.get("width")) > 6 * int(slow.get("width"))
    assert rectangles(svg, "gpu000 and gpu001, rail 2: hangs")


def test_drawing_has_a_text_description():
    svg = ET.fromstring(draw(measured(8, *FAULTS)))
    assert svg.get("role") == "img"
    assert svg.findtext(f"{SVG}title") == "All-reduce on gpu[000-007]"
    assert "gpu001: rail 2: hangs" in svg.findtext(f"{SVG}desc")
    assert "All normal." in ET.fromstring(draw(measured(4))).findtext(f"{SVG}desc")


def test_drawing_is_within_its_bounds_and_self_contained():
    for evidence in (measured(8, *FAULTS), measured(700, FAULTS[2], gpus=2, rounds=1)):
        text = draw(evidence)
        svg = ET.fromstring(text)
        width, height = int(svg.get("width")), int(svg.get("height"))
        for shape in [*svg.iter(f"{SVG}rect")][1:]:
            assert int(shape.get("x")) + int(shape.get("width")) <= width
            assert int(shape.get("y")) + int(shape.get("height")) <= height
        assert all(int(said.get("y")) <= height for said in svg.iter(f"{SVG}text"))
        assert "href" not in text
        assert "<script" not in text


def test_bands_without_outliers_are_one_line():
    text = draw(measured(700, ("gpu650:mlx5_0", 30), gpus=2, rounds=1))
    assert "gpu[000-159]: all normal" in text
    assert "gpu650" in text
    assert len(text) < 30_000


def test_names_are_escaped():
    name = 'a"><script>alert(1)</script>&'
    fabric = Fabric({name: FabricNode(name, (0, 1), ()), "b": FabricNode("b", (0, 1), ())})
    figures = (GroupResult(RankGroup((name,)), 100.0), GroupResult(RankGroup(("b",)), 400.0))
    evidence = Evidence(fabric, (Measured(Round("node", ()), figures),))
    text = draw(evidence)
    assert "<script" not in text
    assert name in "".join(ET.fromstring(text).itertext())

import re
from xml.etree import ElementTree as ET

import pytest

from gpuops.layout import parse_layout
from gpuops.placement import GpuShape, NodeShape, place
from gpuops.report.grid import lines
from gpuops.report.page import Page
from gpuops.report.svg.grid import draw


def node(name, gpus=8):
    shapes = tuple(GpuShape(k, f"GPU-{k}", "", None, None, 0) for k in range(gpus))
    links = {(a, b): "NV18" for a in range(gpus) for b in range(gpus) if a != b}
    return NodeShape(name, name, shapes, (), None, name, links)


def grid(placement, width=80):
    return list(lines(placement, Page(width)))


@pytest.mark.parametrize("text", ["dp=4096", "dp=1024,pp=4", "dp=64,pp=8,tp=8", "dp=16,pp=16,tp=4,cp=4"])
def test_a_grid_of_512_nodes_is_short_and_fits_a_terminal(text):
    shown = grid(place(parse_layout(text), [node(f"gpu{k:03}") for k in range(512)]))
    assert max(map(len, shown)) <= 80
    assert len(shown) < 40
    assert any("509 identical nodes, gpu[002-510]: r16 to r4087" in line for line in shown)
    assert any(line.startswith("gpu511") for line in shown)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_grid_has_every_rank_at_any_page_width_and_name_length(width):
    machines = [node("n1", 16), node("a-node-with-a-very-long-name-of-sixty-letters.cluster.example", 16)]
    shown = grid(place(parse_layout("dp=16,tp=2"), machines), width)
    assert max(map(len, shown[2:])) <= max(width, len(machines[1].name))
    assert sorted(re.findall(r"\br\d+\b", "\n".join(shown)), key=lambda r: int(r[1:])) == [f"r{k}" for k in range(32)]


@pytest.mark.parametrize("width", [40, 50])
def test_group_that_is_wider_than_the_page_takes_several_rows(width):
    shown = grid(place(parse_layout("dp=2,tp=8"), [node("gpu01"), node("gpu02")]), width)
    assert max(map(len, shown)) <= width
    assert re.findall(r"\br\d+\b", "\n".join(shown)) == [f"r{k}" for k in range(16)]


def test_header_is_repeated_when_the_gpus_differ():
    seven = node("n2")
    without_two = NodeShape(**{**vars(seven), "gpus": tuple(gpu for gpu in seven.gpus if gpu.index != 2)})
    placement = place(parse_layout("dp=14"), [node("n1"), without_two], allow_fewer=True)
    headers = [re.findall(r"GPU(\d)", line) for line in grid(placement) if "GPU" in line]
    assert headers == [list("0123456"), list("0134567")]


@pytest.mark.parametrize("text", ["dp=8,pp=2", "cp=4,dp=2,pp=2", "tp=8,pp=2"])
def test_drawing_has_every_rank_once_and_all_text_fits(text):
    placement = place(parse_layout(text), [node("n1"), node("n2")])
    shapes = [element for element in ET.fromstring(draw(placement)).iter() if element.tag.endswith(("rect", "text"))]
    texts = [shape for shape in shapes if shape.text]
    assert sorted(shape.text for shape in texts if re.fullmatch(r"r\d+", shape.text)) == sorted(
        f"r{k}" for k in range(16)
    )
    edges = sorted({int(s.get("x")) + int(s.get("width")) for s in shapes if s.get("rx")})
    labels = [shape for shape in texts if re.match(r"(dp|pp|cp)\d", shape.text)]
    assert labels
    for label in labels:
        begin = int(label.get("x"))
        assert begin + 7.2 * len(label.text) <= next(edge for edge in edges if edge > begin)


def test_markup_and_line_breaks_in_names_are_escaped():
    name = '<script>"\x1b[31m\n</svg>'
    placement = place(parse_layout("tp=8"), [node(name)])
    tree = ET.fromstring(draw(placement))
    assert all("script" not in element.tag for element in tree.iter())
    assert any(element.text == r'<script>"\x1b[31m\n</svg>' for element in tree.iter())
    assert all(line.isprintable() for line in grid(placement))

"""Live table of nodes at work: what each node does, and since when."""

import pytest

from gpuops.events import GateDone, GateStarted, HostActivity
from gpuops.report import live
from gpuops.report.live import LiveTable


@pytest.fixture
def now(monkeypatch):
    """The time, in a list so that a test can change it."""
    now = [0.0]
    monkeypatch.setattr(live.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def table(now):
    table = LiveTable()
    for second, node in enumerate(("gpu01", "gpu2", "gpu03")):
        now[0] = 60.0 * second
        assert table.note(GateStarted("op", node, "second-pass")) == ""
    now[0] = 4325.0
    return table


def test_row_has_node_gate_time_and_last_words(table):
    table.note(HostActivity("op", "gpu2", "install nvidia-open"))
    assert list(table.lines(80, 10)) == [
        "gpu01   second-pass   72:05",
        "gpu2    second-pass   71:05   install nvidia-open",
        "gpu03   second-pass   70:05",
    ]


def test_row_goes_with_its_gate(table):
    table.note(GateDone("op", "gpu01", "second-pass", "passed", "passed"))
    table.note(HostActivity("op", "gpu01", "late words"))
    assert [line.split()[0] for line in table.lines(80, 10)] == ["gpu2", "gpu03"]


def test_the_nodes_that_take_longest_are_shown_if_not_all_fit(table):
    table.note(GateStarted("op", "gpu04", "burn-in"))
    assert list(table.lines(80, 2)) == [
        "gpu01   second-pass   72:05",
        "and 3 more nodes: 2 at second-pass, 1 at burn-in",
    ]
    assert len(list(table.lines(80, 4))) == 4


def test_row_fits_its_columns_and_shows_no_control_character(table):
    table.note(HostActivity("op", "gpu01", "a\x1b[2Jstep " * 20))
    assert all(len(line) <= 50 and "\x1b" not in line for line in table.lines(50, 10))

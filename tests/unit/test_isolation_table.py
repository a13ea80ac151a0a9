"""The table of isolation results: it resumes, fills cells and sizes evenly, and states exact limits."""

import dataclasses
import importlib
import json
import pathlib
import sys

import pytest

BENCH = pathlib.Path(__file__).parents[2] / "bench"


@pytest.fixture(scope="module")
def table():
    sys.path.insert(0, str(BENCH))
    try:
        yield importlib.import_module("isolation_table")
    finally:
        sys.path.remove(str(BENCH))


@pytest.mark.parametrize(
    ("count", "of", "limit"), [(0, 1000, 0.00299), (1, 1000, 0.00474), (5, 50, 0.1995), (7, 7, 1.0)]
)
def test_limit_is_that_of_clopper_and_pearson(table, count, of, limit):
    assert table.upper_limit(count, of) == pytest.approx(limit, rel=0.01)


def test_cases_that_have_run_are_left_out_and_all_cells_are_filled_at_one_pace(table):
    keys = list(table.missing(("own", "calm"), {16: 4, 64: 2}, 100, {("own", 16, 100): "done"}))
    assert len(keys) == len(set(keys)) == 11
    assert ("own", 16, 100) not in keys
    half = keys[:5]
    assert {(cell, nodes) for cell, nodes, _ in half} == {("calm", 16), ("own", 16), ("calm", 64), ("own", 64)}


def test_file_whose_last_line_is_half_written_is_read(table, tmp_path):
    import accusations

    outcome = accusations.Outcome("calm", 16, 7, "none", [], [], [], [], 11, 14, 0.5)
    line = json.dumps(dataclasses.asdict(outcome))
    file = tmp_path / "cases.jsonl"
    file.write_text(f"{line}\n{line[:40]}", "utf-8")
    assert table.by_key(file) == {("calm", 16, 7): outcome}
    assert table.by_key(tmp_path / "none") == {}


def test_case_of_the_own_simulator_has_the_form_of_the_others(table):
    outcome = table.run_case(("own-quiet", 16, 3))
    assert not outcome.error
    assert outcome.rounds <= outcome.limit
    assert outcome.wrong == []
    assert all(row[2] == 100 or 10 <= row[2] <= 60 for row in outcome.planted)
    assert all(exact for *_, is_mapped, exact, _, _ in outcome.planted if is_mapped)
    row = table.counts("own-quiet", 16, [outcome])
    assert row["strong"] == sum(fault[3] for fault in outcome.planted)
    assert table.table_row(row).count("|") == table.HEAD.count("|")


def test_table_replaces_the_block_of_its_page_and_nothing_else(table, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A\n\n<!-- from it -->\nold\n<!-- end -->\n\nB\n<!-- end -->\n", "utf-8")
    for _ in range(2):
        table.write_between(page, "it", ["| a |", "|---|"])
    assert page.read_text("utf-8") == "# A\n\n<!-- from it -->\n\n| a |\n|---|\n\n<!-- end -->\n\nB\n<!-- end -->\n"
    with pytest.raises(SystemExit, match="no block <!-- from other -->"):
        table.write_between(page, "other", [])

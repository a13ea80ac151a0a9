import io
import re

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given
from hypothesis import strategies as st

from gpuops.report.page import Page, clean, fold, wrap
from gpuops.secret import MASK, Secret


@given(st.text(st.characters(blacklist_categories=())))
def test_cleaned_text_has_no_terminal_controls(text):
    assert clean(text).isprintable()


def test_escapes_are_printed_as_text():
    assert clean("\x1b[31mred\r\n\u202egnp") == r"\x1b[31mred\r\n\u202egnp"


def test_secrets_are_masked():
    Secret("page-hunter2")
    assert clean("said page-hunter2") == f"said {MASK}"


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        (["gpu001", "gpu003", "gpu002"], "gpu[001-003]"),
        (["titan"], "titan"),
        (["gpu1", "gpu2", "titan"], "gpu[1-2],titan"),
        (["a[", "@all", "b"], "b,a[,@all"),
        (["*"], "*"),
        ([], ""),
    ],
)
def test_names_fold(names, folded):
    assert fold(names) == folded


@given(st.sets(st.from_regex(r"[a-z]{1,3}[0-9]{1,3}(\.[a-z]{1,2}[0-9])?", fullmatch=True), min_size=1, max_size=30))
def test_no_name_is_lost_or_invented_by_folding(names):
    assert set(NodeSet(fold(names))) == names


@given(st.text("ab ,[0", max_size=60), st.integers(8, 30))
def test_wrapping_keeps_every_word_within_the_width(text, width):
    lines = wrap(text, width)
    assert all(len(line) <= width for line in lines)
    assert re.sub(r"\s", "", "".join(lines)) == re.sub(r"\s", "", text)


def test_a_node_set_breaks_after_a_comma():
    assert wrap("gpu[001-016,018-022,024]", 14) == ["gpu[001-016,", "018-022,024]"]


COMMAND = "gpuops allreduce --limit gpu06,gpu03 -i prod.yml"


@pytest.mark.parametrize("before", ["clean the optic of the port, then ", "to see more: ", ""])
@pytest.mark.parametrize("width", [20, 40, 60, 200])
def test_a_command_is_never_broken(before, width):
    lines = wrap(before + COMMAND, width)
    assert lines[-1].endswith(COMMAND)
    assert " ".join(lines).split() == (before + COMMAND).split()
    assert all(len(line) <= width for line in lines[:-1])
    assert lines[-1] == COMMAND or len(lines[-1]) <= width


def test_a_label_that_is_too_long_stands_alone():
    assert list(Page(20).labelled("  short", "text", 9)) == ["  short  text"]
    assert list(Page(20).labelled("  rather-long", "text", 9)) == ["  rather-long", "         text"]


def test_the_last_word_is_at_the_right_edge():
    assert list(Page(20).edges("left", "warn")) == ["left            warn"]
    assert list(Page(20).edges("left and more", "a/rather/long/path")) == ["left and more", "a/rather/long/path"]


def test_very_narrow_page_does_not_fail():
    assert list(Page(3).labelled("label", "text", 10)) == ["label     text"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "environment", "colour"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"NO_COLOR": ""}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {}, False),
    ],
)
def test_colours_only_on_a_terminal_that_wants_them(stream, environment, colour):
    assert Page.of(stream, environment).colour is colour


def test_a_file_is_80_wide_and_a_terminal_as_wide_as_it_is(monkeypatch):
    monkeypatch.setenv("COLUMNS", "132")
    assert Page.of(io.StringIO(), {}).width == 80
    assert Page.of(Terminal(), {}).width == 132


@pytest.mark.parametrize("width", [40, 50, 80])
def test_columns_fit_the_page(width):
    rows = [("name", "state", "why"), ("a" * 20, "b" * 8, "words " * 20), ("a", "b", "")]
    lines = list(Page(width).columns(rows))
    assert max(map(len, lines)) <= width
    assert "words words" in "".join(lines)
    assert lines[-1].split() == ["a", "b"]


@given(
    st.integers(1, 6).flatmap(lambda n: st.lists(st.lists(st.text("ab ,/", max_size=30), min_size=n, max_size=n))),
    st.integers(40, 90),
)
def test_tables_keep_every_character_within_the_width(table, width):
    lines = list(Page(width).columns([tuple(row) for row in table]))
    assert all(len(line) <= width for line in lines)
    assert sorted(re.sub(r"\s", "", "".join(lines))) == sorted(re.sub(r"\s", "", "".join(map("".join, table))))


CHECKS = [("check", "scope", "level", "tags"), ("confidential-computing", "group", "quick", "gpu, driver, nvidia-smi")]


def test_table_gets_smaller_gaps_before_a_column_wraps():
    assert list(Page(56).columns(CHECKS)) == [
        "check                   scope  level  tags",
        "confidential-computing  group  quick  gpu, driver,",
        "                                      nvidia-smi",
    ]


def test_widest_columns_wrap_on_a_narrow_page():
    rows = [("GPU", "PCIE", "NEAREST NIC"), ("0", "Gen5 x16, 63 GB/s", "mlx5_0 PIX 400 Gbit/s")]
    assert list(Page(40).columns(rows)) == [
        "GPU  PCIE               NEAREST NIC",
        "0    Gen5 x16, 63 GB/s  mlx5_0 PIX 400",
        "                        Gbit/s",
    ]
    assert list(Page(32).columns(rows)) == [
        "GPU  PCIE          NEAREST NIC",
        "0    Gen5 x16, 63  mlx5_0 PIX",
        "     GB/s          400 Gbit/s",
    ]


def test_cells_follow_each_other_if_their_words_do_not_fit_beside_each_other():
    assert list(Page(40).columns(CHECKS)) == [
        "check   scope   level   tags",
        "confidential-computing   group   quick",
        "  gpu, driver, nvidia-smi",
    ]


def test_word_that_does_not_fit_beside_its_row_stands_below_it_and_whole():
    rows = [("run", "playbook"), ("a" * 30, "site"), ("b" * 30, "/home/ops/playbooks/site.yml")]
    assert list(Page(50).columns(rows)) == [
        "run                              playbook",
        "a" * 30 + "   site",
        "b" * 30,
        "  /home/ops/playbooks/site.yml",
    ]


def test_path_that_is_longer_than_a_line_breaks_after_a_slash():
    assert wrap("/home/operator/playbooks/site.yml", 20) == ["/home/operator/", "playbooks/site.yml"]


def test_command_in_a_table_is_never_broken():
    lines = list(Page(40).columns([("what", "do"), ("state", f"to list: {COMMAND}")]))
    assert any(line.endswith(COMMAND) for line in lines)


def test_newline_begins_a_line_at_the_same_indent():
    lines = list(Page(40).labelled("  asks", "sh -c 'dmesg\ndmesg'", 12))
    assert lines == [
        "  asks      sh -c 'dmesg",
        "            dmesg'",
    ]

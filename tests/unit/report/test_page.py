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


@pytest.mark.parametrize("width", [40, 80])
def test_columns_fit_the_page(width):
    rows = [("name", "state", "why"), ("a" * 20, "b" * 8, "words " * 20), ("a", "b", "")]
    lines = list(Page(width).columns(rows))
    assert max(map(len, lines)) <= width
    assert "words words" in "".join(lines)
    assert lines[-1] == "a" + " " * 22 + "b"


def test_newline_begins_a_line_at_the_same_indent():
    lines = list(Page(40).labelled("  asks", "sh -c 'dmesg\ndmesg'", 12))
    assert lines == [
        "  asks      sh -c 'dmesg",
        "            dmesg'",
    ]

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.errors import InputError
from gpuops.shell import Command, Completed, Files, read_files

WORDS = st.lists(st.text(st.characters(blacklist_characters="\0", codec="utf-8"), max_size=20), min_size=1, max_size=5)


@given(WORDS)
def test_a_shell_reads_the_printed_command_as_the_same_words(words):
    shown = str(Command(("printf", "%s\\0", *words)))
    said = subprocess.run(["sh", "-c", shown], capture_output=True, check=True).stdout
    assert said.decode().split("\0")[:-1] == words


@pytest.mark.parametrize("field", ["words", "root_words"])
def test_a_nul_in_a_word_is_refused(field):
    with pytest.raises(InputError, match="NUL"):
        Command(**{"words": ("true",), field: ("a\0b",)})


def test_commands_that_differ_in_time_or_lane_alone_ask_the_same():
    assert Command(("a",), timeout_seconds=1, lane="nvidia") == Command(("a",), timeout_seconds=2)
    assert len({Command(("a",), timeout_seconds=1), Command(("a",), timeout_seconds=2)}) == 1
    assert Files(("/a",), timeout_seconds=1) == Files(("/a",))


@pytest.mark.parametrize(
    "other", [Command(("b",)), Command(("a",), become="always"), Command(("a",), stdin="x"), Files(("a",))]
)
def test_commands_that_ask_something_else_differ(other):
    assert Command(("a",)) != other


def test_stdin_is_not_shown():
    assert "hunter2" not in repr(Command(("cat",), stdin="hunter2"))


@pytest.mark.parametrize(
    ("out", "err", "words"),
    [
        ("a\nb\n", "", "b"),
        ("a\n", "first\nlast\n", "last"),
        ("", " \n", ""),
        ("x" * 500, "", "x" * 160),
    ],
)
def test_last_line_is_that_of_stderr_or_else_of_stdout(out, err, words):
    assert Completed("n1", Command(("a",)), 1, out, err).last_line() == words


def test_127_means_not_installed():
    assert Completed("n1", Command(("a",)), 127).missing
    assert not Completed("n1", Command(("a",)), 126).missing


@given(
    st.dictionaries(
        st.text(st.characters(blacklist_characters="\0"), min_size=1), st.text().map(lambda t: t.replace("\0", ""))
    )
)
def test_files_are_read_as_they_were_written(files):
    assert read_files("".join(f"{path}\0{content}\0" for path, content in files.items())) == files


@pytest.mark.parametrize("text", ["", "/a", "/a\0", "/a\0half"])
def test_a_cut_answer_loses_its_last_file(text):
    assert read_files("/whole\0yes\0" + text) == {"/whole": "yes"}


@given(st.text())
def test_any_text_is_read_as_some_files(text):
    assert isinstance(read_files(text), dict)


def test_the_old_name_of_last_line_is_still_there():
    assert Completed("n1", Command(("a",)), 1, "a\nb").last_words() == "b"

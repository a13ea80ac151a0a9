"""What becomes of an answer: a file, or a reason why there is none."""

import pytest

from gpuops.bundle import answers
from gpuops.bundle.items import ITEMS, NO_FILE, NOT_ROOT, Item
from gpuops.bundle.private import Private
from gpuops.shell import Command, Completed, Files

ITEM = Item("a.txt", Command(("a",), timeout_seconds=7), needs_root=True)


def contents(answer, item=ITEM):
    return answers.contents_of([item], [answer], Private())


def done(code=0, **values):
    return Completed("n1", ITEM.question, code, **values)


@pytest.mark.parametrize(
    ("answer", "reason", "what", "is_kept"),
    [
        (done(127, err="a: not found"), "not_installed", "a.txt", False),
        (done(NO_FILE), "absent", "a.txt", False),
        (done(137, timed_out=True), "timed_out", "a.txt", False),
        (done(137, out="half\n", timed_out=True), "timed_out", "a.txt: a part of it", True),
        (done(137, out="half\n", truncated=True), "too_large", "a.txt: a part of it", True),
        (done(NOT_ROOT, out="half\n"), "refused", "a.txt: a part of it", True),
        (done(1, err="open: Permission denied"), "refused", "a.txt", False),
        (done(1, err="sudo: a password is required"), "refused", "a.txt", False),
        (done(1, out="half\n", err="/dev/mem: Permission denied"), "refused", "a.txt: a part of it", True),
        (done(1, err="no such device"), "failed", "a.txt", False),
        (done(1), "failed", "a.txt", False),
        (done(), "absent", "a.txt", False),
    ],
)
def test_what_is_missing_is_listed_with_its_reason(answer, reason, what, is_kept):
    result = contents(answer)
    assert [(each.what, each.reason) for each in result.left_out] == [(what, reason)]
    assert all(each.why for each in result.left_out)
    assert [file.content for file in result.files] == ([b"half\n"] if is_kept else [])


def test_a_file_has_its_command_and_exit_status():
    (file,) = contents(done(15, out="GPU is lost\n")).files
    assert (file.name, file.command, file.exit, file.needs_root) == ("a.txt", "a", 15, True)
    assert not contents(done(15, out="GPU is lost\n")).left_out


def test_files_stand_under_their_paths():
    item = Item("b.txt", Files(("/proc/version",)))
    (file,) = contents(Completed("n1", item.question, 0, "/proc/version\0Linux 6\n\0"), item).files
    assert (file.content, file.exit) == (b"/proc/version\nLinux 6\n\n", None)


def test_of_a_long_log_the_end_is_kept(monkeypatch):
    monkeypatch.setattr(answers, "_MOST_BYTES", 100)
    result = contents(done(out="".join(f"line {n}\n" for n in range(100))))
    assert result.files[0].content.endswith(b"line 98\nline 99\n")
    assert result.files[0].content.startswith(b"line ")
    assert [(each.what, each.reason) for each in result.left_out] == [("a.txt: its beginning", "too_large")]


def test_names_are_unique_and_nothing_asks_for_data_of_users():
    assert len({item.file for item in ITEMS}) == len(ITEMS)
    words = " ".join(str(item.question) for item in ITEMS)
    assert not any(word in words for word in ("environ", "/home", "history", "passwd", "shadow", ".ssh", "cmdline -"))

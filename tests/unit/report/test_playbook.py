import pytest

from gpuops.catalogue import Catalogue
from gpuops.playbook.record import Record
from gpuops.playbook.result import StepResult
from gpuops.report.content import about_playbook
from gpuops.report.page import Page
from gpuops.report.playbook import ending, record_lines
from gpuops.report.playbook.plan import list_steps


def test_end_of_a_run_fits_the_page_and_names_nodes_once():
    waiting = {"gpu01": ("boot", "restart"), "gpu02": ("boot", "restart"), "gpu03": (), "gpu04": ("boot",)}
    record = Record(
        playbook="p.yml",
        run_id="r1",
        check=False,
        results=(),
        stopped="1 of 4 nodes of a batch failed",
        waiting=waiting,
        locked=(),
        untouched=("gpu05", "gpu06"),
        interrupted=False,
        seconds=1.5,
    )
    assert list(ending(record, Page())) == [
        "stopped: 1 of 4 nodes of a batch failed",
        "not started: gpu[05-06]",
        "handlers pending on gpu[01-02] until this playbook runs again: boot, restart",
        "handlers pending on gpu04 until this playbook runs again: boot",
    ]


def test_a_failed_run_ends_with_the_command_that_resumes_it():
    failed = StepResult("gpu01", "s1", "step", "failed")
    record = Record(
        playbook="p.yml",
        run_id="r1",
        check=False,
        results=(failed,),
        stopped="",
        waiting={},
        locked=(),
        untouched=(),
        interrupted=False,
        seconds=1.5,
    )
    typed = ("gpuops", "provision", "p.yml", "-l", "gpu[01-02]", "-i", "x" * 60)
    *_, label, command = record_lines(record, Page(), diff=False, typed=typed)
    assert label == "to go on:"
    assert command == f"gpuops provision p.yml -l 'gpu[01-02]' -i {'x' * 60} --resume r1"
    *_, command = record_lines(record, Page(200), diff=False, typed=(*typed, "--resume", "r1"))
    assert command.count("--resume r1") == 1
    assert "gpuops" not in "".join(record_lines(record, Page(), diff=False))


@pytest.mark.parametrize("name", ["onboard", "upgrade"])
def test_steps_and_purpose_of_a_playbook_fit_the_page(name):
    page, book = Page(50), Catalogue().playbooks()[name]
    shown = [*page.labelled("", about_playbook(book.path), 0), *list_steps(book, page)]
    assert [line for line in shown if len(line) > 50] == []
    assert all(step.name in " ".join(" ".join(shown).split()) for play in book.plays for step in play.every_step)

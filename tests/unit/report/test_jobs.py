from dataclasses import replace
from pathlib import Path

import pytest

from gpuops.launching.outcome import JobRun, RankFailure
from gpuops.launching.plan import JobPlan, NodePlan, Seat
from gpuops.reasons import Excluded, exit_code
from gpuops.report.jobs import fold_ranks, job_line, lines
from gpuops.report.page import Page


@pytest.fixture
def plan():
    nodes = tuple(
        NodePlan(name, (Seat(2 * i, 0, 0, "", {}), Seat(2 * i + 1, 1, 1, "", {})))
        for i, name in enumerate(("n1", "n2"))
    )
    return JobPlan("direct", "train", "dp=4", (("dp", 4),), "n1", 29500, nodes, "/w", ("train.py",), "", {"TOKEN": "x"})


def text(run):
    return "\n".join(lines(run, Page()))


def test_ranks_are_folded():
    assert fold_ranks([3, 0, 1, 2, 9]) == "0-3,9"
    assert job_line([0, 1, 2], (), "a\x1b[31mb") == "[0-2] " + job_line([0], (), "a\x1b[31mb").removeprefix("[0] ")
    assert "\x1b" not in job_line([0], (), "a\x1b[31mb")
    assert job_line((), ["n1", "n2"], "x") == "[n[1-2]] x"


def test_a_dry_run_shows_what_would_start_where_and_no_value_of_the_environment(plan):
    shown = text(JobRun(plan, dry_run=True))
    assert "n2        ranks 2-3 on GPUs 0,1: python3 train.py" in shown
    assert "TOKEN" in shown
    assert "x" not in shown.split("TOKEN")[1].split("\n")[0]


def test_a_failure_names_node_rank_status_and_last_words(plan):
    run = JobRun(plan, Path("logs"), started=True, failure=RankFailure("n2", (3,), -9, "", ("one", "two")))
    assert "n2, rank 3, ended by signal 9 (SIGKILL)" in text(run)
    assert "| two" in text(run)
    assert exit_code(run) == 1


def test_exit_codes(plan):
    lost = {"n1": Excluded("n1", "lost", "gone")}
    assert exit_code(JobRun(plan, started=True)) == 0
    assert exit_code(JobRun(plan, lost=lost)) == 3
    assert exit_code(JobRun(plan, started=True, left={"n1": {5: "D"}})) == 3
    assert exit_code(JobRun(plan, started=True, interrupted=True, failure=RankFailure("n1", (0,), 1))) == 130
    assert exit_code(JobRun(plan, started=True, misplaced={0: ("x",)})) == 1


@pytest.mark.parametrize(
    ("more", "result"),
    [
        ({"started": True}, "interrupted; everything on the nodes has been ended"),
        ({}, "interrupted; nothing was started"),
        (
            {"started": True, "unended": ("n1", "n2"), "unended_seconds": 70.0},
            "interrupted; n[1-2] did not report the end: what still runs there is ended within 70 s",
        ),
        ({"started": True, "left": {"n1": {5: "D"}}}, "interrupted"),
    ],
)
def test_an_interrupted_job_is_said_to_be_ended_only_if_all_nodes_reported_that(plan, more, result):
    run = JobRun(plan, interrupted=True, **more)
    assert " ".join(text(run).split()).endswith(f"result {result}")
    assert run.to_document()["unended"] == [*run.unended]


def test_unknown_positions_are_told(plan):
    shown = " ".join(text(JobRun(plan, started=True, asserted=frozenset({0}))).split())
    assert "unknown of 1-3: no Python that reads PYTHONPATH started there" in shown


@pytest.mark.parametrize(
    "more",
    [{"interrupted": True}, {"failure": RankFailure("n1", (), 1)}, {"lost": {"n1": Excluded("n1", "lost", "x")}}],
)
def test_ranks_that_only_began_are_not_said_to_be_without_python(plan, more):
    shown = " ".join(text(JobRun(plan, started=True, asserted=frozenset({0}), **more)).split())
    assert "1-3 had not reported theirs before the job ended" in shown
    assert "PYTHONPATH" not in shown


def test_launch_files_that_start_no_rank_are_no_success(plan):
    """A launcher is Python, so its ranks report; a command of the user's own need not be."""
    files = replace(plan, command=())
    assert exit_code(JobRun(files, started=True)) == 3
    assert "no rank was seen" in text(JobRun(files, started=True))
    assert exit_code(JobRun(files, started=True, asserted=frozenset({0}))) == 0
    assert exit_code(JobRun(files, started=True, submitted="Submitted batch job 4")) == 0

"""The time limit of a job, in the words of each scheduler that takes one."""

import ast
import re
from dataclasses import replace

import click
import pytest
import yaml
from tests.unit.templates.test_todays_launchers import NODES

from gpuops.cli._common.asking import time_limit_of
from gpuops.errors import TemplateError
from gpuops.layout import parse_layout
from gpuops.placement import place
from gpuops.render import Job, find_target, launch_for, targets

DAY = 86_400
IN_A_DOMAIN = [replace(each, domain="rack1") for each in NODES]
ASKED = {
    "slurm": r"^#SBATCH --time=(.*)",
    "slurm-block": r"^#SBATCH --time=(.*)",
    "pbs": r"^#PBS -l walltime=(.*)",
    "flux": r"^#flux: --time-limit=(.*)",
    "nemo-run": r"^ +time=(.*),",
    "dstack": r"^max_duration: (.*)",
    "jobset": r"activeDeadlineSeconds: (\d+)",
    "mpijob": r"activeDeadlineSeconds: (\d+)",
    "pytorchjob": r"activeDeadlineSeconds: (\d+)",
    "rayjob": r"activeDeadlineSeconds: (\d+)",
}


def launch(name, seconds):
    image = "" if name in ("flux", "pbs") else "img:1"
    placement = place(parse_layout("dp=16"), IN_A_DOMAIN)
    return launch_for(find_target(name), placement, Job(image=image, time_seconds=seconds))


def asked(name, seconds):
    """The limit in every file that has one."""
    files = launch(name, seconds).files
    return {found for file in files for found in re.findall(ASKED[name], file.text, re.MULTILINE)}


@pytest.mark.parametrize("name", ASKED)
def test_a_job_asks_for_its_time(name):
    expected = {"flux": "90061s", "nemo-run": '"25:01:01"', "dstack": "90061s"}
    usual = "25:01:01" if name in ("slurm", "slurm-block", "pbs") else "90061"
    assert asked(name, DAY + 3661) == {expected.get(name, usual)}
    assert asked(name, 0) == ({'"24:00:00"'} if name == "nemo-run" else set())


@pytest.mark.parametrize("name", ASKED)
def test_every_job_of_a_target_asks_for_its_time_and_the_file_is_well_formed(name):
    files = [file for file in launch(name, DAY).files if re.search(ASKED[name], file.text, re.MULTILINE)]
    jobs = [file.path for file in launch(name, DAY).files if file.path.endswith((".sbatch", ".pbs", ".flux"))]
    assert {*jobs} <= {file.path for file in files}
    for file in files:
        if file.path.endswith(".yaml"):
            assert list(yaml.safe_load_all(file.text))
        elif file.path.endswith(".py"):
            assert ast.parse(file.text).body


@pytest.mark.parametrize("name", ["slurm", "slurm-block", "pbs", "flux"])
def test_the_note_says_that_there_is_no_time_limit(name):
    assert re.search(r"Without --time, the job has the time limit of its (partition|queue)\.$", launch(name, 0).note)
    assert "--time" not in launch(name, DAY).note
    assert "{" not in launch(name, 0).note


def test_a_target_without_time_limits_refuses_one():
    for name in {*targets()} - {*ASKED}:
        with pytest.raises(TemplateError):
            launch_for(find_target(name), place(parse_layout("dp=16"), NODES), Job(time_seconds=60))
    with pytest.raises(TemplateError, match="torchrun has no use for --time; omit it"):
        launch_for(find_target("torchrun"), place(parse_layout("dp=16"), NODES), Job(time_seconds=60))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", 0), ("24h", DAY), ("90m", 5400), ("1.5h", 5400), ("24:00:00", DAY), ("2-12:00:00", 60 * 3600), ("45", 45)],
)
def test_a_time_is_read_as_schedulers_write_it(text, seconds):
    assert time_limit_of(None, None, text) == seconds


@pytest.mark.parametrize("text", ["x", "0", "00:00:00", "1:2", "1:99:00", "-1h", "inf"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(click.BadParameter, match=r"is not a time|is no time"):
        time_limit_of(None, None, text)

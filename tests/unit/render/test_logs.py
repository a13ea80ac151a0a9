"""``render --check`` is silent about a log of the launch, unless a pipe hides the exit code of the job."""

import shutil
import subprocess
from dataclasses import replace

import pytest
from tests.unit.render.test_comparing import launch_of, one

from gpuops.render import targets
from gpuops.render.comparing import differences

BASH = "#!/bin/bash\nset -euo pipefail\nexec torchrun --nnodes=2 train.py --lr 1\n"
HIDDEN = "| tee hides the exit code of the command; write set -o pipefail above it"
LOGS = [">log", ">>log", "> log 2>&1", "&>log", "&>> log", '>|"$here/log" 2>err', "1>log 2>&1", ">log.$(hostname -s)"]
TEES = ["| tee log", "2>&1 | tee -a log", "|& tee log", "| tee --append 'my log' other"]


@pytest.mark.parametrize("log", [*LOGS, *TEES])
def test_a_log_of_the_launch_is_no_alarm(log):
    assert one("run.sh", BASH, BASH.replace("--lr 1", f"--lr 1 {log}")) == []
    other = BASH.replace("--lr 1", f"--lr 2 {log}")
    assert one("run.sh", BASH, other)[0][1], "the command has to be the same"


@pytest.mark.parametrize("log", TEES)
@pytest.mark.parametrize(("line", "above"), [(3, "set -eu"), (4, "set -euo pipefail\nset +o pipefail")])
def test_a_pipe_that_hides_the_exit_code_is_told(log, line, above):
    without = BASH.replace("set -euo pipefail", above)
    assert one("run.sh", without, without.replace("--lr 1", f"--lr 1 {log}")) == [(f":{line}: {HIDDEN}", True)]
    assert one("run.sh", without, without.replace("--lr 1", "--lr 1 &>log")) == []


@pytest.mark.parametrize(
    "wrong",
    ["--lr 1 &", ">log &", "| head", "| tee", "| tee log | head", "<log", "3>log", ">&3", ">&-", "2 >log", ">train.py",
     "| tee train.py", '>"$(rm x)"', '>"$(date; rm x)"', ">/dev/full", "; true", "|| true >log"],
)  # fmt: skip
def test_what_else_is_done_with_the_output_is_told(wrong):
    assert one("run.sh", BASH, BASH.replace("--lr 1", f"--lr 1 {wrong}"))


def test_a_script_in_quotes_has_a_pipefail_of_its_own():
    run = "set -o pipefail\nsrun bash -c '\n{0}exec torchrun a.py{1}\nx' rank a.py\n"
    for log in (" >log 2>&1", " &>log"):
        assert one("run.sh", run.format("", ""), run.format("", log)) == []
    assert one("run.sh", run.format("", ""), run.format("", " | tee log")) == [(f":2: {HIDDEN}", True)]
    with_own = run.format("set -o pipefail\n", "")
    assert one("run.sh", with_own, run.format("set -o pipefail\n", " | tee log")) == []
    outer = run.format("set -o pipefail\n", "").replace("set -o pipefail\nsrun", "srun")
    assert (f":1: {HIDDEN}", True) in one("run.sh", outer, outer.replace("rank a.py", "rank a.py | tee log"))


def test_a_file_that_the_script_writes_keeps_its_name():
    text = "cat >hosts <<'HOSTS'\nn1\nHOSTS\nhostname >me\necho no >&2\nexec srun x\n"
    for before, after in ((">hosts", ">host"), (">me", ">you"), (" >me", ""), (">hosts ", "")):
        assert one("run.sh", text, text.replace(before, after))[0][1], after


@pytest.mark.parametrize("name", targets())
def test_a_log_behind_the_last_command_of_a_script_is_no_alarm(name):
    for file in (file for file in launch_of(name).files if file.text.startswith("#!/bin/bash")):
        if not file.text.rstrip().endswith(("esac", "fi", "done", "}")):
            text = f"{file.text.rstrip()} >log 2>&1\n"
            assert list(differences(file, replace(file, text=text))) == [], file.path


@pytest.mark.skipif(not shutil.which("bash"), reason="bash is what the check imitates")
def test_bash_loses_the_exit_code_without_pipefail_only(tmp_path):
    for log, options, code in ((">log", "-eu", 3), ("| tee log", "-eu", 0), ("| tee log", "-euo pipefail", 3)):
        done = subprocess.run(["bash", "-c", f"set {options}\nexec bash -c 'exit 3' {log}"], cwd=tmp_path, check=False)
        assert done.returncode == code, (log, options)

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.long  # each starts another pytest
ENVIRONMENT = {**os.environ, "GPUOPS_A_THIRD": ""}

TESTS = """
import pytest

def test_runs():
    pass

def test_cannot_run():
    pytest.skip("no such server here")

@pytest.mark.xfail(reason="known")
def test_fails_as_known():
    assert False
"""


@pytest.mark.parametrize(("ci", "status"), [("1", 1), ("", 0)])
def test_a_skip_fails_where_gpuops_ci_is_set_and_only_there(tmp_path, ci, status):
    shutil.copy(pathlib.Path(__file__).parents[1] / "conftest.py", tmp_path)
    (tmp_path / "test_some.py").write_text(TESTS)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    ended = subprocess.run(
        words, env={**ENVIRONMENT, "GPUOPS_CI": ci}, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == status, ended.stdout
    named = "forbids: test_some.py::test_cannot_run: Skipped: no such server here" in ended.stdout
    assert named == bool(ci)


def test_what_is_optional_may_be_skipped(tmp_path):
    shutil.copy(pathlib.Path(__file__).parents[1] / "conftest.py", tmp_path)
    (tmp_path / "test_some.py").write_text("import pytest\ndef test():\n    pytest.skip('optional: no zsh here')\n")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    ended = subprocess.run(
        words, env={**ENVIRONMENT, "GPUOPS_CI": "1"}, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout


SAMPLED = """
import pytest

@pytest.mark.sampled
@pytest.mark.parametrize("case", range(7))
def test_many(case):
    pass

@pytest.mark.sampled
def test_one():
    pass
"""


@pytest.mark.parametrize(("ci", "asked", "passed"), [("", ".", 3), ("1", ".", 8), ("", "test_some.py", 8)])
def test_sampled_test_runs_every_fifth_case_unless_all_are_wanted(tmp_path, ci, asked, passed):
    shutil.copy(pathlib.Path(__file__).parents[1] / "conftest.py", tmp_path)
    (tmp_path / "test_some.py").write_text(SAMPLED)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    sampled: many cases\n")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", asked]
    ended = subprocess.run(
        words, env={**ENVIRONMENT, "GPUOPS_CI": ci}, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert f"{passed} passed" in ended.stdout


LAB = """
import os, signal, pathlib
from gpuops.lab import cluster

def test_is_killed(tmp_path):
    folder = tmp_path / ".gpuops" / "lab"
    cluster.up(folder, "hgx-h100", 1, [])
    pathlib.Path({sandbox!r}).write_text(cluster.Places(folder).read_state()["sandbox"])
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_tests_leave_no_lab(tmp_path):
    pytest.importorskip("asyncssh", reason="the lab's server is the extra gpuops[lab]")
    shutil.copy(pathlib.Path(__file__).parents[1] / "conftest.py", tmp_path)
    (tmp_path / "test_some.py").write_text(LAB.format(sandbox=str(tmp_path / "sandbox")))
    base = tmp_path / "base"
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={base}", str(tmp_path)]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stdout
    sandbox = pathlib.Path((tmp_path / "sandbox").read_text())
    ends = time.monotonic() + 20
    while sandbox.exists() and time.monotonic() < ends:
        time.sleep(0.1)
    assert not sandbox.exists()


def test_a_module_that_skips_itself_fails_too(tmp_path):
    shutil.copy(pathlib.Path(__file__).parents[1] / "conftest.py", tmp_path)
    (tmp_path / "test_some.py").write_text("import pytest\npytest.skip('not here', allow_module_level=True)\n")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    ended = subprocess.run(
        words, env={**ENVIRONMENT, "GPUOPS_CI": "1"}, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode not in (0, 5), ended.stdout


def test_every_third_file_of_the_long_tests_runs_each_day(tmp_path):
    shutil.copy(pathlib.Path(__file__).parents[1] / "conftest.py", tmp_path)
    (tmp_path / "test_quick.py").write_text("def test_quick():\n    pass\n")
    for name in "abcd":
        (tmp_path / f"test_{name}.py").write_text(f"import pytest\n@pytest.mark.long\ndef test_{name}():\n    pass\n")
    ran = []
    for day in ("331", "332", "333"):
        words = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", str(tmp_path)]
        env = {**ENVIRONMENT, "GPUOPS_CI": "1", "GPUOPS_A_THIRD": day}
        ended = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
        ran.append({name for name in ("a", "b", "c", "d", "quick") if f"::test_{name} PASSED" in ended.stdout})
    assert ran[0] & ran[1] == ran[1] & ran[2] == ran[0] & ran[2] == {"quick"}
    assert ran[0] | ran[1] | ran[2] == {"a", "b", "c", "d", "quick"}
    assert all(len(names) > 1 for names in ran)

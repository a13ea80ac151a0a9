"""Checks that a project has as tests for testinfra: how they are listed, and what follows from their outcomes."""

import datetime as dt
import textwrap

import pytest

from gpuops.errors import ContentError
from gpuops.facts import Facts
from gpuops.judging import choose, discover, judge
from gpuops.judging.own_outcomes import FileOutcome, TestOutcome, TestsRun, judge_tests, merged
from gpuops.judging.own_tests import NOT_RUN, is_own_test, name_of, own_tests
from gpuops.profile import NO_PROFILE

TESTS = '''
"""What all nodes have."""
from pytest import mark
import pytest

pytestmark = [pytest.mark.site, mark.standard]


@pytest.mark.severity("warn")
@pytest.mark.fix("mount /scratch")
@pytest.mark.parametrize("path", ["/a", "/b"])
@pytest.mark.storage
def test_scratch_is_mounted(host, path):
    """Scratch is there."""


@pytest.mark.quick
class TestSlurmDaemon:
    pytestmark = mark.slurm

    @mark.burnin
    def test_runs(self, host):
        pass

    def test_is_new(self, host):
        pass

    def helper(self):
        pass


def helper(host):
    pass
'''


@pytest.fixture
def project(tmp_path):
    (tmp_path / "checks").mkdir()
    return tmp_path


@pytest.fixture
def write(project):
    def write(name, text):
        path = project / "checks" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    return write


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("test_storage.py", "test_scratch_is_mounted"), "storage-scratch-is-mounted"),
        (("test_default.py", "TestSlurmDaemon", "test_runs"), "default-slurm-daemon-runs"),
        (("test_a.py", "test"), "a"),
        (("test_latest.py", "test_testing"), "latest-testing"),
    ],
)
def test_the_name_is_that_of_the_file_and_the_function(parts, name):
    assert name_of(*parts) == name


def test_marks_become_level_tags_severity_and_fix(project, write):
    path = write("test_site.py", TESTS)
    checks = {check.name: check for check in own_tests(project)}
    assert list(checks) == ["site-scratch-is-mounted", "site-slurm-daemon-runs", "site-slurm-daemon-is-new"]
    scratch, runs, new = checks.values()
    assert (scratch.level, scratch.severity, scratch.fix) == ("standard", "warn", "mount /scratch")
    assert scratch.tags == ("standard", "storage", "site", "testinfra")
    assert scratch.doc == "What all nodes have. Scratch is there."
    assert scratch.path == path
    assert (runs.level, runs.severity, runs.fix) == ("burnin", "fail", "")
    assert set(runs.tags) == {"burnin", "slurm", "site", "testinfra"}
    assert new.level == "quick"


def test_they_are_checks_beside_the_others_and_chosen_like_them(project, write):
    write("test_site.py", TESTS)
    write("conftest.py", "import pytest\n")
    checks = discover(project)
    assert {"gpu-lost", "site-scratch-is-mounted"} <= set(checks)
    assert "conftest" not in checks
    assert [c.name for c in checks.values() if is_own_test(c)] == [
        "site-scratch-is-mounted",
        "site-slurm-daemon-is-new",
        "site-slurm-daemon-runs",
    ]
    assert [c.name for c in choose(checks, "quick", only=["slurm"])] == ["site-slurm-daemon-is-new"]
    assert [c.name for c in choose(checks, "standard", only=["site"], skip=["slurm"])] == ["site-scratch-is-mounted"]


def test_a_test_that_nothing_runs_is_skipped_and_never_passes(project, write):
    write("test_a.py", "def test_b(host): pass\n")
    verdict = judge(own_tests(project)[0], Facts("n1", dt.datetime.now(dt.timezone.utc), {}), NO_PROFILE)
    assert (verdict.status, verdict.why) == ("skipped", NOT_RUN)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import pytest\n@pytest.mark.severity('wrn')\ndef test_a(host): pass\n", r"test_x.py:2: .*'wrn'.*\"warn\"\?"),
        ("import pytest\n@pytest.mark.severity\ndef test_a(host): pass\n", "test_x.py:2: .*expected info, warn"),
        ("import pytest\n@pytest.mark.fix(3)\ndef test_a(host): pass\n", "test_x.py:2: .*expected a text"),
        ("def test_a(host:\n", "test_x.py:1: cannot be loaded: SyntaxError"),
        ("def test_a_b(): pass\nclass TestA:\n  def test_b(self): pass\n", "its check x-a-b is also in .*test_x.py"),
    ],
)
def test_a_mistake_is_an_error_with_its_place(project, write, text, told):
    write("test_x.py", text)
    with pytest.raises(ContentError, match=told):
        discover(project)


def test_the_name_of_another_check_is_refused(project, write):
    write("test_gpu.py", "def test_lost(host): pass\n")
    with pytest.raises(ContentError, match=r"test_gpu.py: its check gpu-lost is also in .*gpu_lost.py; rename"):
        discover(project)


@pytest.mark.parametrize("name", ["test_a.py", "conftest.py", "_helper.py", "lib/helper.py", "."])
def test_files_that_others_may_write_are_refused(project, write, name):
    write("test_a.py", "def test_b(host): pass\n")
    for other in ("conftest.py", "_helper.py", "lib/helper.py"):
        write(other, "")
    assert own_tests(project)
    (project / "checks" / name).chmod(0o777)
    with pytest.raises(ContentError, match="refusing to run a file that is writable by others"):
        own_tests(project)


def test_of_two_functions_with_one_name_the_later_one_counts(project, write):
    write("test_a.py", "import pytest\ndef test_b(host): pass\n@pytest.mark.standard\ndef test_b(host): pass\n")
    assert [check.level for check in own_tests(project)] == ["standard"]


@pytest.fixture
def check(project, write):
    write("test_a.py", 'import pytest\n@pytest.mark.severity("warn")\n@pytest.mark.fix("x")\ndef test_b(host): pass\n')
    return own_tests(project)[0]


def outcome(ending, why="", **more):
    return TestOutcome(**{"check": "a-b", "node": "n1", "ending": ending, "why": why, "where": "checks/a.py:3", **more})


def verdict_of(check, *outcomes, **run):
    (verdict,) = judge_tests([check], ["n1"], TestsRun(outcomes, **run))
    assert (verdict.check, verdict.node) == ("a-b", "n1")
    return verdict


def test_a_failure_is_a_finding_with_its_place(check):
    verdict = verdict_of(check, outcome("failed", "assert 1 == 2", case="eth0", cases=2), outcome("passed", cases=2))
    (finding,) = verdict.findings
    assert verdict.status == "warn"
    assert finding.message == "checks/a.py:3: [eth0] assert 1 == 2"
    assert (finding.host, finding.check, finding.severity, finding.fix) == ("n1", "a-b", "warn", "x")
    assert (finding.code, finding.part, finding.scope) == ("eth0", "node", "node")


@pytest.mark.parametrize(
    ("outcomes", "status", "why"),
    [
        ([outcome("passed")], "pass", ""),
        ([outcome("error", "boom")], "unknown", "checks/a.py:3: boom"),
        ([outcome("skipped", "not here", where="")], "skipped", "not here"),
        ([outcome("passed", cases=2), outcome("skipped", "x", cases=2)], "pass", ""),
        ([outcome("passed", cases=2), outcome("error", "boom", cases=2)], "unknown", "checks/a.py:3: boom"),
        ([outcome("passed", cases=2)], "unknown", "ended"),
        ([outcome("passed", cases=3)] * 3, "pass", ""),
        ([outcome("failed", cases=2)], "warn", "ended"),
        ([outcome("passed", node="n2")], "unknown", "ended"),
        ([outcome("failed", node="")], "warn", ""),
        ([], "unknown", "ended"),
    ],
)
def test_outcomes_make_a_verdict(check, outcomes, status, why):
    verdict = verdict_of(check, *outcomes, missing="ended")
    assert (verdict.status, verdict.why) == (status, why)


def test_a_file_that_was_not_collected_speaks_for_its_tests(check):
    for ending, status in (("error", "unknown"), ("skipped", "skipped")):
        verdict = verdict_of(check, files=[FileOutcome("test_a.py", ending, "why")])
        assert (verdict.status, verdict.why) == (status, "why")
    assert verdict_of(check, files=[FileOutcome("test_other.py", "error", "why")]).status == "unknown"


def test_a_node_on_which_no_test_could_run_is_not_assessed(check):
    assert verdict_of(check, missing="not installed", none_ran=True).not_measured
    assert not verdict_of(check, outcome("error", "boom")).not_measured


def test_verdicts_of_tests_replace_only_their_own(check):
    first, second = judge_tests([check], ["n1", "n2"], TestsRun())
    ran = judge_tests([check], ["n2"], TestsRun([outcome("passed", node="n2")]))
    assert merged([first, second], ran) == [first, *ran]

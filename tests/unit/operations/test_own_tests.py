"""Tests of a project run in a process of their own, and what becomes of each is a verdict; this machine is the node."""

import os
import signal
import textwrap
import threading
import time
from pathlib import Path

import pytest

from gpuops.cluster import Cluster
from gpuops.errors import CancelledError, Interrupted
from gpuops.operations import own_tests
from gpuops.report.answers import save_facts
from gpuops.requests import ValidateRequest
from gpuops.secret import Secret

CONFTEST = """
import pytest
@pytest.fixture
def broken(host):
    raise RuntimeError("the fixture broke")
@pytest.fixture
def ends_badly():
    yield
    raise RuntimeError("the end broke")
@pytest.fixture
def wrong():
    assert 1 == 2
"""
MANY = """
import os, time
import pytest
import testinfra.utils.ansible_runner
from _expected import SHELL

testinfra_hosts = testinfra.utils.ansible_runner.AnsibleRunner(
    os.environ['MOLECULE_INVENTORY_FILE']).get_hosts('all')

def test_file(host):
    f = host.file("/etc/passwd")
    assert f.user == "root" and f.exists
    assert f.contains("nobody:") is True

@pytest.mark.parametrize("path", ["/", "/nosuch", "/etc"])
def test_folders(host, path):
    assert host.file(path).is_directory

def test_helper(host):
    assert check_of(host) == "other", "a shell"

def check_of(host):
    assert SHELL == "sh"
    return "sh"

def test_check_output(host):
    host.check_output("exit 7")

def test_oops(host):
    {}["x"]

def test_broken(broken): pass
def test_wrong(wrong): pass
def test_ends_badly(host, ends_badly): pass

@pytest.mark.skip(reason="not now")
def test_skipped(host): pass

def test_skips_itself(host):
    pytest.skip("no GPU here")

@pytest.mark.xfail(reason="a known bug")
def test_xfail(host):
    assert 0

@pytest.mark.xfail(strict=True, reason="a known bug")
def test_xpass(host): pass

def test_fails(host):
    pytest.fail("on purpose")

@pytest.mark.timeout(1)
def test_command_hangs(host):
    host.run("sleep 30")

@pytest.mark.timeout(1)
def test_python_hangs(host):
    while True:
        try:
            time.sleep(30)
        except Exception:
            pass

def test_no_host():
    assert 2 == 3

def test_facts(facts, profile):
    assert facts["uptime"] > 0
    assert facts["uptime"] == facts["uptime"]
    assert profile.name == "none"

def test_unknown_fact(facts):
    facts["smi"]

def test_no_such_fact(facts):
    facts["uptme"]

def test_heavy_fact(facts):
    from gpuops.isolation.node_evidence import all_reduce
    facts[all_reduce]

def test_output(host):
    print("x" * 2_000_000)
    os.system("echo written")
    assert os.read(0, 1) == b""

def test_odd_bytes(host):
    assert host.check_output("printf %s 'grün; $HOME'") == "grün; $HOME"
    assert host.run("echo no >&2; exit 3").rc == 3

def test_folder(host):
    assert os.path.exists("gpuops.yml")

@pytest.mark.standard
def test_later(host):
    assert 0
"""
FAILED = {
    "many-folders": "[/nosuch] assert False + where False = <file /nosuch>.is_directory",
    "many-helper": "a shell assert 'sh' == 'other'",
    "many-check-output": "Unexpected exit code 7",
    "many-xpass": "[XPASS(strict)] a known bug",
    "many-fails": "on purpose",
    "many-no-host": "assert 2 == 3",
}
UNKNOWN = {
    "many-oops": "KeyError: 'x'",
    "many-broken": "RuntimeError: the fixture broke",
    "many-wrong": "assert 1 == 2",
    "many-ends-badly": "RuntimeError: the end broke",
    "many-command-hangs": "sleep 30 did not answer in 1 s",
    "many-python-hangs": "the test did not end in 1 s",
    "many-unknown-fact": "nvidia-smi",
    "many-no-such-fact": 'did you mean "uptime"?',
    "many-heavy-fact": "puts load on a node",
    "bad-a": "No module named 'nosuch'",
}
SKIPPED = {
    "many-skipped": "not now",
    "many-skips-itself": "no GPU here",
    "many-xfail": "expected to fail: a known bug",
    "away-a": "could not import 'nosuch'",
}
PASSED = {"many-file", "many-facts", "many-output", "many-odd-bytes", "many-folder"}


@pytest.fixture
def project(tmp_path):
    """Write a project with these files in checks/."""

    def write(**files):
        (tmp_path / "checks").mkdir(exist_ok=True)
        (tmp_path / "gpuops.yml").write_text("fanout: 2\n")
        for name, text in files.items():
            (tmp_path / "checks" / f"{name}.py").write_text(textwrap.dedent(text))
        return tmp_path

    return write


@pytest.fixture
def node(a_host):
    return [a_host("n1", connection="local"), a_host("n2", connection="local")]


def validated(folder, nodes, *only, **more):
    with Cluster.of(nodes, project=folder) as cluster:
        return cluster.ask(ValidateRequest(only=only or ("testinfra",), save_run=False, **more))


def told(report, name="n1"):
    host = next(host for host in report.hosts if host.name == name)
    return {verdict.check: verdict for verdict in host.verdicts}


def line_of(text, words):
    return next(number for number, line in enumerate(text.splitlines(), 1) if words in line)


@pytest.fixture
def many(project, node, monkeypatch):
    """The verdicts of all these tests on one node; settings that are meant for other runs of pytest do not matter."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "--maxfail=1 --nosuchoption")
    folder = project(
        test_many=MANY,
        conftest=CONFTEST,
        _expected='SHELL = "sh"\n',
        test_bad="import nosuch\ndef test_a(host): pass\n",
        test_away='import pytest\npytest.importorskip("nosuch")\ndef test_a(host): pass\n',
    )
    (folder / "conftest.py").write_text("raise RuntimeError('only checks/ is read')\n")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --nosuchoption\n")
    return validated(folder, node[:1])


def test_every_ending_of_a_test_is_a_verdict_with_its_reason(many):
    verdicts = told(many)
    assert set(verdicts) == {*FAILED, *UNKNOWN, *SKIPPED, *PASSED}
    for check, words in FAILED.items():
        (finding,) = verdicts[check].findings
        assert words in finding.message, check
        assert (finding.host, finding.severity) == ("n1", "fail")
    for status, why_by_check in (("unknown", UNKNOWN), ("skipped", SKIPPED)):
        for check, why in why_by_check.items():
            assert (verdicts[check].status, why in verdicts[check].why) == (status, True), verdicts[check]
    assert {check for check, verdict in verdicts.items() if verdict.status == "pass"} == PASSED
    assert many.conclusion() == "failed"
    check_places(verdicts)


def check_places(verdicts):
    """A finding names the line of the user's own that failed, and so does the reason why a test is unknown."""
    for check, words in {
        "many-folders": "assert host.file(path).is_directory",
        "many-helper": 'assert check_of(host) == "other"',
        "many-check-output": 'host.check_output("exit 7")',
        "many-fails": 'pytest.fail("on purpose")',
        "many-no-host": "assert 2 == 3",
    }.items():
        place = f"checks/test_many.py:{line_of(MANY, words)}:"
        assert verdicts[check].findings[0].message.startswith(place), check
    assert verdicts["many-broken"].why.startswith(f"checks/conftest.py:{line_of(CONFTEST, 'fixture broke')}: ")
    assert verdicts["bad-a"].why.startswith("checks/test_bad.py: cannot be collected: ")


def test_every_node_is_tested_and_only_what_was_chosen(project, node):
    folder = project(
        test_a="""
            import pytest
            def test_one(host): assert host.backend.get_hostname() == "n1"
            @pytest.mark.site
            def test_two(host): pass
            def test_not_chosen(host): open("ran", "w").close()
            def test_other_host(host):
                import testinfra
                assert testinfra.get_host("gpuops://n2").check_output("echo hello") == "hello"
                with pytest.raises(Exception, match="does not reach this host"):
                    testinfra.get_hosts(["gpuops://n9"])
        """,
        test_b="def test_three(host): assert 0\n",
    )
    report = validated(folder, node, "a-one", "site", "a-other-host")
    assert {name: verdict.status for name, verdict in told(report).items()} == {
        "a-one": "pass",
        "a-two": "pass",
        "a-other-host": "pass",
    }
    assert told(report, "n2")["a-one"].status == "fail"
    assert not (folder / "ran").exists()


def test_what_ends_pytest_leaves_the_rest_unknown(project, node):
    folder = project(
        test_a="""
            import os
            def test_first(host): assert 0
            def test_exits(host):
                os._exit(9)
            def test_never(host): pass
        """
    )
    verdicts = told(validated(folder, node[:1]))
    assert verdicts["a-first"].status == "fail"
    for name in ("a-exits", "a-never"):
        assert (verdicts[name].status, "ended with status 9" in verdicts[name].why) == ("unknown", True)


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"conftest": "import nosuch\n"}, "No module named 'nosuch'"),
        ({"test_a": "def test_b(host): pass\ndel test_b\n"}, "pytest did not collect this test"),
        ({"conftest": "import os\nos._exit(3)\n"}, "ended with status 3"),
    ],
)
def test_tests_that_pytest_does_not_reach_are_unknown(project, node, files, why):
    report = validated(project(**{"test_a": "def test_b(host): pass\n", **files}), node[:1])
    (verdict,) = told(report).values()
    assert (verdict.status, why in verdict.why) == ("unknown", True), verdict.why
    assert report.conclusion() == "incomplete"


def test_a_child_that_cannot_be_interrupted_is_ended(project, node, monkeypatch):
    monkeypatch.setattr(own_tests, "_SLACK_SECONDS", 2.0)
    text = """
        import pytest, signal, time
        @pytest.mark.timeout(1)
        def test_stuck(host):
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM, signal.SIGTERM])
            time.sleep(60)
        def test_next(host): pass
    """
    began = time.monotonic()
    verdicts = told(validated(project(test_a=text), node[:1]))
    assert time.monotonic() - began < 30
    assert {verdict.status for verdict in verdicts.values()} == {"unknown"}
    assert all("a-stuck on n1 did not end in time" in verdict.why for verdict in verdicts.values())


def test_without_testinfra_every_node_says_what_to_install(project, node, monkeypatch):
    monkeypatch.setattr(own_tests.importlib.util, "find_spec", lambda name: None)
    report = validated(project(test_a="def test_b(host): pass\n"), node)
    assert [told(report, name)["a-b"].why for name in ("n1", "n2")] == [own_tests._MISSING] * 2
    assert "pip install 'gpuops[testinfra]'" in own_tests._MISSING
    assert report.conclusion() == "incomplete"


def test_saved_answers_skip_them(project, tmp_path):
    folder = project(test_a="def test_b(host): assert 0\n")
    with Cluster.local(project=folder) as cluster:
        facts = cluster.validate(only=["disk-space"], keep_answers=True).facts
    save_facts(facts, tmp_path / "kept", {})
    with Cluster.saved(tmp_path / "kept", project=folder) as cluster:
        report = cluster.validate(only=["a-b"])
    (verdict,) = report.hosts[0].verdicts
    assert (verdict.status, "asks the node itself" in verdict.why) == ("skipped", True)


SLEEPS = """
    import os, pathlib, time
    def test_sleeps(host):
        pathlib.Path("pid").write_text(str(os.getpid()))
        time.sleep(300)
"""


def when_there_is(path, act):
    while not path.exists():
        time.sleep(0.05)
    act()


def ends(pid):
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists():
            return True
        time.sleep(0.05)
    return False


def test_ctrl_c_ends_the_child_and_keeps_what_is_known(project, node, ctrl_c):
    folder = project(test_a="def test_b(host): assert 0\n", test_c=SLEEPS)
    ctrl_c(300)  # sets the handler; the signal itself comes when the test has begun
    threading.Thread(target=when_there_is, args=(folder / "pid", lambda: os.kill(os.getpid(), signal.SIGALRM))).start()
    with pytest.raises(Interrupted) as stop:
        validated(folder, node[:1])
    verdicts = told(stop.value.partial)
    assert verdicts["a-b"].status == "fail"
    assert verdicts["c-sleeps"].status == "unknown"
    assert ends((folder / "pid").read_text())


def test_cancelling_from_another_thread_ends_the_child(project, node):
    folder = project(test_c=SLEEPS)
    with Cluster.of(node[:1], project=folder) as cluster:
        threading.Thread(target=when_there_is, args=(folder / "pid", cluster.cancel)).start()
        with pytest.raises(CancelledError):
            cluster.validate(only=["c-sleeps"])
    assert ends((folder / "pid").read_text())


def test_no_secret_reaches_the_child(project, a_host):
    folder = project(
        test_a="""
            import pathlib
            def test_b(host):
                own = pathlib.Path("/proc/self")
                secret = b"Xyzzy-" + b"plugh"
                assert secret not in (own / "environ").read_bytes() + (own / "cmdline").read_bytes()
                import gc
                assert not [o for o in gc.get_objects() if type(o) is dict and "Xyzzy-" "plugh" in o.values()]
        """
    )
    host = a_host("n1", connection="local", password=Secret("Xyzzy-plugh"), become_password=Secret("Xyzzy-plugh"))
    assert told(validated(folder, [host]))["a-b"].status == "pass"


def test_a_module_in_the_current_folder_is_not_taken_for_gpuops(project, node, monkeypatch, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "gpuops.py").write_text("raise SystemExit(5)\n")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert told(validated(project(test_a="def test_b(host): pass\n"), node[:1]))["a-b"].status == "pass"

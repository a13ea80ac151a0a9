"""gpuops.Cluster on a lab: the page docs/python.md, many threads, many loops, Ctrl-C."""

import contextlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("asyncssh", reason="the lab's server is the extra gpuops[lab]")

import gpuops
from gpuops.lab import cluster as lab_cluster

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Create a directory with ``prod.yml``: four healthy hosts and one with a lost GPU, all in the group h100."""
    folder = tmp_path_factory.mktemp("python")
    lab_cluster.up(folder / ".gpuops" / "lab", "hgx-h100", 5, ["gpu05:gpu2:lost"])
    (folder / "prod.yml").write_text((folder / ".gpuops" / "lab" / "inventory.yml").read_text())
    yield folder
    lab_cluster.down(folder / ".gpuops" / "lab")


@pytest.fixture
def inside(project, monkeypatch):
    monkeypatch.chdir(project)
    return project


@pytest.mark.parametrize("number", range(1, len(EXAMPLES)))  # the next test runs the first
def test_example_of_the_page_runs(inside, number, capsys):
    with gpuops.Cluster.open("prod.yml") as cluster:
        answers = cluster.facts(keep_answers=True)
        gpuops.save_facts(answers.values, "monday")
    namespace = {}
    exec(compile(EXAMPLES[number], f"{PAGE}:{number}", "exec"), namespace)
    if "health" in namespace:
        assert namespace["health"]("gpu05")["summary"]["fail"] == 1
        assert "nothing" in namespace["health"]("nothing")["error"]
        namespace["cluster"].close()
    else:
        assert capsys.readouterr().out.strip()


@pytest.mark.long
def test_first_example_validates_measures_places_and_renders_in_one_script(inside, capsys):
    lines = [line for line in EXAMPLES[0].splitlines() if line.strip()]
    assert len(lines) <= 14
    shutil.rmtree(inside / "launch", ignore_errors=True)
    exec(compile(EXAMPLES[0], str(PAGE), "exec"), {})
    output = capsys.readouterr().out
    assert output.startswith("gpu05 ")
    assert "fell off the bus" in output
    assert output.splitlines()[-1] in {"ok", "failed"}, "the hosts of the lab share an address, so preflight may refuse"
    assert "torchrun" in (inside / "launch" / "static-gpu01.sh").read_text()


def test_examples_import_gpuops_alone():
    for example in EXAMPLES:
        assert set(re.findall(r"^\s*(?:import|from) (\S+)", example, re.MULTILINE)) == {"gpuops"}


def test_two_threads_with_one_cluster_look_at_the_same_time(inside):
    reports = {}
    with gpuops.Cluster.open("prod.yml") as cluster:

        def look(name):
            reports[name] = cluster.validate(only=("gpu-lost",))

        threads = [threading.Thread(target=look, args=(name,)) for name in ("a", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert [f.host for f in reports["a"].findings] == [f.host for f in reports["b"].findings] == ["gpu05"]
    assert not reports["a"].excluded
    assert not reports["b"].excluded


def test_a_second_thread_may_not_measure_with_the_same_cluster(inside):
    refused = []
    measuring = threading.Event()

    def watch(event):
        if isinstance(event, gpuops.Activity):
            measuring.set()

    with gpuops.Cluster.open("prod.yml", events=watch) as cluster:

        def measure():
            with contextlib.suppress(gpuops.CancelledError):
                cluster.allreduce(scopes=("rail",))

        thread = threading.Thread(target=measure)
        thread.start()
        assert measuring.wait(60)
        try:
            cluster.allreduce(scopes=("rail",))
        except gpuops.InUseError as error:
            refused.append(str(error))
        cluster.cancel()
        thread.join(120)
    assert refused
    assert "another thread" in refused[0]


def open_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def settled():
    """Return the number of open descriptors and the names of all threads, after idle ones have ended."""
    ends = time.monotonic() + 2
    while threading.active_count() > 1 and time.monotonic() < ends:
        time.sleep(0.01)
    return open_descriptors(), [thread.name for thread in threading.enumerate()]


@pytest.mark.long
def test_fifty_calls_leave_no_descriptor_and_no_thread(inside):
    with gpuops.Cluster.open("prod.yml") as cluster:
        cluster.validate(only=("gpu-lost",))
        before = settled()
        for _ in range(50):
            cluster.only("gpu01").validate(only=("gpu-lost",))
        after = settled()
        assert after[0] - before[0] < 5, after  # a leak would count fifty times
        assert len(after[1]) - len(before[1]) < 5, after
    for _ in range(5):
        with gpuops.Cluster.open("prod.yml") as cluster:
            cluster.only("gpu01").ping()
    after = settled()
    assert after[0] - before[0] < 5, after
    assert len(after[1]) - len(before[1]) < 5, after


LOOP = """
import gpuops
with gpuops.Cluster.open("prod.yml") as cluster:
    for number in range(10_000):
        try:
            cluster.validate()
            print(number, flush=True)
        except Exception as error:
            print("swallowed", error, flush=True)
"""


def test_ctrl_c_ends_the_loop_around_a_call(inside):
    loop = subprocess.Popen([sys.executable, "-c", LOOP], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert loop.stdout.readline().strip() == "0"
    time.sleep(0.2)
    loop.send_signal(signal.SIGINT)
    output, errors = loop.communicate(timeout=30)
    assert loop.returncode not in (0, None)
    assert "swallowed" not in output
    assert "Interrupted" in errors


def test_cancel_ends_a_call_with_a_partial_result(inside):
    with gpuops.Cluster.open("prod.yml", events=lambda event: began.set()) as cluster:
        began = threading.Event()
        caught = []

        def run():
            try:
                cluster.run("sleep 60")
            except gpuops.CancelledError as error:
                caught.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        assert began.wait(30)
        time.sleep(1)
        cluster.cancel()
        thread.join(20)
        assert not thread.is_alive()
        assert cluster.only("gpu01").ping().values  # the cluster still works
    (error,) = caught
    assert {excluded.kind for excluded in error.partial.excluded.values()} == {"interrupted"}


def test_four_clusters_in_four_threads_are_independent(inside):
    """Close one, delay one, cancel one; the fourth still gets every answer."""
    size = threading.stack_size()
    results = {}

    def whole():
        with gpuops.Cluster.open("prod.yml") as cluster:
            results["whole"] = cluster.run("sleep 4; echo there")

    def late():
        with gpuops.Cluster.open("prod.yml", total_timeout=1) as cluster:
            results["late"] = cluster.run("sleep 30")

    def ended(name, end):
        cluster = gpuops.Cluster.open("prod.yml")
        threading.Timer(1.5, lambda: end(cluster)).start()
        try:
            results[name] = cluster.run("sleep 30")
        except gpuops.CancelledError as error:
            results[name] = error.partial
        cluster.close()

    works = [
        whole,
        late,
        lambda: ended("closed", lambda cluster: cluster.close()),
        lambda: ended("cancelled", lambda cluster: cluster.cancel()),
    ]
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert {answer.out for answer in results["whole"].values.values()} == {"there\n"}
    assert len(results["whole"].values) == 5
    assert not results["whole"].excluded
    for name in ("late", "closed", "cancelled"):
        assert not results[name].values, name
    assert threading.stack_size() == size


def test_closed_cluster_refuses_calls(inside):
    cluster = gpuops.Cluster.open("prod.yml")
    cluster.close()
    cluster.close()
    with pytest.raises(gpuops.ClosedError, match="closed"):
        cluster.ping()


def test_this_machine_is_never_the_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(gpuops.InputError, match="no inventory"):
        gpuops.Cluster.open(environment={})


def test_no_hosts_is_an_error(inside):
    with gpuops.Cluster.open("prod.yml") as cluster:
        requests = (
            gpuops.ValidateRequest(),
            gpuops.PingRequest(),
            gpuops.MeasureRequest(),
            gpuops.PlaceRequest("dp=1"),
        )
        for nobody in (cluster.only([]), cluster.only("gpu01").only("gpu02")):
            for request in requests:
                with pytest.raises(gpuops.InputError, match="no hosts selected"):
                    nobody.ask(request)


def test_invalid_words_are_refused_before_any_host_is_asked(inside):
    with gpuops.Cluster.open("prod.yml") as cluster:
        wrong = [
            lambda: cluster.validate(level="quik"),
            lambda: cluster.validate(only="clock"),
            lambda: cluster.run(""),
            lambda: cluster.run("true", timeout=0),
            lambda: cluster.allreduce(gib=-1),
            lambda: cluster.allreduce(scopes=()),
            lambda: cluster.allreduce_expected(nodes=0),
            lambda: cluster.ask("validate"),
            lambda: gpuops.Cluster.open("prod.yml", forks=-1),
            lambda: gpuops.Cluster.open("prod.yml", events="print"),
        ]
        for call in wrong:
            with pytest.raises(gpuops.InputError):
                call()


def test_a_listener_must_not_start_an_operation(inside):
    refused = []

    def listener(event):
        try:
            cluster.ping()
        except gpuops.InUseError as error:
            refused.append(error)

    with gpuops.Cluster.open("prod.yml", events=listener) as cluster:
        cluster.only("gpu01").ping()
    assert refused


def test_saved_answers_need_no_network(inside):
    with gpuops.Cluster.open("prod.yml") as cluster:
        gpuops.save_facts(cluster.only("gpu04:gpu05").facts(keep_answers=True).values, "tuesday")
    saved = gpuops.Cluster.saved("tuesday")
    assert [finding.host for finding in saved.validate(only=("gpu-lost",)).findings] == ["gpu05"]
    for request in (
        gpuops.PingRequest(),
        gpuops.ProvisionRequest("tuning", check=True),
        gpuops.PreflightRequest(("torchrun", "train.py")),
        gpuops.NvlinkRequest(),
        gpuops.DrainRequest("x"),
        gpuops.SetStateRequest("repair", "x"),
    ):
        with pytest.raises(gpuops.OfflineError):
            saved.ask(request)
    beside = gpuops.Cluster.saved("tuesday", inventory="prod.yml").validate(only=("gpu-lost",))
    assert [host.name for host in beside.hosts] == ["gpu04", "gpu05"]
    assert beside.conclusion() == "failed"

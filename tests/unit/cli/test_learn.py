"""``profiles learn -o``: a profile that is there, perhaps edited by hand, is not lost."""

import datetime as dt

import pytest
import yaml
from click.testing import CliRunner
from tests.unit.checks.lab_node import NOW, PROBES, answers_of

from gpuops.cli import program
from gpuops.errors import OutputError
from gpuops.facts import read
from gpuops.project import load_project
from gpuops.report.answers import save_facts
from gpuops.store import Runs
from gpuops.store.records import RunRecord, Visit


@pytest.fixture
def learn(tmp_path, monkeypatch):
    """Learns a profile from the saved answers of three healthy hosts of a project."""
    monkeypatch.chdir(tmp_path)
    answers = answers_of("hgx-h100")
    (tmp_path / "gpuops.yml").touch()
    names = ("gpu01", "gpu02", "gpu03")
    save_facts({name: read(name, NOW, answers, PROBES, keep_answers=True) for name in names}, tmp_path / "kept")

    def call(*words):
        done = CliRunner().invoke(program, ["profiles", "learn", "--from", "kept", *words], standalone_mode=False)
        if done.exception:
            raise done.exception
        return done

    return call


def test_learned_profile_replaces_an_existing_file_only_if_asked(learn, tmp_path):
    path = tmp_path / "checks" / "profiles" / "ours.yml"
    learn("-o", str(path))
    learned = path.read_text()
    path.write_text("# edited by hand\n" + learned)
    with pytest.raises(OutputError, match=r"ours\.yml: already exists; pass --overwrite to replace it"):
        learn("-o", str(path))
    assert path.read_text() == "# edited by hand\n" + learned
    learn("-o", str(path), "--overwrite")
    assert path.read_text() == learned


def test_learned_profile_is_written_to_a_device_as_before(learn):
    assert learn("--format", "yaml", "-o", "/dev/null").exit_code == 0


def reach(folder, *rates):
    """Keep an all-reduce within nodes in which gpu01 and those after it reached so many GB/s."""
    nodes = {f"gpu0{n}": Visit("pass", figures={"node.gb_per_s": rate}) for n, rate in enumerate(rates, 1)}
    with Runs(load_project(folder).store_path) as runs:
        runs.save(RunRecord("allreduce", dt.datetime.now(dt.timezone.utc), 1.0, "ok", "alice", nodes=nodes))


def allreduce_values(done):
    return yaml.safe_load(done.stdout)["values"].get("allreduce")


def test_bandwidth_is_learned_from_the_runs_of_the_same_nodes(learn, tmp_path):
    assert allreduce_values(learn("--format", "yaml")) is None
    reach(tmp_path, 470.0, 480.0, 476.0)
    entry = allreduce_values(learn("--format", "yaml"))["nvls"]["8"]
    assert entry["value"] == {1: pytest.approx(476.0 - 4 * 1.4826 * 4.0, abs=0.1)}
    assert "a median of 476.0 GB/s of 3 nodes with a spread of 5.9" in entry["source"]
    assert entry["grade"] == "measured-here"


def test_figures_that_agree_leave_a_margin(learn, tmp_path):
    reach(tmp_path, 470.0, 470.0, 470.0)
    assert allreduce_values(learn("--format", "yaml"))["nvls"]["8"]["value"] == {1: pytest.approx(470 * 0.95)}


def test_nodes_that_are_all_slow_teach_nothing(learn, tmp_path):
    reach(tmp_path, 300.0, 301.0, 302.0)
    done = learn("--format", "yaml")
    assert allreduce_values(done) is None
    assert "allreduce.nvls.8 is not learned: these nodes reached 301 GB/s (median)" in done.stderr

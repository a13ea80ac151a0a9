"""The project that the command line works in, from its folder and from folders inside it."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuops.cli import program
from gpuops.errors import GpuopsError
from gpuops.project import shortest
from gpuops.store import StateChange, Store

CHECK = """
from gpuops import Command, Probe, check

LIDS = Probe("lids", Command(("lid",)), lambda answer: answer.out)

@check(needs=LIDS)
def lid_closed(lids, profile):
    yield from ()
"""


@pytest.fixture
def project(tmp_path):
    files = {
        "gpuops.yml": "inventory: prod.yml\nstore: state/nodes.db\n",
        "inventory/prod.yml": "all: {hosts: {gpu01: }}\n",
        "checks/lid_closed.py": CHECK,
        "launch/deep/prod.yml": "all: {hosts: {deep: }}\n",
        "playbooks/mine.yml": "- hosts: all\n  tasks: [{command: {words: [uname], read_only: yes}}]\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        path.write_text(text)
    with Store(tmp_path / "state" / "nodes.db") as store:
        store.record_transition("gpu01", store.begin("a test", who="ops"), lambda _: StateChange("drained", "fan swap"))
    return tmp_path


@pytest.fixture
def gpuops():
    def gpuops(*words):
        done = CliRunner().invoke(program, words, standalone_mode=False)
        if isinstance(done.exception, GpuopsError):
            return str(done.exception)
        assert done.exception is None, done.exception
        return done.stdout

    return gpuops


@pytest.fixture(params=[".", "launch", "launch/deep"])
def inside(project, monkeypatch, request):
    monkeypatch.chdir(project / request.param)
    return Path(os.path.relpath(project))


def test_content_is_the_projects_wherever_one_stands_in_it(inside, project, gpuops):
    assert "lid-closed" in gpuops("checks", "list")
    checks = json.loads(gpuops("checks", "list", "--format", "json"))["checks"]
    (own,) = (check for check in checks if check["name"] == "lid-closed")
    assert own["path"] == str(project / "checks" / "lid_closed.py")
    assert "command" in gpuops("provision", "mine", "--list-tasks")


def test_store_and_journals_are_the_projects(inside, gpuops):
    assert json.loads(gpuops("state", "list", "--json"))["hosts"]["gpu01"]["why"] == "fan swap"
    assert (
        gpuops("journal", "verify", "nope")
        == f"no run nope in {inside / 'state' / 'runs'}; to list them: gpuops runs list"
    )


def test_the_inventory_of_the_settings_is_the_projects_whatever_lies_here(inside, gpuops):
    assert "gpu01" in gpuops("inventory", "graph")
    assert gpuops("provision", "mine", "--list-hosts").splitlines()[-1].split() == ["batch", "1", "gpu01"]


def test_an_inventory_that_is_named_is_looked_for_here_first(project, monkeypatch, gpuops):
    monkeypatch.chdir(project / "launch")
    assert "gpu01" in gpuops("inventory", "graph", "-i", "prod.yml")
    monkeypatch.chdir(project / "launch" / "deep")
    assert "deep" in gpuops("inventory", "graph", "-i", "prod.yml")


def test_without_settings_the_current_folder_is_the_project(project, monkeypatch, gpuops):
    (project / "gpuops.yml").unlink()
    monkeypatch.chdir(project / "launch")
    assert "lid-closed" not in gpuops("checks", "list")
    monkeypatch.chdir(project)
    assert "lid-closed" in gpuops("checks", "list")


def test_state_is_not_of_the_folder_one_stands_in(project, tmp_path, monkeypatch, gpuops):
    with Store(tmp_path / "inventory" / ".gpuops" / "state.db") as store:
        run = store.begin("a test", who="ops")
        store.record_transition("gpu01", run, lambda _: StateChange("drained", "beside the inventory"))
    (tmp_path / "gpuops.yml").unlink()
    (tmp_path / "elsewhere").mkdir()
    for folder, name in (("elsewhere", "../inventory/prod.yml"), ("inventory", "prod.yml"), (".", "prod.yml")):
        monkeypatch.chdir(tmp_path / folder)
        assert (
            json.loads(gpuops("state", "list", "-i", name, "--json"))["hosts"]["gpu01"]["why"] == "beside the inventory"
        )
        assert "beside the inventory" in gpuops("state", "show", "gpu01", "-i", name)
        monkeypatch.setenv("GPUOPS_INVENTORY", name)
        assert "gpu01" in gpuops("state", "list")
        monkeypatch.delenv("GPUOPS_INVENTORY")
        is_beside = folder == "inventory"  # the store of the current folder counts if there is no other
        assert list(json.loads(gpuops("state", "list", "--json"))["hosts"]) == ["gpu01"] * is_beside


def test_runs_are_written_beside_the_inventory(tmp_path, monkeypatch, gpuops):
    for folder in ("site", "here"):
        (tmp_path / folder).mkdir()
    (tmp_path / "site" / "prod.yml").write_text("all: {hosts: {n1: {ansible_connection: local}}}\n")
    monkeypatch.chdir(tmp_path / "here")
    gpuops("state", "set", "n1", "repair", "--reason", "x", "-i", "../site/prod.yml")
    assert list((tmp_path / "here").iterdir()) == []
    assert (tmp_path / "site" / ".gpuops" / "state.db").exists()


def test_reading_creates_no_store_that_would_hide_another(tmp_path, user_state, monkeypatch):
    with Store(tmp_path / "old" / ".gpuops" / "state.db") as store:
        store.record_transition("gpu01", store.begin("a test", who="ops"), lambda _: StateChange("drained", "old"))
    (tmp_path / "new").mkdir()
    monkeypatch.chdir(tmp_path / "new")
    for words in (("state", "list"), ("state", "show", "gpu01"), ("runs", "list"), ("journal", "verify")):
        CliRunner().invoke(program, words, standalone_mode=False)
    assert not user_state.exists()
    monkeypatch.chdir(tmp_path / "old")
    done = CliRunner().invoke(program, ("state", "list"), standalone_mode=False)
    assert "gpu01" in done.stdout
    assert "using the store in .gpuops" in done.stderr


def test_store_that_gpuops_yml_hides_is_reported(project, monkeypatch):
    monkeypatch.chdir(project)
    with Store(project / "inventory" / ".gpuops" / "state.db") as store:
        store.record_transition("gpu01", store.begin("a test", who="ops"), lambda _: StateChange("repair", "old"))
    for words in ((), ("-i", str(project / "inventory" / "prod.yml"))):
        done = CliRunner().invoke(program, ("state", "list", *words), standalone_mode=False)
        assert "fan swap" in done.stdout
        assert "using the store in state, not the one in inventory/.gpuops" in " ".join(done.stderr.split())


def test_a_path_is_told_the_shorter_way(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert str(shortest(tmp_path / "state.db")) == "state.db"
    assert str(shortest(tmp_path)) == "."
    assert str(shortest(tmp_path.parent.parent / "s.db")) == "../../s.db"
    monkeypatch.chdir("/usr/share")
    assert str(shortest(Path("/x"))) == "/x"

"""``gpuops preflight`` as far as no node is asked."""

import json

import pytest
from click.testing import CliRunner

from gpuops.cli import program


@pytest.fixture
def preflight(tmp_path, monkeypatch):
    (tmp_path / "prod.yml").write_text("all: {hosts: {gpu01: {}}}\n")
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(
        program, ["preflight", "-i", "prod.yml", "--json", "--", *words], standalone_mode=False
    )


def test_the_hostfile_that_a_command_names_is_read(preflight, tmp_path):
    (tmp_path / "hosts").write_text("gpu77 slots=8\n")
    done = preflight("mpirun", "-np", "8", "--hostfile", "hosts", "x")
    (cause,) = json.loads(done.stdout)["causes"]
    assert (done.return_value, cause["test"]) == (1, "hosts")
    assert "gpu77" in cause["why"]


def test_a_hostfile_that_cannot_be_read_is_reported(preflight):
    done = preflight("mpirun", "-np", "8", "--hostfile", "hosts", "x")
    assert str(done.exception) == "hosts: cannot be read: no such file or directory"


def test_unusable_host_is_refused_only_if_the_command_names_it(preflight, tmp_path):
    hosts = "{hosts: {here: {ansible_connection: local}, box: {ansible_connection: docker}}}"
    (tmp_path / "prod.yml").write_text(f"all: {hosts}\n")
    assert "unsupported ansible_connection" in str(preflight("mpirun", "-H", "box:1", "x").exception)
    assert json.loads(preflight("mpirun", "-H", "here:1", "x").stdout)["hosts"] == ["here"]

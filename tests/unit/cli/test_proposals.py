"""What a verb proposes names the inventory that was used, and no other."""

import pytest
from click import UsageError
from click.testing import CliRunner

from gpuops.cli import program
from gpuops.cluster import Cluster
from gpuops.errors import GpuopsError

HOSTS = "all: {hosts: {n1: {ansible_connection: local}, n2: {ansible_connection: local}}}\n"


@pytest.fixture
def gpuops(tmp_path, monkeypatch):
    (tmp_path / "hosts.yml").write_text(HOSTS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gpuops.operations.health.quick_checks", lambda *_: [])  # whether this machine is well

    def run(*words):
        done = CliRunner().invoke(program, words, standalone_mode=False)
        assert done.exception is None or isinstance(done.exception, GpuopsError), done.exception
        return str(done.exception) if done.exception else done.output

    return run


def test_inventory_that_is_named_is_proposed(gpuops):
    assert "n1: it is new; to do: gpuops onboard n1 -i hosts.yml" in gpuops("admit", "n1", "-i", "hosts.yml")
    message = gpuops("ping", "-i", "hosts.yml", "--limit", "n1:!n1")
    assert message == 'pattern "n1:!n1" selects no hosts; to list groups: gpuops inventory graph -i hosts.yml'


@pytest.mark.parametrize("named", [("--local",), ("-i", "localhost")])
def test_this_machine_is_proposed(gpuops, named):
    assert gpuops("admit", "localhost", *named).strip().endswith("-i localhost")


def test_inventory_of_the_environment_may_be_set_for_one_command_only(gpuops, monkeypatch):
    monkeypatch.setenv("GPUOPS_INVENTORY", "hosts.yml")
    assert gpuops("admit", "n1").strip().endswith("gpuops onboard n1 -i hosts.yml")
    assert gpuops("diff").endswith("gpuops validate -i hosts.yml")


def test_inventory_of_the_settings_is_not_repeated(gpuops, tmp_path):
    (tmp_path / "gpuops.yml").write_text("inventory: hosts.yml\n")
    assert gpuops("admit", "n1").strip().endswith("gpuops onboard n1")


def test_a_program_gets_the_inventory_that_it_opened(tmp_path, monkeypatch):
    monkeypatch.setattr("gpuops.operations.health.quick_checks", lambda *_: [])
    (tmp_path / "hosts.yml").write_text(HOSTS)
    with Cluster.open(tmp_path / "hosts.yml", limit="n1") as cluster:
        objection = cluster.admit().objections["n1"]
    assert objection.do == f"gpuops onboard n1 -i {tmp_path}/hosts.yml"


@pytest.mark.parametrize(
    ("words", "proposed"),
    [
        (("diff",), "to save one: gpuops validate -i hosts.yml"),
        (("diff", "1"), "no run is kept yet; to save one: gpuops validate -i hosts.yml"),
        (("history",), "to save one: gpuops validate -i hosts.yml"),
        (("history", "n1"), "no run is kept yet; to save one: gpuops validate -i hosts.yml"),
        (("state", "list"), "to give one to a node: gpuops onboard NODE -i hosts.yml"),
    ],
)
def test_inventory_whose_store_is_read_is_proposed(gpuops, words, proposed):
    assert gpuops(*words, "-i", "hosts.yml").strip().endswith(proposed)


def test_second_inventory_is_refused_instead_of_replacing_the_first():
    for words in (("ping",), ("history",), ("inventory", "list")):
        with pytest.raises(UsageError, match="--inventory is given 2 times, and only one can be used"):
            program.main([*words, "-i", "hosts.yml", "-i", "b"], standalone_mode=False)

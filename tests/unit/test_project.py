import getpass
import os
import pathlib

import pytest

from gpuops.errors import DocumentError
from gpuops.project import Project, find_project, load_project, operator_name


def test_without_a_file_everything_has_a_default(tmp_path):
    assert load_project(tmp_path) == Project(None, 64, "fail", ".gpuops/state.db", "none", "none", tmp_path)


def test_every_key_is_read(tmp_path):
    (tmp_path / "gpuops.yml").write_text(
        "inventory: prod.yml\nfanout: 32\nfail_on: warn\nstore: /srv/s.db\nscheduler: slurm\nlease: drain\n"
    )
    assert load_project(tmp_path) == Project("prod.yml", 32, "warn", "/srv/s.db", "slurm", "drain", tmp_path)


def test_without_a_folder_the_current_one_does_not_count(tmp_path, monkeypatch):
    (tmp_path / "gpuops.yml").write_text("fanout: 7\n")
    monkeypatch.chdir(tmp_path)
    assert load_project() == Project()


@pytest.mark.parametrize(
    ("store", "path"), [("db", "db"), (".gpuops/state.db", ".gpuops/state.db"), ("/srv/s.db", "/srv/s.db")]
)
def test_store_and_runs_lie_in_the_projects_folder(tmp_path, monkeypatch, store, path):
    (tmp_path / "gpuops.yml").write_text(f"store: {store}\n")
    monkeypatch.chdir("/")
    project = load_project(tmp_path)
    assert project.store_path == tmp_path / path
    assert project.runs_path == (tmp_path / path).parent / "runs"


class TestFindProject:
    def test_takes_the_nearest_folder_with_a_file(self, tmp_path):
        inner = tmp_path / "a" / "b"
        inner.mkdir(parents=True)
        (tmp_path / "gpuops.yml").touch()
        assert find_project(inner) == find_project(tmp_path) == tmp_path
        (tmp_path / "a" / "gpuops.yml").touch()
        assert find_project(inner) == tmp_path / "a"

    def test_takes_the_start_if_there_is_no_file(self, tmp_path):
        assert find_project(tmp_path) == tmp_path

    def test_passes_over_another_users_file_above(self, tmp_path, monkeypatch):
        (tmp_path / "a").mkdir()
        (tmp_path / "gpuops.yml").touch()
        real = pathlib.Path.stat

        def stat(self, **options):
            status = real(self, **options)
            return os.stat_result((*status[:4], os.geteuid() + 1, *status[5:10]))

        monkeypatch.setattr(pathlib.Path, "stat", stat)
        assert find_project(tmp_path / "a") == tmp_path / "a"
        assert find_project(tmp_path) == tmp_path


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({"SUDO_USER": "alice", "USER": "root"}, "alice"),
        ({"USER": "bob"}, "bob"),
        ({"SUDO_USER": "", "USER": "c"}, "c"),
    ],
)
def test_operator_is_the_user_behind_sudo(environment, name):
    assert operator_name(environment) == name


def test_operator_without_an_environment_is_the_account(monkeypatch):
    monkeypatch.setenv("SUDO_USER", "somebody-else")
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    assert operator_name({}) == getpass.getuser()
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    assert operator_name({}) == str(os.getuid())


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ("fanuot: 3\n", "gpuops.yml:1:1", 'did you mean "fanout"'),
        ("fanout: 0\n", "gpuops.yml:1:9", "1"),
        ("fanout: many\n", "gpuops.yml:1:9", "number"),
        ("store: s\nfail_on: always\n", "gpuops.yml:2:10", '"always" is not one of fail, warn, never'),
        ("scheduler: pbs\n", "gpuops.yml:1:12", "none, slurm, kubernetes"),
        ("scheduler: slurm\nlease: all\n", "gpuops.yml:2:8", "none, reservation, drain"),
        ("lease: drain\n", "gpuops.yml:1:8", "needs scheduler: slurm"),
        ("- a\n", "gpuops.yml:1:1", "list"),
        ("fanout: 1\nfanout: 2\n", "gpuops.yml:2:1", "first set on line 1"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path, text, where, said):
    (tmp_path / "gpuops.yml").write_text(text)
    with pytest.raises(DocumentError, match=said) as caught:
        load_project(tmp_path)
    assert where in str(caught.value)

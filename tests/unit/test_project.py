import getpass
import os
import pathlib
import subprocess

import pytest

from gpuops.errors import ContentError, DocumentError
from gpuops.project import Project, find_project, load_project, operator_name, placed, shortest


def test_without_a_file_everything_has_a_default(tmp_path, user_state):
    default = Project(folder=tmp_path, state_folder=user_state)
    assert (default.fanout, default.fail_on, default.store) == (64, "fail", ".gpuops/state.db")
    assert load_project(tmp_path) == default


def test_every_key_is_read(tmp_path):
    (tmp_path / "gpuops.yml").write_text(
        "inventory: prod.yml\nfanout: 32\nfail_on: warn\nstore: /srv/s.db\nscheduler: slurm\nlease: drain\n"
        "keep_days: 30\nkeep_mib: 64\n"
    )
    expected = Project("prod.yml", 32, "warn", "/srv/s.db", "slurm", "drain", 30, 64, tmp_path, names_scheduler=True)
    assert load_project(tmp_path) == expected


def test_without_a_folder_the_current_one_does_not_count(tmp_path, monkeypatch, user_state):
    (tmp_path / "gpuops.yml").write_text("fanout: 7\n")
    monkeypatch.chdir(tmp_path)
    assert load_project() == Project(state_folder=user_state)


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

    @pytest.mark.parametrize("what", [".", "gpuops.yml"])
    def test_passes_over_another_users_file_above(self, tmp_path, monkeypatch, what):
        (tmp_path / "a").mkdir()
        (tmp_path / "gpuops.yml").touch()
        owned_by_another(tmp_path / what, monkeypatch)
        assert find_project(tmp_path / "a") == tmp_path / "a"
        assert find_project(tmp_path) == tmp_path

    @pytest.mark.parametrize("what", [".", "gpuops.yml"])
    def test_passes_over_a_file_above_that_everyone_may_write(self, tmp_path, what):
        (tmp_path / "a").mkdir()
        (tmp_path / "gpuops.yml").touch()
        (tmp_path / what).chmod(0o777)
        assert find_project(tmp_path / "a") == tmp_path / "a"

    def test_stops_below_the_folder_of_all_homes(self, tmp_path, monkeypatch):
        (tmp_path / "homes" / "ops" / "a").mkdir(parents=True)
        (tmp_path / "homes" / "gpuops.yml").touch()
        monkeypatch.setenv("HOME", str(tmp_path / "homes" / "ops"))
        assert find_project(tmp_path / "homes" / "ops" / "a") == tmp_path / "homes" / "ops" / "a"
        (tmp_path / "homes" / "ops" / "gpuops.yml").touch()
        assert find_project(tmp_path / "homes" / "ops" / "a") == tmp_path / "homes" / "ops"


def owned_by_another(path, monkeypatch):
    real = pathlib.Path.stat

    def stat(self, **options):
        status = real(self, **options)
        foreign = self.absolute() == path.absolute()
        return os.stat_result((*status[:4], os.geteuid() + 1, *status[5:10])) if foreign else status

    monkeypatch.setattr(pathlib.Path, "stat", stat)


@pytest.mark.parametrize("what", [".", "gpuops.yml"])
def test_a_file_of_another_user_is_not_believed(tmp_path, monkeypatch, what):
    (tmp_path / "gpuops.yml").write_text("inventory: prod.yml\n")
    owned_by_another(tmp_path / what, monkeypatch)
    with pytest.raises(ContentError, match=r"not read, because (it|its directory) is owned by another user; copy it"):
        load_project(tmp_path)


@pytest.mark.parametrize("what", [".", "gpuops.yml"])
def test_a_file_that_everyone_may_write_is_not_believed(tmp_path, what):
    (tmp_path / "gpuops.yml").write_text("inventory: prod.yml\n")
    (tmp_path / what).chmod(0o777)
    with pytest.raises(
        ContentError, match=r"not read, because (it|its directory) is writable by others; fix it with: chmod go-w "
    ):
        load_project(tmp_path)


class TestPlaced:
    @pytest.fixture(autouse=True)
    def _elsewhere(self, tmp_path, monkeypatch):
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")

    def test_store_is_beside_gpuops_yml_whatever_the_inventory(self, tmp_path):
        (tmp_path / "gpuops.yml").touch()
        project = placed(load_project(tmp_path), pathlib.Path("/else/where.yml"), {})
        assert project.store_path == tmp_path / ".gpuops" / "state.db"

    def test_store_is_beside_the_inventory_without_gpuops_yml(self, tmp_path):
        project = placed(load_project(tmp_path / "here"), tmp_path / "there" / "prod.yml", {})
        assert project.store_path == tmp_path / "there" / ".gpuops" / "state.db"
        assert project.runs_path == tmp_path / "there" / ".gpuops" / "runs"

    @pytest.mark.parametrize(
        ("environment", "folder"),
        [
            ({"XDG_STATE_HOME": "/x"}, "/x/gpuops"),
            ({"XDG_STATE_HOME": "x"}, "~/.local/state/gpuops"),
            ({}, "~/.local/state/gpuops"),
        ],
    )
    def test_store_is_the_users_own_without_any_file(self, tmp_path, monkeypatch, environment, folder):
        monkeypatch.setenv("HOME", str(tmp_path))
        project = placed(load_project(), None, environment)
        assert project.store_path == pathlib.Path(folder).expanduser() / "state.db"

    def test_store_in_the_current_folder_stays_there_if_no_inventory_is_named(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HOME", str(tmp_path))
        (tmp_path / "here" / ".gpuops").mkdir()
        (tmp_path / "here" / ".gpuops" / "state.db").touch()
        project = placed(load_project(), None, {})
        assert (project.store_path, project.notice) == (
            tmp_path / "here" / ".gpuops" / "state.db",
            "using the store in .gpuops",
        )

    def test_store_in_the_current_folder_is_used_if_there_is_no_other(self, tmp_path):
        old = tmp_path / "here" / ".gpuops"
        old.mkdir()
        (old / "state.db").touch()
        (old / "runs").mkdir()
        project = placed(load_project(), tmp_path / "prod.yml", {})
        assert project.store_path == old / "state.db"
        assert "using the store in .gpuops; it belongs in ../.gpuops" in project.notice
        subprocess.run(project.notice.partition("runs: ")[2], shell=True, check=True)  # what it says moves it
        assert sorted(path.name for path in (tmp_path / ".gpuops").iterdir()) == ["runs", "state.db"]
        project = placed(load_project(), tmp_path / "prod.yml", {})
        assert (project.store_path, project.notice) == (tmp_path / ".gpuops" / "state.db", "")

    def test_store_in_the_current_folder_is_left_alone_if_there_is_another(self, tmp_path):
        for folder in (tmp_path, tmp_path / "here"):
            (folder / ".gpuops").mkdir()
            (folder / ".gpuops" / "state.db").touch()
        project = placed(load_project(), tmp_path / "prod.yml", {})
        assert project.store_path == tmp_path / ".gpuops" / "state.db"
        assert project.notice == "using the store in ../.gpuops, not the one in .gpuops"

    def test_store_is_not_out_of_place_however_the_inventory_is_named(self, tmp_path):
        (tmp_path / "here" / ".gpuops").mkdir()
        (tmp_path / "here" / ".gpuops" / "state.db").touch()
        project = placed(load_project(), tmp_path / "here" / ".." / "here" / "prod.yml", {})
        assert (project.store_path.exists(), project.notice) == (True, "")

    @pytest.mark.parametrize("store", [".gpuops/state.db", "state/nodes.db"])
    def test_store_beside_the_inventory_is_used_until_gpuops_yml_has_one(self, tmp_path, store):
        old, place = tmp_path / "inventory" / ".gpuops", (tmp_path / store).parent
        old.mkdir(parents=True)
        for name in ("state.db", "state.db-wal"):
            (old / name).touch()
        (tmp_path / "gpuops.yml").write_text(f"store: {store}\n")
        project = placed(load_project(tmp_path), tmp_path / "inventory" / "prod.yml", {})
        assert project.store_path == old / "state.db"
        assert f"using the store in ../inventory/.gpuops; it belongs in {shortest(place)}. " in project.notice
        subprocess.run(project.notice.partition("runs: ")[2], shell=True, check=True)  # what it says moves it
        project = placed(load_project(tmp_path), tmp_path / "inventory" / "prod.yml", {})
        assert (project.store_path, project.store_path.exists(), project.notice) == (tmp_path / store, True, "")
        (old / "state.db").touch()
        project = placed(load_project(tmp_path), tmp_path / "inventory" / "prod.yml", {})
        assert project.store_path == tmp_path / store
        assert project.notice == f"using the store in {shortest(place)}, not the one in ../inventory/.gpuops"

    def test_store_in_the_current_folder_is_not_believed_if_everyone_may_write_it(self, tmp_path):
        old = tmp_path / "here" / ".gpuops"
        old.mkdir()
        (old / "state.db").touch()
        old.chmod(0o777)
        project = placed(load_project(), tmp_path / "prod.yml", {})
        assert (project.store_path, project.notice) == (tmp_path / ".gpuops" / "state.db", "")

    def test_lab_in_the_current_folder_is_not_a_store(self, tmp_path):
        (tmp_path / "here" / ".gpuops" / "lab").mkdir(parents=True)
        project = placed(load_project(), tmp_path / "prod.yml", {})
        assert (project.store_path, project.notice) == (tmp_path / ".gpuops" / "state.db", "")


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


def test_name_of_the_option_proposes_the_setting(tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "gpuops.yml").write_text("forks: 3\n")
    with pytest.raises(DocumentError, match=r'unknown key "forks" in gpuops.yml; did you mean "fanout"\?'):
        load_project(tmp_path)

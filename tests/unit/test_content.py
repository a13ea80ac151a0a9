import os
import sys
import threading

import pytest

from gpuops.content import ByName, ContentFile, builtin, find, listing, load_python
from gpuops.errors import ContentError


@pytest.fixture
def project(tmp_path):
    (tmp_path / "checks").mkdir(mode=0o755)
    return tmp_path


def python(project, text, name="own"):
    path = project / "checks" / f"{name}.py"
    path.write_text(text)
    return ContentFile(name, path, "project")


@pytest.mark.parametrize("kind", ["inventory", "checks", "checks/profiles"])
def test_every_kind_ships_with_gpuops(kind):
    assert builtin(kind).is_dir()


def test_the_projects_file_hides_the_built_in_one_of_its_name(project):
    python(project, "", "gpu_count")
    found = listing("checks", ".py", project)
    assert found["gpu-count"].origin == "project"
    assert found["xid"].origin == "built-in"
    assert list(found) == sorted(found)


def test_without_a_project_the_current_folder_does_not_count(project, monkeypatch):
    python(project, "raise SystemExit('this must not run')", "gpu_count")
    python(project, "raise SystemExit('this must not run')", "own")
    monkeypatch.chdir(project)
    assert {file.origin for file in listing("checks", ".py").values()} == {"built-in"}
    with pytest.raises(ContentError, match='no check named "own"'):
        find("checks", "own", ".py")


def test_hidden_files_and_folders_are_no_content(project):
    for name in ("_draft.py", ".swap.py"):
        (project / "checks" / name).write_text("")
    (project / "checks" / "folder.py").mkdir()
    assert not {"folder", "-draft", "", "draft"} & set(listing("checks", ".py", project))


def test_a_name_is_found_with_hyphens_or_underscores(project):
    python(project, "", "my_own")
    assert find("checks", "my_own", ".py", project) == find("checks", "my-own", ".py", project)


def test_a_near_miss_is_answered_with_the_nearest(project):
    with pytest.raises(ContentError, match=r'no check named "gpu-cont"; did you mean "gpu-count"'):
        find("checks", "gpu-cont", ".py", project)


def test_a_far_miss_is_answered_with_all(project):
    with pytest.raises(ContentError, match=r"; known: .*gpu-count"):
        find("checks", "zzzzzz", ".py", project)


def test_python_is_loaded_under_a_name_of_its_own(project):
    module = load_python(python(project, "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: 'int' = 3\n"))
    assert module.A().x == 3
    assert module.__name__.startswith("gpuops_content_own_")


def test_python_runs_once_until_its_file_changes(project):
    file = python(project, "x = object()\n")
    first = load_python(file)
    assert load_python(file) is sys.modules[first.__name__] is first
    python(project, "x = object()\ny = 2\n")
    second = load_python(file)
    assert (second.y, second.x is first.x) == (2, False)


def test_a_broken_file_is_run_again(project):
    with pytest.raises(ContentError, match=r"own\.py:?1?: cannot be loaded"):
        load_python(python(project, "import nothing_of_this_name\n"))
    with pytest.raises(ContentError, match="nothing_of_this_name"):
        load_python(python(project, "import nothing_of_this_name\n"))


def test_two_threads_run_a_file_once(project):
    file = python(project, "import time\ntime.sleep(0.05)\nx = object()\n")
    modules = []
    threads = [threading.Thread(target=lambda: modules.append(load_python(file))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(module.x) for module in modules}) == 1


class TestByName:
    @pytest.fixture
    def loaded(self):
        return []

    @pytest.fixture
    def by_name(self, loaded):
        def load(name):
            loaded.append(name)
            return name.upper()

        return ByName("check", ["gpu-count", "xid"], load, "; to list them: gpuops checks list")

    def test_loads_each_at_its_first_use(self, by_name, loaded):
        assert (list(by_name), len(by_name), loaded) == (["gpu-count", "xid"], 2, [])
        assert by_name["xid"] == by_name["xid"] == "XID"
        assert loaded == ["xid"]

    def test_takes_hyphens_and_underscores(self, by_name, loaded):
        assert by_name["gpu_count"] == by_name["gpu-count"] == by_name.get("gpu_count") == "GPU-COUNT"
        assert "gpu_count" in by_name
        assert loaded == ["gpu-count"]

    def test_refuses_a_name_with_the_nearest_or_its_hint(self, by_name):
        with pytest.raises(ContentError, match='no check named "gpu-cont"; did you mean "gpu-count"'):
            by_name["gpu-cont"]
        with pytest.raises(ContentError, match=r'no check named "zzz"; to list them: gpuops checks list$'):
            by_name["zzz"]
        assert (by_name.get("zzz"), by_name.get("zzz", 3), 7 in by_name) == (None, 3, False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = (", "own.py:1: cannot be loaded: SyntaxError"),
        ("import nothing_of_this_name", "ModuleNotFoundError"),
        ("{}['x']", "KeyError"),
        ("open('/nonexistent/file')", "FileNotFoundError"),
        ("undefined", "NameError"),
    ],
)
def test_python_that_cannot_be_loaded_is_one_sentence(project, text, said):
    with pytest.raises(ContentError, match=said) as caught:
        load_python(python(project, text))
    assert str(project / "checks" / "own.py") in str(caught.value)


@pytest.mark.parametrize("mode", [0o775, 0o757])
@pytest.mark.parametrize("what", ["checks/own.py", "checks", "."])
def test_file_that_others_may_write_is_not_run(project, shared_group, what, mode):
    found = python(project, "raise SystemExit")
    (project / what).chmod(mode)
    with pytest.raises(ContentError, match="refusing to run a file that is writable by others"):
        load_python(found)


@pytest.mark.parametrize("what", ["checks/own.py", "checks", "."])
def test_what_belongs_to_another_is_not_run(project, monkeypatch, what):
    found = python(project, "raise SystemExit")
    theirs = (project / what).stat().st_ino
    real = type(found.path).stat

    def stat(path, **more):
        status = real(path, **more)
        return os.stat_result((*status[:4], 4242 if status.st_ino == theirs else status.st_uid, *status[5:]))

    monkeypatch.setattr(type(found.path), "stat", stat)
    with pytest.raises(ContentError, match="refusing to run a file that is owned by another user"):
        load_python(found)


def test_task_in_a_project_that_others_may_write_is_not_run(tmp_path, shared_group):
    path = tmp_path / "playbooks" / "tasks" / "own.py"
    path.parent.mkdir(parents=True)
    path.write_text("raise SystemExit")
    tmp_path.chmod(0o775)
    with pytest.raises(ContentError, match="refusing to run a file that is writable by others"):
        load_python(ContentFile("own", path, "project"))


def test_directory_of_project_code_is_announced_once(project, monkeypatch):
    announced = []
    monkeypatch.setattr("gpuops.content.on_project_code", [announced.append])
    load_python(python(project, ""))
    load_python(python(project, "x = 1"))
    assert announced == [project / "checks"]

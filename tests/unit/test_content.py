import os

import pytest

from gpuops.content import ContentFile, builtin, find, listing, load_python
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


def test_hidden_files_and_folders_are_no_content(project):
    for name in ("_draft.py", ".swap.py"):
        (project / "checks" / name).write_text("")
    (project / "checks" / "folder.py").mkdir()
    assert not {"folder", "-draft", "", "draft"} & set(listing("checks", ".py", project))


def test_a_name_is_found_with_hyphens_or_underscores(project):
    python(project, "", "my_own")
    assert find("checks", "my_own", ".py", project) == find("checks", "my-own", ".py", project)


def test_a_near_miss_is_answered_with_the_nearest(project):
    with pytest.raises(ContentError, match=r'no checks called "gpu-cont"; did you mean "gpu-count"'):
        find("checks", "gpu-cont", ".py", project)


def test_a_far_miss_is_answered_with_all(project):
    with pytest.raises(ContentError, match=r"; known: .*gpu-count"):
        find("checks", "zzzzzz", ".py", project)


def test_python_is_loaded_under_a_name_of_its_own(project):
    module = load_python(python(project, "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: 'int' = 3\n"))
    assert module.A().x == 3
    assert module.__name__.startswith("gpuops_content_own_")


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


@pytest.mark.parametrize("what", ["checks/own.py", "checks", "."])
def test_what_everyone_may_write_is_not_run(project, what):
    found = python(project, "raise SystemExit")
    (project / what).chmod(0o777)
    with pytest.raises(ContentError, match="everyone may write it"):
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
    with pytest.raises(ContentError, match="belongs to another user"):
        load_python(found)

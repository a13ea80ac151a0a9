"""A project of a stranger, or a directory that others may write, whose files want to be run, read or overwritten."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUNS = "import pathlib\npathlib.Path({loot!r}).touch()\n"
SH = "#!/bin/sh\ntouch {loot}\n"
INVENTORY = "all:\n  hosts:\n    n1: {ansible_connection: local}\n"
READERS = (("checks", "list"), ("validate", "-i", "prod.yml", "--level", "quick"), ("playbooks", "list"))


@pytest.fixture
def project(gpuops):
    (gpuops.project / "prod.yml").write_text(INVENTORY)
    return gpuops.project


def write(path, text, mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["checks/own.py", "playbooks/tasks/own.py"])
@pytest.mark.parametrize("open_to", ["file", "folder", "project"])
def test_code_that_others_may_write_is_not_run(gpuops, project, loot, name, open_to):
    path = write(project / name, RUNS.format(loot=str(loot)))
    write(project / "play.yml", "- {hosts: all, tasks: [{own: }]}\n")
    for folder in {path.parent, *path.parents} & {project, *project.rglob("*")}:
        folder.chmod(0o755)
    {"file": path, "folder": path.parent, "project": project}[open_to].chmod(0o777)
    for words in (*READERS, ("provision", "play.yml", "-i", "prod.yml", "--check")):
        done = gpuops(*words)
        assert "Traceback" not in done.stderr
    assert done.returncode in (1, 2, 3)


@pytest.mark.parametrize("name", ["click.py", "yaml/__init__.py", "gpuops/__init__.py", "json.py", "sitecustomize.py"])
def test_module_in_the_current_directory_is_not_imported(project, loot, name):
    write(project / name, RUNS.format(loot=str(loot)))
    program = Path(sys.executable).with_name("gpuops")
    done = subprocess.run(
        [program, "validate", "-i", "prod.yml", "--level", "quick"],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode in (1, 3), done.stderr


@pytest.mark.parametrize("name", ["ssh", "git", "python3", "sh", "nvidia-smi"])
def test_program_in_the_current_directory_is_not_started(gpuops, project, loot, name):
    write(project / name, SH.format(loot=loot), 0o755)
    assert gpuops("validate", "-i", "prod.yml", "--level", "quick").returncode in (1, 3)


SETTINGS = {
    "an unknown key": "on_start: touch LOOT\n",
    "an object of Python": "inventory: !!python/object/apply:os.system [touch LOOT]\n",
    "no text": "\x00\x01",
    "a list": "- a\n",
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_are_data(refused, project, loot, name):
    write(project / "gpuops.yml", SETTINGS[name].replace("LOOT", str(loot)))
    assert "gpuops.yml:1:" in refused("validate", "-i", "prod.yml")


TEMPLATES = {
    "classes of Python": "{{ ().__class__.__base__.__subclasses__() }}",
    "modules behind a function": "{{ cycler.__init__.__globals__.os.system('touch LOOT') }}",
    "modules behind a filter": "{{ ('' | attr('__class__')).mro() }}",
    "a format": "{{ '{0.__class__.__init__.__globals__}'.format(refuse) }}",
    "a file of this machine": "{% include '/etc/passwd' %}",
    "an import": "{% import 'os' as os %}",
    "a number that is none": "{{ 1 // 0 }}",
    "a macro without end": "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
    "text without end": "{% for a in range(10**9) %}{% for b in range(10**9) %}x{% endfor %}{% endfor %}",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_template_reaches_nothing_of_python(gpuops, project, loot, name):
    write(project / "templates" / "evil.sh.j2", TEMPLATES[name].replace("LOOT", str(loot)))
    code = "import sys; from gpuops.render import find_target, render; from gpuops.placement import *; " + JOB
    done = subprocess.run(
        [sys.executable, "-c", code, str(project)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.startswith("refused: "), (done.stdout, done.stderr)


JOB = """
from pathlib import Path
from gpuops.errors import TemplateError
from gpuops.layout import Layout
from gpuops.render import Job
gpus = tuple(GpuShape(i, f"GPU-{i}", f"0000:{i:02x}:00.0", 0, None, 0) for i in range(2))
placed = place(Layout(dp=2), [NodeShape("n1", "n1", gpus, (), "", "n1", {(0, 1): "NV18", (1, 0): "NV18"})])
try:
    print("rendered:", render(find_target("evil", Path(sys.argv[1])), placed, Job()))
except TemplateError as error:
    print("refused:", error)
"""


@pytest.mark.parametrize("name", ["../out.sh.j2", "a/../../out.sh.j2"])
def test_template_is_not_taken_from_elsewhere(refused, project, name):
    write(project / "out.sh.j2", "x")
    refused("targets", "explain", name)


@pytest.mark.parametrize("name", ["state.db", "runs", "claims"])
def test_link_in_place_of_a_record_is_not_followed(gpuops, project, name):
    victim = gpuops.home / ".ssh" / "authorized_keys"
    victim.write_text("")
    (project / ".gpuops").mkdir(mode=0o700)
    (project / ".gpuops" / name).symlink_to(victim)
    write(project / "play.yml", "- {hosts: all, tasks: []}\n")
    for words in (("validate", "-i", "prod.yml"), ("drain", "n1", "-i", "prod.yml"), ("runs", "list")):
        assert "Traceback" not in gpuops(*words).stderr
    assert victim.read_text() == ""


def test_store_of_another_user_is_not_used(gpuops, project):
    folder = project / ".gpuops"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    if os.geteuid() == 0:
        os.chown(folder, 65534, 65534)
    done = gpuops("validate", "-i", "prod.yml", "--level", "quick")
    assert done.returncode in (1, 2, 3)
    assert "Traceback" not in done.stderr
    assert os.geteuid() != 0 or not list(folder.iterdir())

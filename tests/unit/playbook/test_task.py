import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from gpuops import Change, Command, Secret
from gpuops.document import Where, parse
from gpuops.errors import ContentError, DocumentError, InputError
from gpuops.playbook.parameters import as_node, read_params
from gpuops.playbook.task import Task, TaskRegistry, task


@dataclasses.dataclass(frozen=True)
class Part:
    size: int


@dataclasses.dataclass(frozen=True)
class Params:
    name: str
    mode: str = "0600"
    count: int = 1
    ratio: float = 1.0
    hold: bool = False
    state: Literal["present", "absent"] = "present"
    version: str | None = None
    names: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    token: Secret | None = None
    src: Path | None = None
    free: Any = None

    def __post_init__(self):
        if self.count > 9:
            raise ValueError("count is at most 9")


SAMPLE = Task("sample", Params, lambda _: iter(()))


def read(text, file="p.yml", environment=None):
    return read_params(SAMPLE, parse(text, str(file)), environment or {})


def test_the_type_of_the_field_decides_what_a_value_means():
    found = read('{name: 22:30, mode: 0644, count: 3, ratio: 2, hold: yes, names: [a, "b"], parts: [{size: 4}]}')
    assert found == Params("22:30", "0644", 3, 2.0, hold=True, names=("a", "b"), parts=(Part(4),))
    assert read('{name: a, versions: {nccl: "2.28"}, free: [1, x]}') == Params(
        "a", versions={"nccl": "2.28"}, free=[1, "x"]
    )
    assert read("{name: a, version: }").version is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{nam: a}", 'p.yml:1:2: unknown key "nam" under "sample"; did you mean "name"?'),
        ("{mode: a}", 'p.yml:1:1: "sample" needs "name"'),
        ("{name: yes}", 'p.yml:1:8: sample: name means true or false in YAML; put it in quotes: "yes"'),
        ("{name: [a]}", "p.yml:1:8: expected sample: name, found a list"),
        ("{name: !vault x}", "p.yml:1:8: sample: name must be plain text; only a secret may be !vault"),
        ("{name: a, version: 1.10}", 'sample: version 1.10 reads as a number; put it in quotes: "1.10"'),
        ("{name: a, count: many}", 'p.yml:1:18: sample: count is expected, found "many"'),
        ("{name: a, count: 10}", "p.yml:1:1: sample: count is at most 9"),
        ("{name: a, state: gone}", 'sample: state must be one of present, absent; found "gone"'),
        ("{name: a, names: b}", 'p.yml:1:18: expected sample: names: a list (- item), found "b"'),
        ("{name: a, parts: [{length: 1}]}", 'p.yml:1:20: unknown key "length" under "sample: parts"'),
        (
            "{name: a, token: hunter2}",
            "sample: token is a secret and must not be written here; refer to it with !env NAME or !file PATH",
        ),
        ("{name: a, token: !env NO_SUCH}", "sample: token: NO_SUCH is not set in the environment"),
        ("{name: a, src: nothing.conf}", "sample: src: no such file: nothing.conf"),
        ("[a]", 'p.yml:1:1: "sample" takes a map of name, mode,'),
    ],
)
def test_what_cannot_be_meant_is_refused_at_its_place(text, said, monkeypatch):
    monkeypatch.setenv("NO_SUCH", "this program's own environment is not looked at")
    with pytest.raises(DocumentError) as told:
        read(text)
    assert said in str(told.value)


def test_a_secret_comes_from_the_environment_or_from_a_file_of_the_owners_alone(tmp_path):
    environment = {"TOKEN": "hunter2"}
    (tmp_path / "token").write_text("hunter3\n")
    (tmp_path / "token").chmod(0o600)
    assert read("{name: a, token: !env TOKEN}", environment=environment).token.reveal() == "hunter2"
    assert read("{name: a, token: !file token}", tmp_path / "p.yml").token.reveal() == "hunter3"
    assert "hunter" not in repr(read("{name: a, token: !env TOKEN}", environment=environment))
    (tmp_path / "token").chmod(0o640)
    with pytest.raises(DocumentError, match="other users can read"):
        read("{name: a, token: !file token}", tmp_path / "p.yml")


def test_a_file_is_looked_for_beside_the_playbook(tmp_path):
    (tmp_path / "a.conf").write_text("x")
    assert read("{name: a, src: a.conf}", tmp_path / "p.yml").src == tmp_path / "a.conf"


def test_values_of_another_task_are_read_as_those_of_a_document():
    given = {"name": "a", "count": 2, "hold": True, "names": ("x",), "token": Secret("s"), "version": None}
    found = read_params(SAMPLE, as_node(given, Where("tasks/other.py")))
    assert found == Params("a", count=2, hold=True, names=("x",), token=Secret("s"))
    with pytest.raises(DocumentError, match=r"tasks/other.py:1:1: unknown key \"cont\""):
        read_params(SAMPLE, as_node({"name": "a", "cont": 2}, Where("tasks/other.py")))


def test_a_change_is_a_command_or_a_reboot():
    Change("x", Command(("true",)))
    Change("x", reboot="a new kernel")
    for wrong in ({}, {"command": Command(("true",)), "reboot": "a new kernel"}):
        with pytest.raises(InputError, match='"x" needs a command, the reason of a reboot or a function'):
            Change("x", **wrong)


@pytest.mark.parametrize("make", [lambda params: iter(()), lambda: None])
def test_a_task_is_a_generator_over_a_dataclass(make):
    with pytest.raises(TypeError, match="must be a generator whose first argument is annotated with a dataclass"):
        task(make)


OWN = '''
"""Own."""
from dataclasses import dataclass
from gpuops import Plan, task

@dataclass(frozen=True)
class Params:
    value: str

@task
def {name}(params: Params, node) -> Plan:
    """What holds."""
    yield from ()
'''


@pytest.fixture
def project(tmp_path):
    (tmp_path / "playbooks" / "tasks").mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "playbooks", tmp_path / "playbooks" / "tasks"):
        folder.chmod(0o755)
    return tmp_path


def write(project, name, text):
    path = project / "playbooks" / "tasks" / f"{name}.py"
    path.write_text(text)
    path.chmod(0o644)


def test_a_new_task_is_one_file_in_the_project(project):
    write(project, "own_thing", OWN.replace("{name}", "own_thing"))
    library = TaskRegistry(project)
    assert "own_thing" in library
    found = library["own_thing"]
    assert (found.name, found.doc, found.wants_machine) == ("own_thing", "Own. What holds.", True)
    assert found.path == project / "playbooks" / "tasks" / "own_thing.py"


FUNCTION = """
def deploy(c, version: str, count: int = 2, extra=None):
    \"\"\"Put it there.\"\"\"
    c.run(f"deploy {version} {count} {extra}")
"""


@pytest.mark.parametrize(
    "text", [FUNCTION, f"from fabric import task\n{FUNCTION.replace('def', '@task' + chr(10) + 'def')}"]
)
def test_a_plain_fabric_function_is_a_task_with_its_parameters(project, text):
    write(project, "deploy", text)
    found = TaskRegistry(project)["deploy"]
    assert (found.name, found.doc) == ("deploy", "Put it there.")
    params = read_params(found, parse('{version: "1.10", extra: [a, 1]}', "p.yml"))
    (change,) = found.plan(params, None)
    assert (change.what, change.kind) == ("deploy(version='1.10', count=2, extra=['a', 1])", "act")
    ran = []
    change.call(SimpleNamespace(run=ran.append))
    assert ran == ["deploy 1.10 2 ['a', 1]"]
    for wrong, said in (("{count: 3}", '"deploy" needs "version"'), ("{version: a, cout: 1}", 'did you mean "count"')):
        with pytest.raises(DocumentError, match=said):
            read_params(found, parse(wrong, "p.yml"))


def test_a_function_that_takes_any_parameters_gets_what_stands_in_the_playbook(project):
    write(project, "anything", "def anything(c, **params):\n    c.run(params)\n")
    found = TaskRegistry(project)["anything"]
    (change,) = found.plan(read_params(found, parse("{a: 1, b: yes}", "p.yml")), None)
    ran = []
    change.call(SimpleNamespace(run=ran.append))
    assert ran == [{"a": 1, "b": True}]


def test_a_broken_task_hurts_only_who_uses_it(project):
    write(project, "broken", "import nothing_that_exists\n")
    write(project, "misnamed", OWN.replace("{name}", "other"))
    write(project, "good", OWN.replace("{name}", "good"))
    library = TaskRegistry(project)
    assert library["good"].name == "good"
    for name, said in (("broken", "cannot be loaded"), ("misnamed", "expected one @task function named misnamed")):
        with pytest.raises(ContentError, match=said):
            library[name]


def test_an_unknown_task_names_its_neighbour(project):
    write(project, "good", OWN.replace("{name}", "good"))
    with pytest.raises(ContentError, match='no task named "god"; did you mean "good"'):
        TaskRegistry(project)["god"]

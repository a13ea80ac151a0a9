import threading

import pytest

from gpuops import catalogue as module
from gpuops.catalogue import Catalogue
from gpuops.errors import ContentError, DocumentError
from gpuops.probing import Unknown

CHECK = """
from gpuops import Command, Finding, Probe, check

LIDS = Probe("lids", Command(("lid", "--state=all, of it"), become="needed"), lambda answer: answer.out)

@check(needs=LIDS)
def lid_closed(lids, profile):
    \"\"\"The lid is closed.\"\"\"
    yield from ()
"""
PROFILE = """\
name: box
values: {gpu: {count: {value: 4, source: a label, grade: datasheet}}}
"""
TASK = '''
from dataclasses import dataclass
from gpuops import task

@dataclass(frozen=True)
class Params:
    """Nothing."""

@task
def shut_lid(params: Params):
    """The lid is shut."""
    yield from ()
'''


@pytest.fixture
def project(tmp_path):
    files = {
        "checks/lid_closed.py": CHECK,
        "checks/profiles/box.yml": PROFILE,
        "playbooks/lids.yml": "- hosts: all\n  tasks: [{shut_lid: {}}]\n",
        "playbooks/tasks/shut_lid.py": TASK,
        "templates/lidrun.sh.j2": "{# about: Lids. #}\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        path.write_text(text)
    return tmp_path


OWN = {"checks": "lid-closed", "profiles": "box", "playbooks": "lids", "tasks": "shut_lid", "targets": "lidrun"}
BUILT_IN = {
    "checks": "gpu-count", "profiles": "hgx-h100", "playbooks": "driver", "tasks": "package", "targets": "torchrun",
    "probes": "smi",
}  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), OWN.items())
def test_a_projects_content_is_there_by_name(project, kind, name):
    own = getattr(Catalogue(project), kind)()
    assert name in own
    assert BUILT_IN[kind] in own
    assert own[name]


@pytest.mark.parametrize(("kind", "name"), OWN.items())
def test_without_a_project_the_current_folder_does_not_count(project, monkeypatch, kind, name):
    monkeypatch.chdir(project)
    assert name not in getattr(Catalogue(), kind)()


@pytest.mark.parametrize(("kind", "name"), BUILT_IN.items())
def test_all_that_is_built_in_can_be_used(kind, name):
    content = getattr(Catalogue(), kind)()
    assert content[name].name == name if kind != "playbooks" else content[name].path.stem == name
    assert len(list(content.values())) == len(content) > 3


@pytest.mark.parametrize("kind", BUILT_IN)
def test_each_kind_is_read_once(kind):
    catalogue = Catalogue()
    read = getattr(catalogue, kind)
    assert read() is read()
    assert all(read()[name] is read()[name] for name in list(read())[:3])
    assert read() is not getattr(Catalogue(), kind)()


def test_threads_share_what_is_read(project):
    catalogue = Catalogue(project)
    checks = []
    threads = [threading.Thread(target=lambda: checks.append(catalogue.checks()["lid-closed"])) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(check) for check in checks}) == 1
    assert checks[0].judge is Catalogue(project).checks()["lid-closed"].judge


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("checks", "gpu-cont", 'no check named "gpu-cont"; did you mean "gpu-count"?'),
        ("checks", "zzz", 'no check named "zzz"; to list them: gpuops checks list'),
        ("profiles", "hgx-h10", 'no profile named "hgx-h10"; did you mean "hgx-h100"?'),
        ("targets", "torchrn", 'no launch target named "torchrn"; did you mean "torchrun"?'),
        ("tasks", "pakage", 'no task named "pakage"; did you mean "package"?'),
        ("playbooks", "drivr", 'no playbook named "drivr"; did you mean "driver"?'),
        ("probes", "topi", 'no probe named "topi"; did you mean "topo"?'),
    ],
)
def test_a_name_that_is_not_there_is_refused_with_the_nearest(kind, name, said):
    with pytest.raises(ContentError) as error:
        getattr(Catalogue(), kind)()[name]
    assert str(error.value) == said


def test_a_text_is_parsed_by_its_kind():
    catalogue = Catalogue()
    (gpu,) = catalogue.parse("nvlink", "GPU 0: H100 (UUID: GPU-00)\n\t Link 0: 26.562 GB/s\n")
    assert gpu.links[0].gb_per_s == 26.562
    assert catalogue.parse("nvsmi-error", "fine") == Unknown("no known failure")
    with pytest.raises(ContentError, match='no kind named "nvlnk"; did you mean "nvlink"'):
        catalogue.parse("nvlnk", "")


class TestInventoryText:
    def test_is_read_without_its_secrets(self):
        found = Catalogue().parse("inventory", "[h100]\ngpu01 ansible_password=hunter2hunter2\n[none]\n")
        assert found["groups"]["h100"] == {"hosts": ["gpu01"]}
        assert found["hostvars"] == {"gpu01": {"ansible_password": "*****"}}

    def test_names_long_groups_by_their_ends(self):
        found = Catalogue().parse("inventory", "[h100]\ngpu[001:128]\n")
        assert found["groups"]["h100"] == {"hosts": {"n": 128, "first": "gpu001", "last": "gpu128"}}

    def test_is_unknown_if_it_is_wrong(self):
        found = Catalogue().parse("inventory", "all: {hosts: {a: 3}}\n")
        assert isinstance(found, Unknown)
        assert found.why.startswith("inventory:1:")


class TestSudoers:
    def test_names_a_projects_own_commands_with_escapes(self, project):
        lines = Catalogue(project).sudoers("%ops").splitlines()
        assert lines[0] == "# Commands that gpuops runs as root; none of them changes the node."
        (own,) = (line for line in lines if "/usr/bin/lid " in line)
        commands = ", ".join(rf"{folder}/lid --state\=all\,\ of\ it" for folder in module._BIN)
        assert own == f"%ops ALL=(root) NOPASSWD: {commands}"

    def test_leaves_them_out_without_the_project(self, project, monkeypatch):
        monkeypatch.chdir(project)
        text = Catalogue().sudoers("%ops")
        assert "/lid " not in text
        assert "/usr/bin/journalctl -k" in text
        assert text.endswith("\n")


@pytest.mark.parametrize("reads", [False, True])
def test_profiles_may_set_keys_in_groups_of_gpuops_only_if_a_check_reads_them(project, reads):
    (project / "checks" / "profiles" / "box.yml").write_text(PROFILE.replace("count", "lids"))
    if reads:
        (project / "checks" / "lid_closed.py").write_text(CHECK.replace("=LIDS", '=LIDS, uses=("gpu.lids",)'))
        assert Catalogue(project).profiles()["box"]["gpu.lids"] == 4
        return
    with pytest.raises(DocumentError, match=r'box\.yml:2:\d+: unknown key "gpu\.lids"'):
        Catalogue(project).profiles()

"""``gpuops provision`` over this very machine, in check mode and where it refuses; nothing is changed here."""

import json

import pytest
from click.testing import CliRunner

from gpuops.cli import program
from gpuops.cli.provision import tell_locked
from gpuops.errors import GpuopsError, LockedError

PLAYBOOK = """\
- name: Try
  hosts: all
  vars: {{where: {where}}}
  tasks:
    - name: A file with two lines
      file: {{path: "{{{{ where }}}}/a.conf", content: "one\\ntwo\\n"}}
      tags: [files]
      notify: tell
    - command: {{words: [uname, -r], read_only: true}}
  handlers:
    - name: tell
      command: {{words: [touch, "{{{{ where }}}}/told"], always: true}}
"""


@pytest.fixture
def provision(tmp_path, monkeypatch):
    (tmp_path / "p.yml").write_text(PLAYBOOK.format(where=tmp_path / "out"))
    monkeypatch.chdir(tmp_path)

    def provision(*words, code=0):
        named = () if "-i" in words or "--list-tasks" in words else ("--local",)
        monkeypatch.setattr("sys.argv", ["/usr/bin/gpuops", "provision", *words, *named])
        done = CliRunner().invoke(program, ["provision", *words, *named], standalone_mode=False)
        if isinstance(done.exception, GpuopsError):
            assert done.exception.exit_code == code
            return str(done.exception)
        assert done.exception is None, done.exception
        assert done.return_value == code
        return done.stdout

    return provision


def test_what_is_in_a_playbook_is_listed_without_asking_anybody(provision):
    assert provision("p.yml", "--list-tasks").splitlines() == [
        "Try   hosts all   serial 100%",
        "  1.2   A file with two lines   file   tags files",
        "  1.3   command   command",
        "  1.h1  tell   command   handler",
    ]
    assert provision("p.yml", "--list-hosts", "-i", "a,b,c", "-l", "a,c").splitlines() == [
        "Try   2 nodes",
        "  batch 1   a,c",
    ]


def test_unusable_host_is_refused_only_if_a_play_selects_it(provision, tmp_path):
    hosts = "hosts: {here: {ansible_connection: local}, box: {ansible_connection: docker}}"
    (tmp_path / "prod.yml").write_text(f"all: {{{hosts}, children: {{real: {{hosts: {{here: }}}}}}}}\n")
    assert "unsupported ansible_connection" in provision("p.yml", "--list-hosts", "-i", "prod.yml", code=2)
    playbook = (tmp_path / "p.yml").read_text().replace("hosts: all", "hosts: real")
    (tmp_path / "p.yml").write_text(playbook)
    assert "here" in provision("p.yml", "--list-hosts", "-i", "prod.yml")


def test_the_plan_is_printed_and_written_in_the_chosen_format(provision, tmp_path):
    (play,) = json.loads(provision("p.yml", "--list-tasks", "--json"))["plays"]
    assert [(step["id"], step["handler"]) for step in play["steps"]] == [("1.2", False), ("1.3", False), ("1.h1", True)]
    assert "plays" in json.loads(provision("p.yml", "--syntax-check", "--json"))
    assert "Try   2 nodes" in provision("p.yml", "--list-hosts", "-i", "a,b", "-o", "hosts.json")
    (play,) = json.loads((tmp_path / "hosts.json").read_text())["plays"]
    assert (play["name"], play["hosts"], play["serial"], play["batches"]) == ("Try", "all", ["100%"], [["a", "b"]])


def test_the_steps_of_other_hosts_than_there_are_can_be_listed(provision, tmp_path):
    (tmp_path / "p.yml").write_text(PLAYBOOK.format(where=tmp_path / "out").replace("hosts: all", "hosts: h100"))
    assert provision("p.yml", "--list-tasks").startswith("Try   hosts h100   serial 100%\n")
    assert 'no host or group called "h100"' in provision("p.yml", "--list-hosts", code=2)


def test_check_mode_shows_differences_and_changes_nothing(provision, tmp_path):
    told = provision("p.yml", "--check", "--diff", code=1)
    assert told.startswith("p.yml   check mode: nothing is changed\n")
    shown = [line.strip() for line in told.splitlines()]
    assert shown[3] == "would change    A file with two lines"
    assert "".join(told.split()).count(f"write{tmp_path}/out/a.conf@@-0,0+1,2@@+one+two") == 1
    assert "".join(told.split()).count(f"touch{tmp_path}/out/told") == 1
    assert shown[-2:] == [
        "1 node, 3 steps: 2 would change, 1 ok, 0 failed",
        "to apply: gpuops provision p.yml --diff --local",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["p.yml"]


def test_a_secret_may_come_from_the_environment(provision, tmp_path, monkeypatch):
    book = "- hosts: all\n  tasks: [{file: {path: %s/token, secret: !env TOKEN}}]\n"
    (tmp_path / "s.yml").write_text(book % tmp_path)
    assert "TOKEN is not set in the environment" in provision("s.yml", "--check", code=2)
    monkeypatch.setenv("TOKEN", "hunter2hunter2")
    shown = provision("s.yml", "--check", "--diff", code=1)
    assert "1 would change" in shown
    assert "hunter2" not in shown


def test_where_all_is_well_there_is_little_to_say(provision):
    told = provision("p.yml", "--check", "--skip-tags", "files")
    assert len(told.splitlines()) == 5
    assert "1 node, 1 step: 1 ok, 0 failed" in told


def test_this_machine_is_not_changed_unless_it_is_named(tmp_path, monkeypatch):
    (tmp_path / "p.yml").write_text(PLAYBOOK.format(where=tmp_path / "out"))
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(program, ["provision", "p.yml"], standalone_mode=False)
    assert "--local for this machine" in str(done.exception)
    assert done.exception.exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["p.yml"]


def test_who_holds_many_nodes_is_told_for_the_first(capsys):
    tell_locked([LockedError(f"gpu0{number} is locked by ann") for number in range(1, 6)])
    told = capsys.readouterr().err.splitlines()
    assert told[:3] == [f"gpuops: gpu0{number} is locked by ann" for number in (1, 2, 3)]
    assert told[3:] == ["gpuops: and 2 more nodes are locked"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing"], 'no playbook named "nothing"'),
        (["p.yml", "--tags", "flies"], 'no step has the tag "flies"; did you mean "files"'),
        (["p.yml", "--start-at", "tel"], 'no step has the name "tel"'),
        (["p.yml", "--resume", "r1"], "no run r1 in user-state/gpuops/runs"),
        (["p.yml", "--retry", "r1"], "no run r1 in user-state/gpuops/runs"),
        (["p.yml", "-i", "a,b", "-l", "c"], '"c"'),
    ],
)
def test_what_means_nothing_is_refused(provision, words, said):
    assert said in provision(*words, code=2)

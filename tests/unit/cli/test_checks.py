import json

import pytest

from gpuops import cli, content

FANS = '''"""Every fan turns."""

from gpuops import Command, Finding, Probe, check

fans = Probe("fans", Command(("fanctl", "--speed of fan")), lambda answer: answer.out)


@check(
    needs=fans, severity="reboot", tags=("standard", "cooling"), expects=("fan.count",), explains=("temperature",),
    catches="a fan that stands still", fix="replace the fan",
)
def fans_turn(speeds, profile):
    """A fan at rest reads 0."""
    if "0" in speeds:
        yield Finding("a fan stands still")
'''
LID = '''"""The lid is closed."""

from gpuops import Files, Probe, check

lid = Probe("lid", Files(("/sys/lid/*/state",)), lambda answer: answer.out)


@check(needs=lid)
def lid_closed(state, profile):
    yield from ()
'''
BOX = """\
name: box
values:
  fan: {count: {value: 6, source: "the maker's data sheet, page 3", grade: datasheet}}
"""
SHED = "name: shed\nvalues: {}\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project folder in which we stand, and built-in content of our own."""
    shipped, own = tmp_path / "shipped" / "checks", tmp_path / "project" / "checks"
    for folder in (shipped, own):
        (folder / "profiles").mkdir(parents=True)
    (shipped / "fans_turn.py").write_text(FANS)
    (shipped / "lid_closed.py").write_text(LID)
    (shipped / "profiles" / "box.yml").write_text(BOX)
    (shipped / "profiles" / "shed.yml").write_text(SHED)
    monkeypatch.setattr(content, "builtin", lambda kind: tmp_path / "shipped" / kind)
    monkeypatch.chdir(own.parent)
    return own.parent


@pytest.fixture
def gpuops(monkeypatch, capsys):
    def call(*words):
        monkeypatch.setattr("sys.argv", ["gpuops", *words])
        with pytest.raises(SystemExit) as end:
            cli.main()
        said = capsys.readouterr()
        return end.value.code, said.out, said.err

    return call


def test_list_shows_every_check_and_its_level(project, gpuops):
    code, out, _ = gpuops("checks", "list")
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [
        ["check", "scope", "severity", "level", "from", "tags"],
        ["lid-closed", "node", "fail", "quick", "built-in"],
        ["fans-turn", "node", "reboot", "standard", "built-in", "cooling"],
    ]


def test_a_check_of_the_project_hides_the_built_in_one(project, gpuops):
    (project / "checks" / "lid_closed.py").write_text(LID.replace("closed.", "shut."))
    listed = {check["name"]: check for check in json.loads(gpuops("checks", "list", "--format", "json")[1])["checks"]}
    assert listed["lid-closed"]["origin"] == "project"
    assert listed["lid-closed"]["path"] == str(project / "checks" / "lid_closed.py")
    assert listed["lid-closed"]["doc"] == "The lid is shut."
    assert listed["fans-turn"]["origin"] == "built-in"


def test_the_list_as_json_tells_all_of_a_check(project, gpuops):
    fans = json.loads(gpuops("checks", "list", "--format", "json")[1])["checks"][1]
    fans.pop("path")
    assert fans == {
        "name": "fans-turn",
        "scope": "node",
        "severity": "reboot",
        "level": "standard",
        "tags": ["cooling"],
        "origin": "built-in",
        "doc": "Every fan turns. A fan at rest reads 0.",
        "asks": ["fanctl '--speed of fan'"],
        "expects": ["fan.count"],
        "explains": ["temperature"],
        "applies_to": "machines whose profile or inventory sets fan.count",
        "settles_seconds": 0,
        "shadow": False,
        "fault_of": "node",
        "catches": "a fan that stands still",
        "fix": "replace the fan",
        "fix_in_common": "",
    }


def test_explain_tells_what_a_check_asks_expects_catches_and_does(project, gpuops):
    code, out, _ = gpuops("checks", "explain", "fans-turn")
    assert code == 0
    assert out == EXPLAINED


def test_a_question_of_several_probes_is_listed_once(gpuops):
    code, out, _ = gpuops("checks", "explain", "gpu-lost")
    assert code == 0
    assert out.count("lspci -Dnn -d 10de:") == 1


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ("box", "fan.count = 6                        profile box\n            source: the maker's"),
        ("shed", "fan.count is not set, so the check is skipped   profile shed\n"),
    ],
)
def test_explain_can_be_held_to_one_profile(project, gpuops, profile, expected):
    code, out, _ = gpuops("checks", "explain", "fans_turn", "--profile", profile)
    assert code == 0
    assert expected in out
    assert out.count("expects") == 1


def test_explain_shows_the_files_that_a_check_reads(project, gpuops):
    assert "  asks      cat /sys/lid/*/state\n" in gpuops("checks", "explain", "lid-closed")[1]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["fan-turns"], 'gpuops: no check named "fan-turns"; did you mean "fans-turn"?\n'),
        (["zzz"], 'gpuops: no check named "zzz"; to list them: gpuops checks list\n'),
        (["fans-turn", "--profile", "bax"], 'gpuops: no profile named "bax"; did you mean "box"?\n'),
    ],
)
def test_an_unknown_name_is_a_sentence_and_exit_2(project, gpuops, words, sentence):
    assert gpuops("checks", "explain", *words) == (2, "", sentence)


def test_a_broken_check_is_named(project, gpuops):
    (project / "checks" / "odd.py").write_text("def (")
    code, out, err = gpuops("checks", "list")
    assert (code, out) == (2, "")
    assert f"{project}/checks/odd.py:1: cannot be loaded: SyntaxError" in err


EXPLAINED = """\
fans-turn   node   reboot   standard              ../shipped/checks/fans_turn.py
  Every fan turns. A fan at rest reads 0.

  asks      fanctl '--speed of fan'
  expects   fan.count = 6                        profile box
            source: the maker's data sheet, page 3   grade: datasheet
  expects   fan.count is not set, so the check is skipped   profile shed
  explains  temperature
  catches   a fan that stands still
  do        replace the fan
"""

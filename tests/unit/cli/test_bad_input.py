"""What a person gets wrong is one sentence and the documented exit code, and nothing is half written."""

import os
import re
import subprocess
import sys

import pytest
from tests.program import run_gpuops

GOOD = "all:\n  hosts:\n    gpu01: {ansible_connection: local}\n"


def gpuops(folder, *words):
    return run_gpuops(*words, cwd=folder)


BAD_INVENTORIES = {
    "nothing in it": (b"", r"prod\.yml:1:1: no hosts"),
    "a group without hosts": (b"all:\n  children:\n    h100:\n", r"prod\.yml:1:1: no hosts"),
    "a duplicate host": (
        b"all:\n  hosts:\n    gpu01:\n    gpu01:\n",
        r'prod\.yml:4:5: duplicate key "gpu01", first set on line 3',
    ),
    "a tab": (b"all:\n\thosts:\n", r"prod\.yml:2:1: a tab in the indentation; use spaces"),
    "UTF-16": (GOOD.encode("utf-16"), r"prod\.yml: not UTF-8"),
    "a Python object": (b"all: !!python/object:os.system {}\n", r"prod\.yml:1:6: !!python/object:os\.system is not"),
    "an option as a host": (b"all:\n  hosts:\n    -oProxyCommand=id:\n", r"prod\.yml:3:5: .*-oProxyCommand=id"),
    "a port beyond TCP": (b"all:\n  hosts:\n    gpu01: {ansible_port: 70000}\n", r"prod\.yml:3:27: .*70000"),
    "no such profile": (b"all:\n  hosts:\n    gpu01: {profile: hgx-h10}\n", r'prod\.yml:3:\d+: .*"hgx-h10".*hgx-h100'),
    "an unclosed bracket": (b"all: [\n", r"prod\.yml:\d+:\d+: "),
    "a cycle": (b"a:\n  children:\n    b:\nb:\n  children:\n    a:\n", r"prod\.yml:6:5: group a contains itself"),
}


@pytest.mark.parametrize("name", BAD_INVENTORIES)
def test_a_wrong_inventory_is_told_with_its_place(tmp_path, name):
    content, complaint = BAD_INVENTORIES[name]
    (tmp_path / "prod.yml").write_bytes(content)
    done = gpuops(tmp_path, "validate", "-i", "prod.yml")
    assert_one_sentence(done, complaint)


WRONG_WORDS = {
    "missing inventory": (["-i", "nosuch.yml"], r"nosuch\.yml: no such file"),
    "unknown pattern": (["-i", "prod.yml", "--limit", "gpu99"], r"gpu99"),
    "empty selection": (["-i", "prod.yml", "--limit", "gpu01:!gpu01"], r"gpu01:!gpu01"),
    "unknown check": (["-i", "prod.yml", "--only", "gpu-cuont"], r'"gpu-cuont".*gpu-count'),
    "unknown format": (["-i", "prod.yml", "--format", "jsn"], r'"jsn".*json'),
    "missing folder": (["-i", "prod.yml", "-o", "nosuch/out.json"], r"nosuch/out\.json: .*no directory nosuch"),
    "unknown suffix": (["-i", "prod.yml", "-o", "out.docx"], r"out\.docx"),
    "full disk": (
        ["-i", "prod.yml", "--format", "json", "-o", "/dev/full", "--no-save"],
        r"/dev/full: .*no space left",
    ),
    "no facts": (["--from", "nosuch"], r"nosuch: no saved facts"),
    "unknown option": (["--levle", "quick"], r"--levle"),
    "empty inventory": (["-i", ""], r'"-i" / "--inventory": it is empty'),
    "empty limit": (["-i", "prod.yml", "-l", ""], r'"--limit": it is empty'),
    "format like no other": (["-i", "prod.yml", "--format", "xyz"], r'"xyz"; use json, junit, table'),
    "forks that are no number": (["-f", "x"], r'"x" is not a valid integer$'),
    "negative timeout": (["--connect-timeout", "-3"], r'"--connect-timeout": -3.0 is not in the range x>0'),
    "two patterns": (["-i", "prod.yml", "gpu01", "gpu02"], r'unexpected argument "gpu02".*: gpu01,gpu02$'),
    "limit without inventory": (["--limit", "gpu01"], r"no inventory given"),
}


@pytest.mark.parametrize("name", WRONG_WORDS)
def test_wrong_words_are_told_before_anything_is_written(tmp_path, name):
    (tmp_path / "prod.yml").write_text(GOOD)
    words, complaint = WRONG_WORDS[name]
    assert_one_sentence(gpuops(tmp_path, "validate", *words), complaint)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["prod.yml"]


@pytest.mark.parametrize(
    "words",
    [
        ("ping", "--connect-timeout", "nan"),
        ("validate", "--total-timeout", "inf"),
        ("run", "--timeout", "1e12", "all", "--", "true"),
        ("launch", "--grace", "nan", "--layout", "dp=1", "--", "true"),
        ("plan", "--params", "7B", "--cluster", "1xhgx-h100", "--days", "nan"),
        ("plan", "simulate", "--p2p", "nan"),
    ],
    ids=lambda words: words[0],
)
def test_number_that_is_no_time_is_refused(tmp_path, words):
    assert_one_sentence(gpuops(tmp_path, *words), r"(nan|inf|1e12) is not a number up to 10,000,000$")


CONTRADICTIONS = {
    "a size that no model has": (("plan", "--params", "99999999999T", "--cluster", "1xhgx-h100"), "is not a size"),
    "a cluster and an inventory": (("plan", "--cluster", "1xhgx-h100", "-i", "prod.yml"), "--cluster excludes PATTERN"),
    "a job of this machine": (("launch", "--layout", "dp=1", "--", "true"), "no inventory given; .*--local"),
    "a layout without a command": (("launch", "--layout", "dp=1"), "takes a COMMAND, and needs one"),
    "neither files nor a layout": (("launch",), "either a directory of launch files or --layout"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_words_that_do_not_fit_together_are_refused(tmp_path, name):
    (tmp_path / "prod.yml").write_text(GOOD)
    words, complaint = CONTRADICTIONS[name]
    assert_one_sentence(gpuops(tmp_path, *words), complaint)


@pytest.mark.parametrize(
    ("verb", "complaint"),
    [("place", '"dp=3,tp=8" is a layout; use --layout dp=3,tp=8$'), ("validate", 'no host or group called "dp=3"')],
)
def test_layout_in_place_of_a_pattern_is_refused(tmp_path, verb, complaint):
    (tmp_path / "prod.yml").write_text(GOOD)
    assert_one_sentence(gpuops(tmp_path, verb, "-i", "prod.yml", "dp=3,tp=8"), complaint)


def test_variable_that_names_a_missing_inventory_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUOPS_INVENTORY", "a/../nosuch.yml")
    for verb in ("ping", "history", "inventory list"):
        said = gpuops(tmp_path, *verb.split()).stderr
        assert f"no such file, named by GPUOPS_INVENTORY; looked for {tmp_path.resolve()}/nosuch.yml" in said


def test_option_of_a_load_that_is_not_used_is_reported(tmp_path):
    (tmp_path / "prod.yml").write_text(GOOD)
    words = ("validate", "-i", "prod.yml", "--only", "clock", "--engine", "tcp", "--burn-in", "30")
    said = gpuops(tmp_path, *words).stderr
    for option in ("--engine", "--burn-in"):
        assert f"{option} is ignored: no chosen check needs it at level quick" in said
    assert "ignored" not in gpuops(tmp_path, *words[:5]).stderr


def assert_one_sentence(done, complaint):
    said = done.stderr
    assert done.returncode == 2, said
    assert done.stdout == ""
    assert re.search(complaint, said), said
    assert "Traceback" not in said
    assert len([line for line in said.splitlines() if line.startswith("gpuops: ")]) == 1
    assert len(said.splitlines()) == 1, said


def test_saved_facts_of_a_stranger_are_refused(tmp_path):
    (tmp_path / "facts").mkdir()
    (tmp_path / "facts" / "gpu01.json").write_text('{"schema": "gpuops.facts/99", "node": "gpu01", "answers": []}')
    assert_one_sentence(gpuops(tmp_path, "validate", "--from", "facts"), r"gpuops\.facts/99")


def test_settings_with_an_unknown_key_are_refused(tmp_path):
    (tmp_path / "gpuops.yml").write_text("fan_out: 3\n")
    assert_one_sentence(gpuops(tmp_path, "ping"), r'gpuops\.yml:1:1: unknown key "fan_out".*"fanout"')


def test_an_old_report_stays_whole_when_the_new_one_cannot_be_written(tmp_path):
    (tmp_path / "prod.yml").write_text(GOOD)
    old = tmp_path / "out.json"
    old.write_text("old")
    (tmp_path / "link").symlink_to("/dev/full")
    assert gpuops(tmp_path, "validate", "-i", "prod.yml", "-o", "link", "--format", "json").returncode == 2
    assert old.read_text() == "old"


def test_a_reader_that_leaves_is_no_error(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    words = [sys.executable, "-m", "gpuops", "checks", "list"]
    done = subprocess.run(words, cwd=tmp_path, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("words", [(), ("state",)])
def test_a_verb_that_is_missing_is_answered_with_those_there_are(tmp_path, words):
    done = gpuops(tmp_path, *words)
    assert done.returncode == 2
    assert done.stderr.startswith(f"Usage: {' '.join(['gpuops', *words])} ")

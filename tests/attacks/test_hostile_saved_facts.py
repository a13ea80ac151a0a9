"""A directory of saved facts from a stranger: it wants to run code, write elsewhere, or never end."""

import json
import os
import pickle

import pytest
from tests.program import run_gpuops
from tests.unit.checks.lab_node import NOW, PROBES, answers_of

from gpuops.facts import read
from gpuops.report.answers import save_facts

ESCAPES = "\x1b]0;owned\x07\x9b31m\u202e"
READERS = (
    ("validate", "--from", "facts", "--level", "quick", "-o", "r.json", "-o", "r.xml"),
    ("place", "--from", "facts", "--layout", "dp=8", "--all-nodes"),
    (
        "render",
        "--from",
        "facts",
        "--layout",
        "dp=8",
        "--all-nodes",
        "-t",
        "torchrun,openmpi,deepspeed,env",
        "-o",
        "out",
    ),
    ("topology", "--from", "facts"),
)


@pytest.fixture
def facts(gpuops):
    """The facts of a healthy node of the lab, in a file of their own."""
    folder = gpuops.project / "facts"
    save_facts({"n1": read("n1", NOW, answers_of("hgx-h100"), PROBES, keep_answers=True)}, folder)
    return folder


@pytest.fixture
def read_all(gpuops):
    """Calls every command that reads saved facts; returns their exit codes, and all that they printed."""

    def run():
        before = set(gpuops.project.parent.rglob("*"))
        done = [run_gpuops(*words, cwd=gpuops.project, timeout=60) for words in READERS]
        printed = "".join(each.stdout + each.stderr for each in done)
        assert "Traceback" not in printed
        assert not [c for c in printed if c in "\x1b\x07\x9b\u202e"]
        made = set(gpuops.project.parent.rglob("*")) - before
        ours = [gpuops.project / name for name in ("out", ".gpuops", "r.json", "r.xml")]
        assert not [path for path in made if not any(path.is_relative_to(each) for each in ours)]
        return {each.returncode for each in done}, printed

    return run


def test_healthy_facts_are_read(facts, read_all, gpuops):
    codes, printed = read_all()
    assert codes <= {0, 3}, printed
    assert list((gpuops.project / "out").rglob("*.sh"))


NAMES = ["$(touch loot)", "-oProxyCommand=x", "a\nb", ESCAPES, "n1;id", "{{ 7 * 7 }}", "..", "a b"]


@pytest.mark.parametrize("name", ["../../loot", "/etc/loot", "", *NAMES])
def test_name_of_a_node_is_refused_unless_an_inventory_could_have_it(facts, read_all, name):
    document = json.loads((facts / "n1.json").read_text())
    (facts / "n1.json").write_text(json.dumps({**document, "node": name}))
    codes, printed = read_all()
    assert codes == {2}, printed
    assert "node name" in printed


@pytest.mark.parametrize("name", NAMES)
def test_name_of_a_file_is_refused_unless_a_node_could_have_it(facts, read_all, name):
    document = json.loads((facts / "n1.json").read_text())
    (facts / f"{name}.json").write_text(json.dumps({**document, "node": name}))
    codes, printed = read_all()
    assert codes == {2}, printed
    assert "node name" in printed


@pytest.mark.parametrize("text", [ESCAPES, "</testcase><script>alert(1)</script>", "{{ 7 * 7 }}", "]]>", "\0\ufffe"])
def test_text_of_a_node_stays_text(facts, read_all, gpuops, text):
    document = json.loads((facts / "n1.json").read_text())
    for answer in document["answers"]:
        answer["out"] = answer["out"].replace("NVIDIA H100", f"NVIDIA {text} H100").replace("mlx5_", f"mlx5_{text}")
        answer["err"] += text
    (facts / "n1.json").write_text(json.dumps(document))
    codes, printed = read_all()
    assert 70 not in codes, printed
    for path in gpuops.project.glob("r.*"):
        assert not [c for c in path.read_text() if c in "\x1b\x07\x9b"]
        assert "<script>" not in path.read_text() or path.suffix == ".json"
    for path in (gpuops.project / "out").rglob("*"):
        assert path.is_dir() or text not in path.read_text()


class Loot:
    """What a pickle runs when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


DOCUMENTS = {
    "a pickle": lambda loot: pickle.dumps(Loot(loot)),
    "ten million brackets": lambda _: b"[" * 10_000_000,
    "a list": lambda _: b"[]",
    "a number of many digits": lambda _: b'{"schema": ' + b"9" * 100_000 + b"}",
    "another schema": lambda _: b'{"schema": "gpuops.facts/99"}',
    "no UTF-8": lambda _: b"\xff\xfe\0",
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_other_document_is_one_sentence(facts, read_all, loot, name):
    (facts / "n2.json").write_bytes(DOCUMENTS[name](loot))
    codes, printed = read_all()
    assert codes == {2}, printed
    assert printed.count("n2.json") >= len(READERS)


@pytest.mark.parametrize("kind", ["a pipe", "/dev/zero", "a directory", "a sparse file"])
def test_file_without_end_takes_neither_memory_nor_time(facts, read_all, kind):
    path = facts / "n2.json"
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a directory":
        path.mkdir()
    elif kind == "a sparse file":
        path.touch()
        os.truncate(path, 1 << 40)
    else:
        path.symlink_to(kind)
    codes, printed = read_all()
    assert codes == {2}, printed


@pytest.mark.parametrize(
    "change",
    [
        {
            "kind": "command",
            "question": {"words": ["touch", "loot"], "become": "always", "root_words": ["touch", "loot"]},
        },
        {"exit": "0"},
        {"out": 7},
        {"kind": "__class__"},
        {"timed_out": "yes"},
        {"extra": 1},
    ],
)
def test_changed_answer_runs_nothing_and_is_no_bug(facts, read_all, change):
    document = json.loads((facts / "n1.json").read_text())
    document["answers"][0].update(change)
    (facts / "n1.json").write_text(json.dumps(document))
    codes, printed = read_all()
    assert 70 not in codes, printed

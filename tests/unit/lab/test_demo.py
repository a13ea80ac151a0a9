"""The demonstration's commands, without a lab."""

import shlex
from pathlib import Path

from click.testing import CliRunner

from gpuops.cli import program
from gpuops.lab import cluster, demo
from gpuops.lab.places import Places


def test_commands_are_shown_as_they_are_run(monkeypatch, tmp_path):
    ran, ends = [], []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "run", lambda words: ran.append(words) or 1)
    monkeypatch.setattr(demo, "differences", lambda _code, _report: [])
    monkeypatch.setattr(demo, "blamed_otherwise", lambda _code, _folder: [])
    monkeypatch.setattr(cluster, "up", lambda *_words, **_more: [])
    monkeypatch.setattr(cluster, "down", lambda _folder: True)
    monkeypatch.setattr(cluster, "end_after", lambda *words: ends.append(words))
    shown = CliRunner().invoke(program, ["lab", "demo", "--minutes", "7"])
    assert [line for line in shown.stdout.splitlines() if line.startswith("$")] == [f"$ {shlex.join(w)}" for w in ran]
    assert [words[:2] for words in ran] == [["gpuops", "validate"], ["gpuops", "allreduce"]]
    assert ends == [(Path(".gpuops/demo"), 7)]
    assert "the hosts stay for 7 min" in shown.stdout


def test_nothing_of_the_demonstration_is_left(tmp_path):
    places = Places(tmp_path / ".gpuops" / "demo")
    places.figures.mkdir(parents=True)
    (places.figures / "gpu01.json").write_text("{}")
    places.report.write_text("{}")
    places.clear()
    assert not places.folder.exists()

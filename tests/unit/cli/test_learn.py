"""``profiles learn -o``: a profile that is there, perhaps edited by hand, is not lost."""

import pytest
from click.testing import CliRunner
from tests.unit.checks.lab_node import NOW, PROBES, answers_of

from gpuops.cli import program
from gpuops.errors import OutputError
from gpuops.facts import read
from gpuops.report.output import save_facts


@pytest.fixture
def learn(tmp_path, monkeypatch):
    """Learns a profile from the saved answers of one healthy host."""
    monkeypatch.chdir(tmp_path)
    save_facts({"gpu01": read("gpu01", NOW, answers_of("hgx-h100"), PROBES, keep_answers=True)}, tmp_path / "kept")

    def call(*words):
        done = CliRunner().invoke(program, ["profiles", "learn", "--from", "kept", *words], standalone_mode=False)
        if done.exception:
            raise done.exception
        return done

    return call


def test_learned_profile_replaces_an_existing_file_only_if_asked(learn, tmp_path):
    path = tmp_path / "checks" / "profiles" / "ours.yml"
    learn("-o", str(path))
    learned = path.read_text()
    path.write_text("# edited by hand\n" + learned)
    with pytest.raises(OutputError, match=r"ours\.yml: already exists; pass --overwrite to replace it"):
        learn("-o", str(path))
    assert path.read_text() == "# edited by hand\n" + learned
    learn("-o", str(path), "--overwrite")
    assert path.read_text() == learned


def test_learned_profile_is_written_to_a_device_as_before(learn):
    assert learn("--format", "yaml", "-o", "/dev/null").exit_code == 0

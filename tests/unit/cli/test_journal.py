import pytest
from click.testing import CliRunner

from gpuops.cli import program
from gpuops.errors import InputError
from gpuops.playbook.journal import Journal


@pytest.fixture
def verify(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for run in ("run-1", "run-2"):
        log = Journal(tmp_path / ".gpuops" / "runs", run)
        log.write("run", playbook=run)
        log.write("end")
        log.close()

    def verify(*runs):
        done = CliRunner().invoke(program, ["journal", "verify", *runs], standalone_mode=False)
        if done.exception:
            raise done.exception
        return done.stdout

    return verify


def test_every_run_is_told_with_its_last_seal(verify):
    assert [line.split()[0] for line in verify().splitlines()] == ["run-1", "run-2"]
    (line,) = verify("run-2").splitlines()
    assert len(line.split()[1]) == 64


def test_without_any_run_it_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(program, ["journal", "verify"], standalone_mode=False)
    assert (done.stdout, done.stderr) == ("", "gpuops: there are no runs yet\n")


def test_an_edited_journal_is_named(verify, tmp_path):
    path = tmp_path / ".gpuops" / "runs" / "run-1" / "journal.jsonl"
    path.write_text(path.read_text().replace('"run-1"', '"run-x"'))
    with pytest.raises(InputError, match=r"runs/run-1/journal.jsonl:1: seal mismatch"):
        verify()
    assert verify("run-2")


def test_a_run_that_is_not_there_names_its_neighbour(verify):
    with pytest.raises(InputError, match=r'no run run-3 in .*; did you mean "run-[12]"'):
        verify("run-3")

"""What gpuops writes about nodes is for its owner alone, whatever the umask and whatever was there before."""

import datetime as dt
import os
import stat

import pytest

from gpuops.errors import OutputError
from gpuops.facts import Facts
from gpuops.files.replacing import file_lock, private_directory
from gpuops.lifecycle.claims import Claims
from gpuops.playbook.journal import Journal
from gpuops.report.answers import save_facts
from gpuops.report.output import write
from gpuops.store import Store

FACTS = {"n1": Facts("n1", dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc), {})}


@pytest.fixture(params=[0o000, 0o022, 0o777])
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder):
    """The mode of everything in a directory, by path, without the directory itself."""
    return {str(path.relative_to(folder)): oct(stat.S_IMODE(path.stat().st_mode)) for path in folder.rglob("*")}


def private(folder):
    """The modes that everything in a directory should have."""
    return {str(p.relative_to(folder)): "0o700" if p.is_dir() else "0o600" for p in folder.rglob("*")}


def test_everything_is_private_whatever_the_umask(tmp_path, umask):
    Journal(tmp_path / "a" / ".gpuops" / "runs", "r1").close()
    save_facts(FACTS, tmp_path / "b" / "facts")
    with Store(tmp_path / "c" / ".gpuops" / "state.db"):
        pass
    with Claims(tmp_path / "d" / ".gpuops" / "claims") as claims:
        claims.take("n1", "ops")
    (tmp_path / "e").mkdir(mode=0o700)
    (tmp_path / "e").chmod(0o700)
    write("{}", tmp_path / "e" / "report.json")
    with file_lock(tmp_path / "e" / "lock"):
        pass
    assert len(modes(tmp_path)) >= 14
    assert modes(tmp_path) == private(tmp_path)


def test_gpuops_own_directories_become_private_again(tmp_path):
    folder = tmp_path / ".gpuops" / "runs"
    folder.mkdir(parents=True)
    for path in (folder, folder.parent):
        path.chmod(0o777)
    Journal(folder, "r1").close()
    assert modes(tmp_path) == private(tmp_path)


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_facts_are_not_saved_in_a_directory_that_others_may_enter(tmp_path, mode):
    folder = tmp_path / "facts"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(OutputError, match=r"facts: others may enter this directory; run: chmod 700 .*facts"):
        save_facts(FACTS, folder)
    assert list(folder.iterdir()) == []


def test_saved_facts_become_private_when_they_are_replaced(tmp_path):
    old = tmp_path / "facts" / "n1.json"
    old.parent.mkdir(mode=0o700)
    old.write_text("{}")
    old.chmod(0o666)
    save_facts(FACTS, old.parent)
    assert stat.S_IMODE(old.stat().st_mode) == 0o600


def test_directory_of_another_user_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    with pytest.raises(OutputError, match="belongs to another user"):
        private_directory(tmp_path)

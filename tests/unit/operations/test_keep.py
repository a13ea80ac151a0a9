"""Saving of results: what a store that cannot be written costs."""

from types import SimpleNamespace

import pytest
from tests.unit.results.test_recorded import ASKED

from gpuops.errors import OutputError
from gpuops.judging import Finding, Verdict
from gpuops.operations.past import keep as keeping
from gpuops.profile import NO_PROFILE
from gpuops.results.health import build
from gpuops.store import Runs


@pytest.fixture
def work(tmp_path):
    return SimpleNamespace(
        project=SimpleNamespace(store_path=tmp_path / "state.db", keep_days=400, keep_mib=1024),
        nodes=SimpleNamespace(source="live", name="prod.yml"),
        hosts=(),
        invocation="gpuops validate",
        operator="alice",
        note=notes.append,
    )


notes = []
REQUEST = SimpleNamespace(save_run=True)


def report(*found):
    status = "fail" if found else "pass"
    return build(ASKED, {"n1": NO_PROFILE}, [Verdict("gpu-lost", "n1", status, found)])


def test_a_run_that_cannot_be_saved_is_compared_with_those_that_can_be_read(work, monkeypatch):
    notes.clear()
    lost = Finding("fell off the bus", check="gpu-lost", part="gpu3", host="n1", severity="isolate")
    keeping.keep(work, REQUEST, report(lost))
    real = Runs.__init__

    def refuse(self, path, *, create=True, copied=False):
        if not copied:
            raise OutputError("the disk is full")
        real(self, path, create=create, copied=copied)

    monkeypatch.setattr(Runs, "__init__", refuse)
    same = keeping.keep(work, REQUEST, report(lost))
    assert (same.number, same.changes.new, len(same.changes.continuing)) == (None, (), 1)
    assert (same.conclusion("new"), same.conclusion()) == ("ok", "failed")
    assert notes == ["this run is not saved: the disk is full"]
    other = Finding("fell off the bus", check="gpu-lost", part="gpu5", host="n1", severity="isolate")
    assert keeping.keep(work, REQUEST, report(lost, other)).conclusion("new") == "failed"


def test_without_runs_that_can_be_read_everything_counts(work, monkeypatch):
    monkeypatch.setattr(keeping.Runs, "save", lambda *_: (_ for _ in ()).throw(OutputError("the disk is full")))
    lost = Finding("fell off the bus", check="gpu-lost", part="gpu3", host="n1", severity="isolate")
    kept = keeping.keep(work, REQUEST, report(lost))
    assert (kept.changes, kept.conclusion("new")) == (None, "failed")

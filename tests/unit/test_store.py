import sqlite3
import stat
import threading

import pytest

from gpuops.errors import LockedError, OutputError
from gpuops.store import StateChange, Store


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "project" / "state.db") as store:
        yield store


def moved(store, node, state, why="because", **fingerprint):
    return store.move(node, store.begin("a test", who="ops"), lambda _: StateChange(state, why, fingerprint))


def test_the_last_event_of_a_node_is_its_present_and_the_others_its_history(store):
    moved(store, "gpu01", "new", kernel=("6.8",))
    moved(store, "gpu02", "new")
    moved(store, "gpu01", "provisioned", "it held")
    assert {name: event.state for name, event in store.present().items()} == {"gpu01": "provisioned", "gpu02": "new"}
    assert [event.state for event in store.history("gpu01")] == ["new", "provisioned"]
    assert store.history("gpu01")[0].fingerprint == {"kernel": ("6.8",)}
    assert store.last("gpu03") is None


def test_an_event_tells_who_when_why_and_in_which_run(store):
    run = store.begin("gpuops drain gpu01", who="alice")
    event = store.move("gpu01", run, lambda _: StateChange("drained", "fan swap"))
    assert (event.who, event.why, event.run) == ("alice", "fan swap", run)
    assert event.at.tzinfo is not None


def test_what_a_decision_raises_leaves_nothing_behind(store):
    moved(store, "gpu01", "new")

    def refuse(_):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        store.move("gpu01", store.begin("x", who="ops"), refuse)
    assert len(store.history("gpu01")) == 1
    moved(store, "gpu01", "provisioned")


def test_gates_are_kept_with_the_fingerprint_of_the_last_time(store):
    for version in ("570", "580"):
        store.note("gpu01", "burn-in", store.begin("onboard", who="ops"), {"driver": (version,)})
    (passed,) = store.passed("gpu01")
    assert (passed.gate, passed.fingerprint) == ("burn-in", {"driver": ("580",)})


def test_only_its_owner_may_look_into_it(store):
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700
    moved(store, "gpu01", "new")
    for path in store.path.parent.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_what_was_written_is_there_for_the_next_program(store):
    moved(store, "gpu01", "admitted")
    with Store(store.path) as other:
        assert other.last("gpu01").state == "admitted"


def test_decisions_of_two_programs_come_one_after_the_other(store):
    run = store.begin("many", who="ops")
    store.move("gpu01", run, lambda _: StateChange("0", ""))

    def count():
        with Store(store.path) as own:
            for _ in range(20):
                own.move("gpu01", run, lambda before: StateChange(str(int(before.state) + 1), ""))

    threads = [threading.Thread(target=count) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.last("gpu01").state == "60"


def test_another_writer_is_told_of(store, monkeypatch):
    monkeypatch.setattr("gpuops.store._BUSY_SECONDS", 0.1)
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with Store.__new__(Store) as own, pytest.raises(LockedError, match="another gpuops"):
        own.__init__(store.path)
    other.close()


def test_what_is_no_store_is_refused(tmp_path):
    path = tmp_path / "state.db"
    path.write_text("something else, and long enough to be read as a header of a database\n" * 20)
    with pytest.raises(OutputError, match="not a store"):
        Store(path)


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "state.db").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match="cannot be opened"):
        Store(tmp_path / "state.db")
    assert not (tmp_path / "elsewhere").exists()


def test_a_newer_store_is_left_alone(store):
    newer = sqlite3.connect(store.path)
    newer.execute("PRAGMA user_version = 9")
    newer.close()
    with pytest.raises(OutputError, match="newer gpuops"):
        Store(store.path)

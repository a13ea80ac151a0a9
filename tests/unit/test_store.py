import datetime as dt
import os
import sqlite3
import stat
import subprocess
import sys
import threading

import pytest

from gpuops.errors import LockedError, OutputError
from gpuops.store import StateChange, Store


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "project" / "state.db") as store:
        yield store


def moved(store, node, state, why="because", **fingerprint):
    return store.record_transition(
        node, store.begin("a test", who="ops"), lambda _: StateChange(state, why, fingerprint)
    )


def test_the_last_event_of_a_node_is_its_present_and_the_others_its_history(store):
    moved(store, "gpu01", "new", kernel=("6.8",))
    moved(store, "gpu02", "new")
    moved(store, "gpu01", "provisioned", "it held")
    assert {name: event.state for name, event in store.latest_by_node().items()} == {
        "gpu01": "provisioned",
        "gpu02": "new",
    }
    assert [event.state for event in store.history("gpu01")] == ["new", "provisioned"]
    assert store.history("gpu01")[0].fingerprint == {"kernel": ("6.8",)}
    assert store.latest("gpu03") is None


def test_reading_creates_no_store(tmp_path):
    with Store(tmp_path / "project" / "state.db", create=False) as missing:
        assert (missing.latest_by_node(), missing.history("gpu01"), missing.gates_passed("gpu01")) == ({}, [], [])
    assert list(tmp_path.iterdir()) == []
    with Store(tmp_path / "state.db") as store:
        moved(store, "gpu01", "new")
    with Store(tmp_path / "state.db", create=False) as store:
        assert list(store.latest_by_node()) == ["gpu01"]


def test_an_event_tells_who_when_why_and_in_which_run(store):
    run = store.begin("gpuops drain gpu01", who="alice")
    event = store.record_transition("gpu01", run, lambda _: StateChange("drained", "fan swap"))
    assert (event.who, event.why, event.run) == ("alice", "fan swap", run)
    assert event.at.tzinfo is not None


def test_an_event_keeps_its_cause(store):
    run = store.begin("gpuops drain gpu01", who="alice")
    drained = StateChange("drained", "fan swap", cause="by_hand")
    assert store.record_transition("gpu01", run, lambda _: drained).cause == "by_hand"
    assert store.latest_by_node()["gpu01"].cause == "by_hand"
    assert moved(store, "gpu01", "provisioned").cause == ""


def test_what_a_decision_raises_leaves_nothing_behind(store):
    moved(store, "gpu01", "new")

    def refuse(_):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        store.record_transition("gpu01", store.begin("x", who="ops"), refuse)
    assert len(store.history("gpu01")) == 1
    moved(store, "gpu01", "provisioned")


def test_gates_are_kept_with_the_fingerprint_of_the_last_time(store):
    for version in ("570", "580"):
        store.record_gate("gpu01", "burn-in", store.begin("onboard", who="ops"), {"driver": (version,)})
    (passed,) = store.gates_passed("gpu01")
    assert (passed.gate, passed.fingerprint) == ("burn-in", {"driver": ("580",)})


def test_only_its_owner_may_look_into_it(store):
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700
    moved(store, "gpu01", "new")
    for path in store.path.parent.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_what_was_written_is_there_for_the_next_program(store):
    moved(store, "gpu01", "admitted")
    with Store(store.path) as other:
        assert other.latest("gpu01").state == "admitted"


def test_decisions_of_two_programs_come_one_after_the_other(store):
    run = store.begin("many", who="ops")
    store.record_transition("gpu01", run, lambda _: StateChange("0", ""))

    def count():
        with Store(store.path) as own:
            for _ in range(20):
                own.record_transition("gpu01", run, lambda before: StateChange(str(int(before.state) + 1), ""))

    threads = [threading.Thread(target=count) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.latest("gpu01").state == "60"


def test_another_writer_is_told_of(store, monkeypatch):
    monkeypatch.setattr("gpuops.store.database._BUSY_SECONDS", 0.1)
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with Store(store.path) as own:
        assert own.latest("gpu01") is None  # one that reads does not wait
        with pytest.raises(LockedError, match="another gpuops"):
            own.begin("gpuops drain gpu01", who="alice")
    other.close()


def test_store_that_cannot_be_written_is_read_and_nothing_is_made_beside_it(tmp_path, monkeypatch):
    path = tmp_path / "state.db"
    with Store(path) as store:
        moved(store, "gpu01", "new")
    path.chmod(0o400)
    tmp_path.chmod(0o500)
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write nevertheless
    with Store(path, create=False) as store:
        assert store.latest("gpu01").state == "new"
        with pytest.raises(OutputError, match="cannot use the store: attempt to write a readonly database"):
            moved(store, "gpu02", "new")
    assert [file.name for file in tmp_path.iterdir()] == ["state.db"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o400


def test_an_older_store_that_cannot_be_written_is_read_and_not_upgraded(old_store, monkeypatch):
    before = old_store.read_bytes()
    monkeypatch.setattr(os, "access", lambda *_: False)
    with Store(old_store, create=False) as store:
        assert len(store.history("gpu01")) == len(OLD_EVENTS)
        with pytest.raises(OutputError, match="cannot use the store: attempt to write a readonly database"):
            moved(store, "gpu02", "new")
    assert old_store.read_bytes() == before


ON_A_FULL_DISK = """
import os, pathlib, sys
from gpuops.errors import OutputError
from gpuops.store import Runs
path = pathlib.Path(sys.argv[1], "project", "state.db")
Runs(path).close()
try:
    with open(pathlib.Path(sys.argv[1], "fill"), "wb", buffering=0) as fill:
        while fill.write(bytes(4096)):
            pass
except OSError:
    pass
try:
    Runs(path)
except OutputError as error:
    print(error)
with Runs(path, create=False) as runs:
    print(runs.count())
"""


def test_a_full_disk_is_named_and_the_store_is_read(tmp_path):
    mount = 'mount -t tmpfs -o size=400k,mode=700 none "$1" && exec "$2" -c "$3" "$1"'
    words = ["unshare", "-rm", "sh", "-c", mount, "-", str(tmp_path), sys.executable, ON_A_FULL_DISK]
    if subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
        pytest.skip("this user may not mount anything here")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.stderr, done.stdout.splitlines()) == (
        "",
        [f"{tmp_path}/project/state.db: cannot use the store: the disk is full", "0"],
    )


def test_what_is_no_store_is_refused(tmp_path):
    path = tmp_path / "state.db"
    path.write_text("something else, and long enough to be read as a header of a database\n" * 20)
    with pytest.raises(OutputError, match="not a gpuops store"):
        Store(path)


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "state.db").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match="cannot open the store"):
        Store(tmp_path / "state.db")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("version", [6, 9])
def test_a_newer_store_is_left_alone(store, version):
    newer = sqlite3.connect(store.path)
    newer.execute(f"PRAGMA user_version = {version}")
    newer.close()
    with pytest.raises(OutputError, match=f"newer gpuops .schema {version}.; upgrade"):
        Store(store.path)


SCHEMA_1 = """
CREATE TABLE runs (id TEXT PRIMARY KEY, what TEXT NOT NULL, who TEXT NOT NULL, began TEXT NOT NULL, ended TEXT);
CREATE TABLE events (id INTEGER PRIMARY KEY, node TEXT NOT NULL, state TEXT NOT NULL, why TEXT NOT NULL,
                     run TEXT NOT NULL REFERENCES runs (id), at TEXT NOT NULL, fingerprint TEXT NOT NULL);
CREATE INDEX events_of_node ON events (node, id);
CREATE TABLE gates (node TEXT NOT NULL, gate TEXT NOT NULL, run TEXT NOT NULL REFERENCES runs (id), at TEXT NOT NULL,
                    fingerprint TEXT NOT NULL, PRIMARY KEY (node, gate));
PRAGMA user_version = 1;
"""
OLD_RUN = "20260301-101500-000000"
OLD_EVENTS = [
    ("new", "it answers and reports what it is", ""),
    ("provisioned", "stopped at burn-in: it does not answer", "stopped"),
    ("validated", "it is as fast with an admitted neighbour", ""),
    ("provisioned", "no longer the machine that was tested: driver 570.86.15 → 580.95.05", "demoted"),
    ("repair", "no longer the machine that was tested: says the vendor", ""),
    ("drained", "it was stopped at noon", ""),
    ("drained", "Stopped at noon", ""),
]


@pytest.fixture
def old_store(tmp_path):
    """A store of schema 1, which has no causes."""
    path, at, fingerprint = tmp_path / "old.db", "2026-03-01T10:15:00.000001+00:00", '{"driver": ["570.86.15"]}'
    old = sqlite3.connect(path)
    old.executescript(SCHEMA_1)
    old.execute("INSERT INTO runs VALUES (?, 'gpuops onboard gpu01', 'alice', ?, ?)", (OLD_RUN, at, at))
    rows = [(state, why, OLD_RUN, at, fingerprint) for state, why, _ in OLD_EVENTS]
    insert = "INSERT INTO events (node, state, why, run, at, fingerprint) VALUES ('gpu01', ?, ?, ?, ?, ?)"
    old.executemany(insert, rows)
    old.execute("INSERT INTO gates VALUES ('gpu01', 'burn-in', ?, ?, ?)", (OLD_RUN, at, fingerprint))
    old.commit()
    old.close()
    return path


def test_a_store_of_schema_1_is_read_and_its_causes_are_filled_in(old_store):
    with Store(old_store) as store:
        history = store.history("gpu01")
        (burn_in,) = store.gates_passed("gpu01")
    assert [(event.state, event.why, event.cause) for event in history] == OLD_EVENTS
    assert (history[0].who, history[0].run, history[0].at.year) == ("alice", OLD_RUN, 2026)
    assert history[0].fingerprint == burn_in.fingerprint == {"driver": ("570.86.15",)}


def test_causes_are_filled_in_once_only(old_store):
    with Store(old_store) as store:
        moved(store, "gpu01", "drained", "stopped at noon by alice")
    with Store(old_store) as store:
        assert store.latest("gpu01").cause == ""


def test_an_old_store_and_a_new_one_have_the_same_tables(old_store, store):
    Store(old_store).close()
    tables = []
    for path in (old_store, store.path):
        database = sqlite3.connect(path)
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master ORDER BY name")]
        tables.append({name: database.execute(f"PRAGMA table_info({name})").fetchall() for name in names})
        tables[-1]["version"] = database.execute("PRAGMA user_version").fetchone()
        database.close()
    assert tables[0] == tables[1]
    assert {"runs", "events", "gates", "records", "visits", "findings", "parts"} <= tables[0].keys()
    assert tables[0]["version"] == (5,)


def test_closings_of_a_store_of_schema_1_are_counted(tmp_path):
    """Those are changes from admitted to another state; a reason for the same state is none."""
    path = tmp_path / "old.db"
    old = sqlite3.connect(path)
    old.executescript(SCHEMA_1)
    at = "2026-03-01T10:15:00.000001+00:00"
    old.execute("INSERT INTO runs VALUES ('r', 'x', 'alice', ?, ?)", (at, at))
    events = [("a", "admitted"), ("b", "new"), ("a", "admitted"), ("c", "admitted"), ("b", "repair"), ("a", "drained")]
    insert = "INSERT INTO events (node, state, why, run, at, fingerprint) VALUES (?, ?, 'x', 'r', ?, '{}')"
    old.executemany(insert, [(node, state, at) for node, state in events])
    old.commit()
    old.close()
    with Store(path) as store:
        assert store.closed_since(dt.datetime(2026, 3, 1, tzinfo=dt.timezone.utc)) == {"a"}
        assert store.closed_since(dt.datetime(2026, 3, 2, tzinfo=dt.timezone.utc)) == set()
        assert [event.checks for event in store.history("a")] == [(), (), ()]


def test_nodes_that_were_closed_are_counted_by_run_and_in_all(store):
    long_ago = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
    moved(store, "gpu01", "admitted")
    moved(store, "gpu02", "admitted")
    moved(store, "gpu01", "provisioned")
    run = store.begin("drain", who="ops")
    store.record_transition("gpu02", run, lambda _: StateChange("admitted", "a reason", cause="stopped"))
    store.record_transition("gpu03", run, lambda _: StateChange("new", "x", closes=True))
    assert store.closed_since(long_ago) == {"gpu01", "gpu03"}
    assert store.closed_since(long_ago, run) == {"gpu03"}

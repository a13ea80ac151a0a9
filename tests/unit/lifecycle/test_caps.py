"""How many nodes gpuops may close, counted from the events of the store."""

import datetime as dt
import re

import pytest

from gpuops.errors import DocumentError
from gpuops.lifecycle.caps import Caps
from gpuops.lifecycle.gates import gates_for
from gpuops.lifecycle.life import NodeLifecycle
from gpuops.project import Cap, load_project
from gpuops.store import StateChange

TESTED, OTHER = {"kernel": ("6.8.0",)}, {"kernel": ("6.8.1",)}


class Slurm:
    """A scheduler that remembers what was drained."""

    def __init__(self):
        self.drained = []

    def drain(self, hosts, _state, _why):
        self.drained += [host.name for host in hosts if host.name not in self.drained]  # with its reason, again
        return {}

    def drained_by_others(self, _hosts):
        return {}


@pytest.fixture
def rebooted(store, a_host):
    """Admits ``count`` nodes, and then looks at those of ``numbers``, which all came back with another kernel."""

    def rebooted(count, run=Cap(percent=10), day=Cap(percent=20), numbers=None):  # noqa: B008 - it is frozen
        names = [f"n{number:03}" for number in range(count)]
        before = store.begin("onboard", who="ops")
        for name in names:
            if store.latest(name) is None:
                store.record_transition(name, before, lambda _: StateChange("admitted", "x", TESTED))
        slurm = Slurm()
        life = NodeLifecycle(store, store.begin("onboard", who="cron"), slurm, caps=Caps(run, day, count))
        hosts = [a_host(name) for name in (names if numbers is None else names[numbers])]
        prints = {host.name: OTHER for host in hosts}
        life.advance(hosts, gates_for("admitted"), {"facts": lambda some: life.compare_fingerprints(some, prints)})
        return life, slurm

    return rebooted


def states(store):
    return [event.state for event in store.latest_by_node().values()]


def test_a_planned_reboot_of_a_fleet_closes_a_tenth_of_it_and_names_the_others(rebooted, store):
    life, slurm = rebooted(288)
    assert (len(slurm.drained), states(store).count("admitted")) == (28, 260)
    held = [objection for _, objection in life.stopped.values() if objection.severity == "incomplete"]
    assert len(held) == 260
    assert held[0].why.startswith(
        "not drained: this run drained 28, and max_closed (run: 10%) allows 28 of 288 nodes; it stays admitted though "
        "it is no longer the machine that was tested: kernel 6.8.0 → 6.8.1"
    )
    assert re.search("gpuops drain n028 --reason WHY --force$", held[0].do)


def test_the_cap_of_a_day_holds_over_all_runs(rebooted, store):
    drained = [len(rebooted(100, numbers=slice(start, None))[1].drained) for start in (0, 10, 20)]
    assert drained == [10, 10, 0]
    assert states(store).count("provisioned") == 20


def test_a_node_that_was_opened_again_does_not_count_twice_and_yesterday_does_not_count(rebooted, store):
    rebooted(10, day=Cap(1))
    store.record_transition("n000", store.begin("admit", who="ops"), lambda _: StateChange("admitted", "x", TESTED))
    assert rebooted(10, day=Cap(1))[1].drained == ["n000"]
    yesterday = (dt.datetime.now(dt.timezone.utc) - dt.timedelta(hours=25)).isoformat()
    store._database.execute("UPDATE events SET at = ?", (yesterday,))
    assert rebooted(10, day=Cap(1), numbers=slice(1, None))[1].drained == ["n001"]


@pytest.mark.parametrize(("run", "day", "closed"), [(Cap(0), Cap(5), 0), (Cap(3), Cap(5), 3), (Cap(9), Cap(2), 2)])
def test_numbers_are_taken_as_they_are(rebooted, run, day, closed):
    assert len(rebooted(10, run, day)[1].drained) == closed


def test_at_least_one_node_may_be_closed(rebooted):
    assert rebooted(3)[1].drained == ["n000"]


def settings(folder, text):
    (folder / "gpuops.yml").write_text(text)
    return load_project(folder)


def test_the_caps_are_read(tmp_path):
    plain = settings(tmp_path, "fanout: 3\n")
    assert (plain.max_closed_run, plain.max_closed_day) == (Cap(percent=10), Cap(percent=20))
    own = settings(tmp_path, "max_closed: {run: 4, day: 25%}\n")
    assert (own.max_closed_run, own.max_closed_day) == (Cap(4), Cap(percent=25))
    assert (own.max_closed_run.of(288), own.max_closed_day.of(288), own.max_closed_day.of(2)) == (4, 72, 1)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{run: 0%}", 'gpuops.yml:1:19: a share of the nodes from 1% to 100% is expected, found "0%"'),
        ("{run: 101%}", "from 1% to 100%"),
        ("{run: -1}", "must be between 0"),
        ("{run: many}", 'a number of nodes, or a share such as 10%, is expected, found "many"'),
        ("{week: 3}", 'unknown key "week" in max_closed'),
        ("7", "expected a map"),
    ],
)
def test_wrong_caps_are_refused(tmp_path, monkeypatch, text, told):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DocumentError, match=told):
        settings(tmp_path, f"max_closed: {text}\n")

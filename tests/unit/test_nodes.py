"""Selected hosts and the questions that they are asked."""

import datetime as dt
import threading

import pytest

from gpuops import facts
from gpuops.cluster import Cluster
from gpuops.errors import CancelledError, ConnectError, DocumentError, OfflineError, PatternError
from gpuops.events import HostDone, LeftOut, Note, Progress
from gpuops.facts import Facts
from gpuops.fleet import Outcomes
from gpuops.nodes import Nodes
from gpuops.probing import Probe
from gpuops.reasons import Excluded
from gpuops.shell import Command, Completed

NOON = dt.datetime(2026, 11, 20, 12, tzinfo=dt.timezone.utc)
ECHO = Probe("echo", Command(("echo", "hello")), lambda answer: answer.out.strip())
NAME = Probe("name", Command(("echo", "name")), lambda answer: answer.out.strip())
INVENTORY = """\
all:
  children:
    h100: {hosts: {gpu01: {}, gpu02: {}}}
    cpu: {hosts: {cpu01: {}}}
  vars: {ansible_connection: local}
"""


@pytest.fixture
def events():
    return []


@pytest.fixture
def nodes(tmp_path, events):
    (tmp_path / "prod.yml").write_text(INVENTORY)
    with Cluster.open(tmp_path / "prod.yml", events=events.append) as cluster:
        yield cluster._nodes


@pytest.fixture
def saved(tmp_path):
    """Return a function that opens the saved answers of gpu01 and old9."""
    folder = tmp_path / "monday"
    folder.mkdir()
    (tmp_path / "prod.yml").write_text(INVENTORY)
    for name in ("gpu01", "old9"):
        answers = (Completed(name, ECHO.question, 0, f"hello from {name}\n"),)
        (folder / f"{name}.json").write_text(facts.to_document(Facts(name, NOON, {}, answers)))
    return lambda **more: Cluster.saved(folder, **more)._nodes


def names(nodes):
    return [host.name for host in nodes.hosts]


def test_a_text_is_a_pattern_and_a_list_holds_exact_names(nodes):
    assert names(nodes.only("h100:!gpu01")) == ["gpu02"]
    assert names(nodes.only(["cpu01", "gpu01"])) == ["gpu01", "cpu01"]
    assert names(nodes.only(host.name for host in nodes.hosts)) == names(nodes)
    assert names(nodes.only([])) == []


@pytest.mark.parametrize("wrong", ["h200", ["h100"], ["gpu01", "gpu0*"], "all:!all"])
def test_a_host_that_is_not_there_is_a_mistake(nodes, wrong):
    with pytest.raises(PatternError):
        nodes.only(wrong)


def test_a_view_holds_no_host_that_was_not_among_its_own(nodes):
    view = nodes.only("h100")
    assert names(view.only("all")) == ["gpu01", "gpu02"]
    with pytest.raises(PatternError, match="no host named cpu01 among the 2"):
        view.only(["cpu01"])
    assert view.connections is nodes.connections
    assert view.emit is nodes.emit


@pytest.fixture
def with_docker(tmp_path):
    """Return the path of an inventory with two hosts on this machine, and one that gpuops cannot connect to."""
    path = tmp_path / "prod.yml"
    path.write_text(INVENTORY.replace("cpu01: {}", "cpu01: {ansible_connection: docker}"))
    return path


def test_unusable_host_is_refused_only_if_it_is_selected(with_docker):
    with Cluster.open(with_docker) as cluster:
        assert set(cluster.only("h100").ping().values) == set(cluster.only(["gpu01", "gpu02"]).ping().values)
        for selected in (cluster, cluster.only("cpu01")):
            with pytest.raises(DocumentError, match=r'"docker"; .*; or leave the host out: --limit "all:!cpu01"$'):
                selected.ping()
    with (
        Cluster.open(with_docker, limit="gpu01,cpu*") as cluster,
        pytest.raises(DocumentError, match=r"u01,cpu[*]:!cpu01"),
    ):
        cluster.ping()


def test_saved_answers_need_no_usable_host(saved, with_docker):
    gathered = saved(inventory=with_docker).gather([ECHO])
    assert list(gathered.values) == ["gpu01", "old9"]
    assert gathered.excluded["cpu01"].kind == "not_saved"


def test_patterns_choose_among_hosts_that_a_program_made(a_host):
    with Cluster.of([a_host("gpu01"), a_host("gpu02"), a_host("x:y")]) as cluster:
        assert names(cluster._nodes.only("gpu[01-02]:!gpu01")) == ["gpu02"]
        assert names(cluster._nodes.only(["x:y"])) == ["x:y"]
        with pytest.raises(PatternError):
            cluster.only("h100")


def test_without_an_inventory_this_machine_is_all_there_is():
    with Cluster.local() as cluster:
        assert names(cluster._nodes.only("all")) == names(cluster._nodes.only("localhost")) == names(cluster._nodes)
        with pytest.raises(PatternError, match="needs an inventory"):
            cluster.only("h100")


def test_gathering_gives_values_and_reasons_in_the_order_of_the_hosts(nodes, events, monkeypatch):
    def gather(node, ask, probes, **options):
        if node == "gpu01":
            raise ConnectError(node, "refused", "refused")
        return facts.gather(node, ask, probes, **options)

    monkeypatch.setattr("gpuops.nodes.gather", gather)
    gathered = nodes.gather([ECHO], "asking")
    assert {name: each[ECHO] for name, each in gathered.values.items()} == {"gpu02": "hello", "cpu01": "hello"}
    assert [(each.host, each.kind, each.unreachable) for each in gathered.excluded.values()] == [
        ("gpu01", "unreachable", "refused")
    ]
    assert set(gathered.took) == {"gpu01", "gpu02", "cpu01"}
    assert not gathered.interrupted
    progress = [(event.what, event.done, event.total) for event in events if isinstance(event, Progress)]
    assert progress == [("asking", done, 3) for done in range(4)]
    errors = {event.host: event.error for event in events if isinstance(event, HostDone)}
    assert errors == {"gpu01": "gpu01: refused", "gpu02": None, "cpu01": None}


def test_facts_that_are_there_are_not_asked_for_again(nodes, monkeypatch):
    asked = {}

    def gather(node, ask, probes, **options):
        asked[node] = [probe.name for probe in probes]
        return facts.gather(node, ask, probes, **options)

    monkeypatch.setattr("gpuops.nodes.gather", gather)
    older = {
        "gpu01": Facts("gpu01", NOON, {"echo": "then", "name": "then"}),
        "gpu02": Facts("gpu02", NOON, {"echo": "then"}),
        "stranger": Facts("stranger", NOON, {}),
    }
    gathered = nodes.gather([ECHO, NAME], facts=older)
    assert asked == {"gpu02": ["name"], "cpu01": ["echo", "name"]}
    values = [(name, each[ECHO], each[NAME]) for name, each in gathered.values.items()]
    assert values == [("gpu01", "then", "then"), ("gpu02", "then", "name"), ("cpu01", "hello", "name")]


def test_facts_without_answers_are_asked_again_where_answers_are_kept(nodes):
    bare = {name: Facts(name, NOON, {"echo": "then"}) for name in names(nodes)}
    kept = nodes.gather([ECHO], facts=bare, keep_answers=True)
    assert {each[ECHO] for each in kept.values.values()} == {"hello"}
    assert all(each.answers for each in kept.values.values())
    assert nodes.gather([ECHO], facts=kept.values, keep_answers=True).values == kept.values


def test_an_interrupt_is_known_even_if_every_host_answered(nodes, monkeypatch):
    each = Nodes.each
    monkeypatch.setattr(Nodes, "each", lambda *words: Outcomes(each(*words), interrupted=True))
    gathered = nodes.gather([ECHO])
    assert (list(gathered.values), gathered.excluded, gathered.interrupted) == (names(nodes), {}, True)
    with pytest.raises(CancelledError):
        gathered.raise_if_interrupted()


def test_cancelling_leaves_hosts_interrupted(nodes, monkeypatch):
    monkeypatch.setattr("gpuops.fleet._STOPPING_SECONDS", 0.5)  # after which nobody waits for them
    begun = threading.Event()

    def work(_transport, _host):
        begun.set()
        threading.Event().wait(30)

    threading.Thread(target=lambda: begun.wait() and nodes.cancel.cancel(), daemon=True).start()
    gathered = nodes.only("gpu01").collect(work, "waiting")
    assert gathered.interrupted
    assert {each.kind for each in gathered.excluded.values()} == {"interrupted"}


def test_saved_hosts_are_read_and_the_others_are_not_saved(saved, tmp_path):
    assert names(saved()) == ["gpu01", "old9"]
    nodes = saved(inventory=tmp_path / "prod.yml", limit="h100")
    gathered = nodes.gather([ECHO])
    assert {name: each[ECHO] for name, each in gathered.values.items()} == {"gpu01": "hello from gpu01"}
    assert gathered.excluded == {"gpu02": Excluded("gpu02", "not_saved", f"no saved facts in {tmp_path / 'monday'}")}


def test_answers_of_saved_hosts_are_kept_to_be_saved_again(saved):
    kept = saved().gather([ECHO], keep_answers=True).values
    assert {name: each.answers[0].out for name, each in kept.items()} == {
        "gpu01": "hello from gpu01\n",
        "old9": "hello from old9\n",
    }
    assert saved().gather([ECHO]).values["gpu01"].answers == ()


def test_hosts_that_only_saved_answers_name_are_not_of_the_inventory(saved, tmp_path):
    nodes = saved(inventory=tmp_path / "prod.yml")
    assert names(nodes) == ["gpu01", "gpu02", "cpu01", "old9"]
    assert names(nodes.of_inventory()) == ["gpu01", "gpu02", "cpu01"]
    assert names(saved().of_inventory()) == ["gpu01", "old9"]


def test_hosts_of_which_nothing_is_saved_count_only_if_there_are_no_others(saved, tmp_path, nodes):
    inventory = tmp_path / "prod.yml"
    assert names(saved(inventory=inventory).of_saved()) == ["gpu01", "old9"]
    assert names(saved(inventory=inventory).of_saved({"cpu01": Facts("cpu01", NOON, {})})) == ["gpu01", "cpu01", "old9"]
    assert names(saved(inventory=inventory, limit="gpu02").of_saved()) == ["gpu02"]
    assert names(nodes.of_saved()) == names(nodes)


def test_facts_that_are_given_are_all_that_is_known_of_a_saved_host(saved):
    given = {"gpu01": Facts("gpu01", NOON, {"name": "x"}), "old9": Facts("old9", NOON, {"echo": "y"})}
    assert saved().gather([ECHO], facts=given).values == given


def test_what_needs_a_network_is_refused_of_saved_answers(saved):
    with pytest.raises(OfflineError, match="rebooting needs a network"):
        saved().collect(lambda *_: None, "rebooting")
    with Cluster.saved(saved().folder) as cluster, pytest.raises(OfflineError):
        cluster.ping()


def test_who_is_left_out_for_the_same_reason_is_told_together(nodes, events):
    nodes.note("hello")
    nodes.note_excluded(
        [Excluded("gpu01", "busy", "ann"), Excluded("cpu01", "busy", "bob"), Excluded("gpu02", "lost", "ann")]
    )
    assert events == [
        Note(nodes.operation, "hello"),
        LeftOut(nodes.operation, ("gpu01", "gpu02"), "ann"),
        LeftOut(nodes.operation, ("cpu01",), "bob"),
    ]

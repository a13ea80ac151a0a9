"""Runs in the store: what changed, where parts are, and that nothing is lost or half there."""

import contextlib
import dataclasses
import datetime as dt
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from gpuops.errors import LockedError, OutputError
from gpuops.store import Runs, Store
from gpuops.store.records import (
    FLEET,
    Changes,
    FindingKey,
    RunRecord,
    SeenFinding,
    SeenLink,
    SeenPart,
    Visit,
)

BEGAN = dt.datetime(2026, 11, 1, 12, tzinfo=dt.timezone.utc)


def finding(node="n1", check="gpu-lost", part="gpu3", code="", message="fell off the bus", nodes=()):
    return SeenFinding(FindingKey(node, check, part, code), "fail", "isolate", message, "power-cycle it", nodes)


def visit(*findings, checks=("gpu-lost", "ib-ports"), result="pass", **fields):
    results = dict.fromkeys(checks, result) | {each.key.check: "fail" for each in findings}
    return Visit("fail" if findings else result, checks=results, findings=findings, **fields)


def record(hours=0, fleet=(), links=(), verb="validate", **nodes):
    began = BEGAN + dt.timedelta(hours=hours)
    return RunRecord(verb, began, 2.5, "ok", "alice", "gpuops validate", "prod.yml", "quick", nodes, fleet, links)


@pytest.fixture
def runs(tmp_path):
    with Runs(tmp_path / "state.db") as runs:
        yield runs


def parts_of(changes):
    return {
        kind: [f"{each.key.node}:{each.key.part}" for each in getattr(changes, kind)]
        for kind in ("new", "continuing", "gone", "unseen")
        if getattr(changes, kind)
    }


def test_first_run_is_compared_with_nothing(runs):
    number, changes = runs.save(record(n1=visit(finding())))
    assert (number, changes.since, parts_of(changes)) == (1, None, {"new": ["n1:gpu3"]})


def test_finding_is_new_then_continues_then_is_gone(runs):
    runs.save(record(n1=visit()))
    _, first = runs.save(record(1, n1=visit(finding())))
    _, second = runs.save(record(2, n1=visit(finding(message="other words"))))
    _, third = runs.save(record(3, n1=visit()))
    _, fourth = runs.save(record(4, n1=visit()))
    assert [parts_of(each) for each in (first, second, third, fourth)] == [
        {"new": ["n1:gpu3"]},
        {"continuing": ["n1:gpu3"]},
        {"gone": ["n1:gpu3"]},
        {},
    ]
    (kept,) = runs.findings("n1")
    assert (kept.first_run, kept.last_run, kept.gone_run, kept.times, kept.message) == (2, 3, 4, 2, "other words")
    assert kept.gone_at - kept.first_at == dt.timedelta(hours=2)


@pytest.mark.parametrize("result", ["unknown", "skipped", "shared fail"])
def test_finding_whose_check_did_not_look_is_not_gone(runs, result):
    runs.save(record(n1=visit(finding())))
    _, changes = runs.save(record(1, n1=visit(result=result)))
    assert parts_of(changes) == {"unseen": ["n1:gpu3"]}
    assert runs.findings("n1", is_open=True)


def test_finding_of_a_check_that_was_not_asked_is_not_gone(runs):
    runs.save(record(n1=visit(finding())))
    _, changes = runs.save(record(1, n1=visit(checks=("ib-ports",))))
    assert parts_of(changes) == {"unseen": ["n1:gpu3"]}


def test_a_node_that_was_not_visited_keeps_its_findings_in_silence(runs):
    runs.save(record(n1=visit(finding()), n2=visit()))
    _, changes = runs.save(record(1, n2=visit()))
    assert parts_of(changes) == {}
    assert runs.findings("n1", is_open=True)


def test_same_finding_after_it_was_gone_is_new_with_a_row_of_its_own(runs):
    for hours, found in enumerate([(finding(),), (), (finding(),)]):
        _, changes = runs.save(record(hours, n1=visit(*found)))
    assert parts_of(changes) == {"new": ["n1:gpu3"]}
    assert [each.gone_run for each in runs.findings("n1")] == [2, None]


def test_findings_of_other_parts_and_codes_are_others(runs):
    runs.save(record(n1=visit(finding(part="gpu3", code="79"))))
    _, changes = runs.save(record(1, n1=visit(finding(part="gpu3", code="48"), finding(part="gpu4", code="79"))))
    assert parts_of(changes) == {"new": ["n1:gpu3", "n1:gpu4"], "gone": ["n1:gpu3"]}


def test_finding_of_the_fleet_ends_only_when_all_its_nodes_were_judged(runs):
    leaf = finding(FLEET, "ib-ports", "leaf L3", nodes=("n1", "n2"))
    runs.save(record(fleet=(leaf,), n1=visit(), n2=visit()))
    _, other = runs.save(record(1, n3=visit()))
    _, one = runs.save(record(2, n1=visit()))
    _, both = runs.save(record(3, n1=visit(), n2=visit()))
    assert [parts_of(each) for each in (other, one, both)] == [
        {},
        {"unseen": [":leaf L3"]},
        {"gone": [":leaf L3"]},
    ]


def test_finding_of_the_fleet_does_not_end_if_a_node_of_it_was_not_judged(runs):
    leaf = finding(FLEET, "ib-ports", "leaf L3", nodes=("n1", "n2"))
    runs.save(record(fleet=(leaf,), n1=visit(), n2=visit()))
    _, changes = runs.save(record(1, n1=visit(), n2=Visit("unknown", "connection refused")))
    assert parts_of(changes) == {"unseen": [":leaf L3"]}


def test_finding_of_the_fleet_ends_if_all_its_nodes_share_another(runs):
    rack = finding(FLEET, "ib-ports", "rack:r1", nodes=("n1", "n2"))
    fleet = finding(FLEET, "ib-ports", "fleet", nodes=("n1", "n2", "n3"))
    shared = {name: visit(result="shared fail") for name in ("n1", "n2", "n3")}
    runs.save(record(fleet=(rack,), **{**shared, "n3": visit()}))
    _, changes = runs.save(record(1, fleet=(fleet,), **shared))
    assert parts_of(changes) == {"new": [":fleet"], "continuing": [":fleet"], "gone": [":rack:r1"]}
    assert [each.nodes for each in (*changes.new, *changes.continuing)] == [("n3",), ("n1", "n2")]


def shared_by(*nodes, of=("n1", "n2", "n3", "n4"), code="", **others):
    """Return a run of nodes that share one finding of the fleet, where the rest pass."""
    on = {name: visit(result="shared fail") if name in nodes else visit() for name in of}
    fleet = (finding(FLEET, "ib-ports", "fleet", code=code, nodes=nodes),) if nodes else ()
    return {"fleet": fleet, **on, **others}


def nodes_of(findings):
    return [each.key.node or each.nodes for each in findings]


def in_rack(*nodes, of=("n1", "n2", "n3", "n4")):
    """Return a run of nodes that share a finding of their rack, each with a card of its own."""
    on = {name: visit() for name in of}
    for name in nodes:
        on[name] = replace(visit(result="shared fail"), shared=(finding(name, "ib-ports", "gpu3"),))
    fleet = (finding(FLEET, "ib-ports", "rack:r1", nodes=nodes),) if nodes else ()
    return {"fleet": fleet, **on}


def test_a_finding_of_a_rack_is_told_once_and_kept_on_each_card(runs):
    runs.save(record(**in_rack()))
    _, first = runs.save(record(1, **in_rack("n1", "n2", "n3")))
    _, second = runs.save(record(2, **in_rack("n1", "n2", "n3")))
    _, one_less = runs.save(record(3, **in_rack("n2", "n3")))
    _, over = runs.save(record(4, **in_rack()))
    assert [parts_of(each) for each in (first, second, one_less, over)] == [
        {"new": [":rack:r1"]},
        {"continuing": [":rack:r1"]},
        {"continuing": [":rack:r1"], "gone": ["n1:gpu3"]},
        {"gone": [":rack:r1"]},
    ]
    assert [(f.key.node, f.first_run, f.gone_run, f.times) for f in runs.findings()] == [
        ("n1", 2, 4, 2),
        ("n2", 2, 5, 3),
        ("n3", 2, 5, 3),
        ("", 2, 5, 3),
    ]
    assert runs.run(2).findings == 1


def test_a_card_that_shared_a_finding_and_has_it_alone_continues(runs):
    runs.save(record(**in_rack("n1", "n2", "n3")))
    alone = visit(finding("n1", "ib-ports", "gpu3"))
    _, changes = runs.save(record(1, n1=alone, n2=visit(), n3=visit()))
    assert parts_of(changes) == {"continuing": ["n1:gpu3"], "gone": [":rack:r1"]}
    _, unseen = runs.save(record(2, **{name: visit(checks=()) for name in ("n1", "n2", "n3")}))
    assert parts_of(unseen) == {"unseen": ["n1:gpu3"]}


def test_a_finding_of_a_rack_that_was_not_looked_for_is_told_once(runs):
    runs.save(record(**in_rack("n1", "n2", "n3")))
    _, changes = runs.save(record(1, **{name: visit(checks=()) for name in ("n1", "n2", "n3")}))
    assert parts_of(changes) == {"unseen": [":rack:r1"]}


def test_a_node_that_joins_a_finding_of_the_fleet_is_new(runs):
    runs.save(record(**shared_by("n1", "n2", "n3")))
    _, same = runs.save(record(1, **shared_by("n1", "n2", "n3")))
    _, joined = runs.save(record(2, **shared_by("n1", "n2", "n3", "n4")))
    _, left = runs.save(record(3, **shared_by("n1", "n2", "n4")))
    assert [nodes_of(each.new) for each in (same, joined, left)] == [[], [("n4",)], []]
    assert [nodes_of(each.continuing) for each in (same, joined, left)] == [
        [("n1", "n2", "n3")],
        [("n1", "n2", "n3")],
        [("n1", "n2", "n4")],
    ]
    assert runs.findings(FLEET)[0].times == 4


def test_a_run_of_fewer_nodes_makes_none_new_in_the_next(runs):
    runs.save(record(**shared_by("n1", "n2", "n3", "n4")))
    runs.save(record(1, **shared_by("n1", "n2", "n3", of=("n1", "n2", "n3"))))
    _, changes = runs.save(record(2, **shared_by("n1", "n2", "n3", "n4")))
    assert (nodes_of(changes.new), nodes_of(changes.continuing)) == ([], [("n1", "n2", "n3", "n4")])


@pytest.mark.parametrize("had", [True, False], ids=["had it", "had it not"])
def test_a_node_whose_check_could_not_look_has_what_it_had_before(runs, had):
    dead = {"n4": Visit("unknown", "connection refused")}
    runs.save(record(**shared_by("n1", "n2", "n3", *(["n4"] if had else []))))
    runs.save(record(1, **shared_by("n1", "n2", "n3", of=("n1", "n2", "n3"), **dead)))
    _, changes = runs.save(record(2, **shared_by("n1", "n2", "n3", "n4")))
    assert nodes_of(changes.new) == ([] if had else [("n4",)])


def test_findings_of_nodes_that_become_one_of_the_fleet_are_new_on_the_others_only(runs):
    own = {name: visit(finding(name, "ib-ports", "mlx5_0")) for name in ("n1", "n2")}
    runs.save(record(**own, n3=visit(), n4=visit()))
    _, changes = runs.save(record(1, **shared_by("n1", "n2", "n3")))
    assert (nodes_of(changes.new), nodes_of(changes.continuing)) == ([("n3",)], [("n1", "n2")])


def test_a_finding_of_the_fleet_that_becomes_one_of_nodes_is_not_new_on_them(runs):
    runs.save(record(**shared_by("n1", "n2", "n3")))
    own = {name: visit(finding(name, "ib-ports", "mlx5_0")) for name in ("n1", "n4")}
    _, changes = runs.save(record(1, **own, n2=visit(), n3=visit()))
    assert (nodes_of(changes.new), nodes_of(changes.continuing)) == (["n4"], ["n1"])


def warned(name):
    """Return a visit whose finding is a warning, as of a node that has just booted."""
    mild = dataclasses.replace(finding(name), status="warn", severity="warn")
    return dataclasses.replace(visit(mild), checks={"gpu-lost": "warn", "ib-ports": "pass"})


def test_a_failure_that_was_a_warning_is_new_once(runs):
    mild = [runs.save(record(hours, n1=warned("n1")))[1] for hours in (0, 1)]
    grave = [runs.save(record(hours, n1=visit(finding())))[1] for hours in (2, 3)]
    _, milder = runs.save(record(4, n1=warned("n1")))
    assert [nodes_of(each.new) for each in (*mild, *grave, milder)] == [["n1"], [], ["n1"], [], []]
    assert len(runs.findings("n1")) == 1


def test_another_code_is_new_on_nodes_that_shared_one(runs):
    runs.save(record(**shared_by("n1", "n2", "n3", code="79")))
    _, changes = runs.save(record(1, **shared_by("n1", "n2", "n3", code="48")))
    assert nodes_of(changes.new) == [("n1", "n2", "n3")]


def test_nodes_that_can_no_longer_be_assessed_are_named_once(runs):
    dead = Visit("unknown", "connection refused", checks={"reach": "fail"})
    told = [runs.save(record(k, n1=v, n2=dead))[1].no_longer_assessed for k, v in enumerate([visit(), dead, dead])]
    assert told == [("n2",), ("n1",), ()]


@pytest.mark.parametrize(
    ("conclusion", "between"),
    [
        ("interrupted", Visit("unknown", "interrupted before it answered")),
        ("interrupted", Visit("unknown", "connection refused", checks={"reach": "fail"})),
        ("interrupted", visit(finding())),
        ("incomplete", Visit("unknown", "no answer within the run's 1 s")),
    ],
)
def test_a_run_that_was_cut_short_is_no_baseline(runs, conclusion, between):
    dead = Visit("unknown", "connection refused", checks={"reach": "fail"})
    runs.save(record(n1=visit()))
    runs.save(replace(record(1, n1=between), conclusion=conclusion))
    _, changes = runs.save(record(2, n1=dead))
    _, again = runs.save(record(3, n1=dead))
    assert (changes.since.number, changes.no_longer_assessed) == (1, ("n1",))
    assert again.no_longer_assessed == ()


def test_a_copy_is_compared_and_the_file_stays_as_it_was(runs):
    runs.save(record(n1=visit(finding())))
    with Runs(runs.path, copied=True) as copy:
        number, changes = copy.save(record(1, n1=visit(finding())))
    assert (number, changes.since.number, parts_of(changes)) == (2, 1, {"continuing": ["n1:gpu3"]})
    assert runs.count() == 1


def test_what_an_interrupted_run_found_is_new_in_the_next(runs):
    runs.save(record(n1=visit()))
    runs.save(replace(record(1, n1=visit(finding())), conclusion="interrupted"))
    _, changes = runs.save(record(2, n1=visit(finding())))
    assert parts_of(changes) == {"new": ["n1:gpu3"]}


def test_since_is_the_latest_run_of_these_nodes(runs):
    runs.save(record(n1=visit()))
    runs.save(record(1, n2=visit()))
    _, changes = runs.save(record(2, n1=visit()))
    assert changes.since.number == 1


def test_a_visit_comes_back_as_it_was(runs):
    seen = visit(
        finding(), boot="b1", figures={"gpu0.temperature_celsius": 41.0, "gpu1.power_draw_watts": 88.25}, shape={"a": 1}
    )
    runs.save(record(n1=seen, n2=Visit("unknown", "connection refused")))
    kept = runs.visits_of(1)
    assert kept["n1"].visit == replace(seen, findings=())
    assert list(runs.findings_by_number(kept["n1"].findings).values()) == runs.findings("n1")
    assert (kept["n2"].visit.why, kept["n2"].at, kept["n2"].verb) == ("connection refused", BEGAN, "validate")
    assert runs.latest_visits(["n1", "n9"], "validate") == {"n1": kept["n1"]}
    assert runs.latest_visits(["n1"], "allreduce") == {}


def test_what_visits_have_in_common_is_stored_once(runs):
    for hours in range(20):
        runs.save(record(hours, **{f"n{k}": visit(figures={"gpu0.power_draw_watts": float(hours)}) for k in range(8)}))
    database = sqlite3.connect(runs.path)
    assert database.execute("SELECT count(*) FROM texts").fetchone()[0] <= 3
    assert database.execute("SELECT count(*) FROM visits").fetchone()[0] == 160
    database.close()


def gpu(serial, slot="gpu0"):
    return SeenPart("gpu", slot, serial, "NVIDIA H100")


def machine(*findings, of="A", cards=8, **fields):
    return visit(*findings, parts=tuple(gpu(f"{of}{k}", f"gpu{k}") for k in range(cards)), **fields)


def test_a_machine_under_another_name_goes_on_with_its_record(runs):
    runs.save(record(n1=machine(finding()), n2=machine(of="B")))
    _, changes = runs.save(record(1, six=machine(finding("six")), n2=machine(of="B")))
    assert (parts_of(changes), changes.renamed) == ({"continuing": ["six:gpu3"]}, {"six": "n1"})
    assert [visit.run for visit in runs.visits("six")] == [1, 2]
    assert (list(runs.watched()), runs.visits("n1"), runs.name_now("n1")) == (["n2", "six"], [], "six")
    assert [(each.key.node, each.times) for each in runs.findings()] == [("six", 2)]
    assert where(runs, "A3") == [("six", "gpu3", 1, 2, True)]
    _, back = runs.save(record(2, n1=machine()))
    assert (parts_of(back), back.renamed, runs.name_now("six")) == ({"gone": ["n1:gpu3"]}, {"n1": "six"}, "n1")


def test_what_a_renamed_machine_shares_and_its_links_go_with_it(runs):
    link = SeenLink("n1", "n2", 3, 31.4)
    runs.save(record(**in_rack("n1", "n2", "n3"), links=(link,)))
    runs.save(record(1, n1=machine(), n2=machine(of="B")))
    runs.save(record(2, zed=Visit("unknown", "no answer", checks={"reach": "fail"})))
    runs.save(record(3, zed=machine(), n1=Visit("unknown", "no answer", checks={"reach": "fail"})))
    assert runs.findings(FLEET)[0].nodes == ("zed", "n2", "n3")
    assert [each.link.b for each in runs.links("zed", "n2")] == ["zed"]
    assert [each.run for each in runs.visits("zed")] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "visits",
    {
        "half of its cards": {"six": machine(cards=4)},
        "both are there": {"six": machine(), "n1": machine()},
        "all cards, and as many others": {"six": visit(parts=(*machine().parts, *machine(of="C", cards=9).parts))},
        "a node that was there before": {"n2": machine()},
        "no parts": {"six": visit()},
    }.items(),
    ids=lambda case: case[0],
)
def test_a_machine_that_only_shares_parts_is_another(runs, visits):
    runs.save(record(n1=machine(), n2=machine(of="B")))
    _, changes = runs.save(record(1, **visits[1]))
    assert (changes.renamed, runs.visits("n1")[0].run) == ({}, 1)


def where(runs, serial):
    return [(part.node, part.slot, part.first_run, part.last_run, part.is_there) for part in runs.parts(serial)]


def test_a_number_in_several_places_is_no_part_and_a_cable_has_two_ends(runs):
    def with_parts(*parts):
        return visit(parts=tuple(SeenPart(kind, slot, serial) for kind, slot, serial in parts))

    same = ("nvme", "nvme0", "S1"), ("cable", "mlx5_0 cable", "C1")
    for hours in range(3):
        runs.save(record(hours, n1=with_parts(*same), n2=with_parts(*same)))
    assert where(runs, "S1") == []
    assert where(runs, "C1") == [(node, "mlx5_0 cable", 1, 3, True) for node in ("n1", "n2")]
    runs.save(record(3, n1=with_parts(("cable", "mlx5_1 cable", "C1")), n2=with_parts(same[1])))
    assert [slot for slot in where(runs, "C1") if slot[2] == 4] == [("n1", "mlx5_1 cable", 4, 4, True)]


def test_a_card_is_followed_from_node_to_node(runs):
    runs.save(record(n1=visit(parts=(gpu("A"),)), n2=visit(parts=(gpu("B"),))))
    runs.save(record(1, n1=visit(parts=(gpu("A"),)), n2=visit(parts=(gpu("B"),))))
    runs.save(record(2, n1=visit(parts=(gpu("B"),)), n2=visit(parts=(gpu("A"),))))
    assert where(runs, "A") == [("n1", "gpu0", 1, 2, False), ("n2", "gpu0", 3, 3, True)]
    assert where(runs, "B") == [("n2", "gpu0", 1, 2, False), ("n1", "gpu0", 3, 3, True)]


def test_a_part_that_is_not_read_stays_where_it_was(runs):
    runs.save(record(n1=visit(parts=(gpu("A"), gpu("B", "gpu1")))))
    runs.save(record(1, n1=visit(parts=(gpu("B", "gpu1"),))))
    assert where(runs, "A") == [("n1", "gpu0", 1, 1, True)]
    assert [part.serial for part in runs.parts_of("n1")] == ["A", "B"]


def test_links_are_found_from_both_ends(runs):
    runs.save(record(verb="allreduce", n1=visit(), links=(SeenLink("n2", "n1", 3, 31.4, 48.1),)))
    for ends in (("n1", "n2"), ("n2", "n1")):
        (kept,) = runs.links(*ends)
        assert (kept.run, kept.at, kept.link) == (1, BEGAN, SeenLink("n1", "n2", 3, 31.4, 48.1))


def test_old_runs_are_deleted_and_findings_and_parts_stay(runs):
    for hours in range(4):
        runs.save(
            record(hours, n1=visit(finding(), parts=(gpu("A"),), figures={"x": float(hours)}, shape={"h": hours}))
        )
    assert runs.prune(BEGAN + dt.timedelta(hours=2), 2**30) == 2
    assert [run.number for run in runs.runs()] == [4, 3]
    assert [each.run for each in runs.visits("n1")] == [3, 4]
    assert runs.findings("n1")[0].times == 4
    database = sqlite3.connect(runs.path)
    assert database.execute("SELECT count(*) FROM texts").fetchone()[0] == 4  # two shapes, and what all have in common
    database.close()


def test_a_store_above_its_size_loses_the_oldest_runs(runs):
    empty = runs._used_bytes()
    for hours in range(30):
        figures = {f"gpu{k}.power_draw_watts": hours * 7.123 + k / 3 for k in range(300)}
        runs.save(record(hours, **{f"n{k}": visit(figures=figures) for k in range(4)}))
    most = empty + (runs._used_bytes() - empty) // 2
    assert 10 <= runs.prune(BEGAN, most) <= 25
    assert runs._used_bytes() <= most
    assert runs.runs()[0].number == 30


def test_life_cycle_and_runs_share_the_file(tmp_path):
    with Store(tmp_path / "state.db") as store, Runs(tmp_path / "state.db") as runs:
        store.begin("gpuops drain n1", who="alice")
        runs.save(record(n1=visit()))
        assert len(runs.runs()) == 1


def test_without_a_file_there_are_no_runs_and_no_file_is_made(tmp_path):
    with Runs(tmp_path / "state.db", create=False) as runs:
        assert (runs.runs(), runs.findings(), runs.run(1)) == ([], [], None)
    assert not (tmp_path / "state.db").exists()


def test_writers_wait_for_each_other_and_lose_nothing(tmp_path):
    def write(name):
        with Runs(tmp_path / "state.db") as own:
            for hours in range(15):
                own.save(record(hours, **{name: visit(finding(name))}))

    threads = [threading.Thread(target=write, args=(f"n{k}",)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Runs(tmp_path / "state.db") as runs:
        assert len(runs.runs(100)) == 45
        assert [each.times for each in runs.findings()] == [15, 15, 15]


def test_programs_that_open_a_new_store_at_once_wait_for_each_other(tmp_path):
    def open_it(path):
        together.wait()
        with contextlib.suppress(LockedError), Runs(path) as own:
            own.runs()
            opened.append(path)

    opened, together = [], threading.Barrier(6)
    for path in (tmp_path / f"{k}.db" for k in range(50)):
        threads = [threading.Thread(target=open_it, args=(path,)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(opened) == 300


def test_another_program_that_ends_leaves_the_log_of_a_process_with_two_stores(runs):
    with Store(runs.path):
        pass  # a second one in this process
    subprocess.run([sys.executable, "-c", OPENER, runs.path], check=True)
    runs.save(record(n1=visit()))
    with Runs(runs.path) as other:
        assert len(other.runs()) == 1


OPENER = """
import pathlib, sys
from gpuops.store import Runs
with Runs(pathlib.Path(sys.argv[1])) as runs:
    runs.runs()
"""


WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from tests.unit.test_store_runs import record, visit, finding
from gpuops.store import Runs
with Runs(__import__("pathlib").Path(sys.argv[1])) as runs:
    while True:
        number, _ = runs.save(record(n1=visit(finding(), figures={f"f{k}": k / 7 for k in range(400)})))
        print(number, flush=True)
"""


def test_a_writer_killed_at_any_instant_leaves_every_finished_run(tmp_path, pytestconfig):
    path, kills = tmp_path / "state.db", 200 if os.environ.get("GPUOPS_CI") == "1" else 8
    for kill in range(kills):
        words = [sys.executable, "-c", WRITER, str(path), str(pytestconfig.rootpath)]
        writer = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        writer.stdout.readline()
        time.sleep(kill * 0.61803 % 0.05)
        writer.send_signal(signal.SIGKILL)
        told = [int(line) for line in writer.communicate()[0].split("\n") if line.strip()]
        with Runs(path) as runs:
            assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)
            (newest, *_) = runs.runs(1)
            assert newest.number >= max(told, default=1)
            assert set(runs.visits_of(newest.number)) == {"n1"}


def test_a_full_disk_is_one_sentence_and_the_runs_before_stay(runs):
    runs.save(record(n1=visit()))
    pages = runs._database.execute("PRAGMA page_count").fetchone()[0]
    runs._database.execute(f"PRAGMA max_page_count = {pages + 1}")
    big = {f"f{k}": k / 7 for k in range(20000)}
    with pytest.raises(OutputError, match="cannot use the store: database or disk is full"):
        runs.save(record(1, n1=visit(figures=big)))
    assert [run.number for run in runs.runs()] == [1]


@pytest.mark.parametrize("kinds", [{}, {"new": ()}])
def test_changes_are_empty_by_default(kinds):
    assert parts_of(Changes(None, **kinds)) == {}


def test_a_text_that_is_missing_is_a_damaged_store(tmp_path):
    with Runs(tmp_path / "state.db") as runs:
        runs.save(record(gpu01=visit(finding("gpu01"))))
        runs._database.execute("PRAGMA foreign_keys = OFF")
        runs._database.execute("DELETE FROM texts")
        with pytest.raises(OutputError, match="the store is damaged"):
            runs.last_results()("gpu01", "gpu-lost", 1)
        with pytest.raises(OutputError, match="the store is damaged"):
            runs.visits("gpu01")

"""Runs compared, and failure records of nodes, parts and models."""

import datetime as dt
import math

import pytest
from tests.unit.test_store_runs import BEGAN, finding, gpu, record, visit

from gpuops.errors import InputError
from gpuops.operations.past import history
from gpuops.results.history import FailureRecord, poisson_interval, series
from gpuops.store import Runs
from gpuops.store.records import FLEET, SeenLink, SeenPart, Visit


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.db"


def keep(path, *records):
    with Runs(path) as runs:
        for each in records:
            runs.save(each)


def told(findings):
    return [f"{each.key.node}:{each.key.part}" for each in findings]


def test_any_two_runs_are_compared_as_they_were(path):
    keep(
        path,
        record(n1=visit(finding("n1")), n2=visit()),
        record(1, n1=visit(), n2=visit(finding("n2"))),
        record(2, n1=visit(finding("n1")), n2=visit()),
    )
    first, last, same = history.diff(path, [1, 2]), history.diff(path, []), history.diff(path, [3, 1])
    assert (told(first.changes.new), told(first.changes.gone)) == (["n2:gpu3"], ["n1:gpu3"])
    assert first.statuses == {"n1": ("fail", "pass"), "n2": ("pass", "fail")}
    assert (last.before.number, last.after.number, told(last.changes.new)) == (2, 3, ["n1:gpu3"])
    assert (told(same.changes.new), told(same.changes.continuing), same.statuses) == ([], ["n1:gpu3"], {})
    assert (same.before.number, same.after.number) == (1, 3)


def test_a_cable_is_told_once_it_was_changed(path):
    def plugged(*pairs):
        return visit(parts=tuple(SeenPart("cable", f"{port} cable", serial) for port, serial in pairs))

    keep(path, record(n1=visit()), record(1, n1=plugged(("mlx5_0", "A"), ("mlx5_1", "B"))))
    keep(path, record(2, n1=plugged(("mlx5_0", "B"), ("mlx5_1", "C"))))
    came = [[(part.slot, part.serial) for part in history.diff(path, pair).moved] for pair in ([1, 2], [2, 3])]
    assert came == [[], [("mlx5_0 cable", "B"), ("mlx5_1 cable", "C")]]


def test_one_run_is_compared_with_the_latest_of_its_verb(path):
    keep(path, record(n1=visit()), record(1, n1=visit(finding())), record(2, verb="allreduce", n1=visit()))
    assert history.diff(path, [1]).after.number == 2
    with pytest.raises(InputError, match="run 2 is the latest of validate"):
        history.diff(path, [2])


def test_a_partial_run_is_compared_by_the_checks_of_both(path):
    whole = visit(finding("n1"))
    keep(path, record(n1=whole), record(1, n1=visit(checks=("ib-ports",))), record(2, n1=whole))
    part, back = history.diff(path, [1, 2]), history.diff(path, [3, 2])
    assert (part.statuses, part.checks_before, part.checks_after) == ({}, ("gpu-lost",), ())
    assert (told(part.changes.gone), told(part.changes.unseen), part.swapped) == ([], ["n1:gpu3"], False)
    assert (back.statuses, back.checks_before, back.checks_after, back.swapped) == ({}, (), ("gpu-lost",), True)


def test_a_status_of_the_checks_of_both_runs_is_compared(path):
    keep(path, record(n1=visit(finding())), record(1, n1=visit(checks=("gpu-lost",))))
    assert history.diff(path, []).statuses == {"n1": ("fail", "pass")}


def test_what_neither_run_looks_for_is_not_unseen(path):
    blamed = finding("n1", "all-reduce-bandwidth", "mlx5_6")
    keep(path, record(verb="allreduce", n1=visit(blamed, checks=())), record(1, n1=visit()), record(2, n1=visit()))
    assert told(history.diff(path, []).changes.unseen) == []
    assert told(history.diff(path, [1, 2]).changes.unseen) == ["n1:mlx5_6"]


def test_a_check_that_could_not_look_leaves_the_finding_unseen(path):
    keep(path, record(n1=visit(finding())), record(1, n1=visit(result="unknown")))
    result = history.diff(path, [])
    assert (told(result.changes.gone), told(result.changes.unseen)) == ([], ["n1:gpu3"])


def test_nodes_of_one_run_only_are_named_and_not_compared(path):
    keep(path, record(n1=visit(finding()), n3=visit()), record(1, n2=visit(), n3=visit(parts=(gpu("A"),))))
    result = history.diff(path, [])
    assert (result.only_before, result.only_after) == (("n1",), ("n2",))
    assert told(result.changes.gone) == []
    assert [part.serial for part in result.moved] == ["A"]


def test_findings_of_the_fleet_are_compared(path):
    leaf = finding(FLEET, "ib-ports", "leaf L3", nodes=("n1",))
    keep(path, record(n1=visit()), record(1, fleet=(leaf,), n1=visit()), record(2, n1=visit()))
    assert told(history.diff(path, [1, 2]).changes.new) == [":leaf L3"]
    assert told(history.diff(path, [2, 3]).changes.gone) == [":leaf L3"]


def test_finding_of_the_fleet_is_not_gone_if_one_of_its_nodes_was_not_judged(path):
    leaf = finding(FLEET, "ib-ports", "leaf L3", nodes=("n1", "n2"))
    dead = Visit("unknown", "connection refused")
    keep(path, record(fleet=(leaf,), n1=visit(), n2=visit()), record(1, n1=visit(), n2=dead))
    assert told(history.diff(path, []).changes.unseen) == [":leaf L3"]


def test_why_leaves_out_a_shared_finding_whose_check_passed_on_the_node_since(path):
    leaf = finding(FLEET, "ib-ports", "leaf L3", nodes=("n1", "n2"))
    shared = visit(result="shared fail")
    keep(path, record(fleet=(leaf,), n1=shared, n2=shared), record(1, n1=visit()))
    assert history.why(path, "n1").standing == ()
    assert told(history.why(path, "n2").standing) == [":leaf L3"]
    keep(path, record(2, fleet=(leaf,), n1=shared, n2=shared))
    assert told(history.why(path, "n1").standing) == [":leaf L3"]


@pytest.mark.parametrize(("numbers", "sentence"), [([], "no validation is kept yet"), ([7], "no run 7 in the store")])
def test_a_run_that_is_not_there_is_one_sentence(path, numbers, sentence):
    with pytest.raises(InputError, match=sentence):
        history.diff(path, numbers)


def failures(path, *hours_and_nodes):
    """Each node of a pair fails in that hour and is well in the next."""
    for hours, node in hours_and_nodes:
        keep(path, record(hours, **{node: visit(finding(node))}), record(hours + 1, **{node: visit()}))


def test_repeat_offenders_are_first_with_the_times_between_their_failures(path):
    keep(path, record(n1=visit(), n2=visit(), n3=visit()))
    failures(path, (24, "n2"), (48, "n1"), (96, "n2"), (216, "n2"))
    fleet = history.of_fleet(path)
    assert [(each.name, each.failures) for each in fleet.nodes] == [("n2", 3), ("n1", 1), ("n3", 0)]
    assert fleet.nodes[0].intervals_days == (3.0, 5.0)
    assert fleet.nodes[0].median_days == 4.0
    assert fleet.nodes[0].days == pytest.approx(217 / 24)
    assert fleet.nodes[1].median_days is None
    assert fleet.runs == 9


def test_failures_follow_the_card_and_not_the_slot(path):
    card, other = gpu("A", "gpu3"), gpu("B", "gpu3")
    keep(
        path,
        record(n1=visit(finding("n1"), parts=(card,)), n2=visit(parts=(other,))),
        record(24, n1=visit(parts=(card,)), n2=visit(parts=(other,))),
        record(48, n1=visit(parts=(other,)), n2=visit(parts=(card,))),
        record(72, n1=visit(parts=(other,)), n2=visit(finding("n2"), parts=(card,))),
    )
    fleet = history.of_fleet(path)
    assert [(each.name, each.failures) for each in fleet.parts] == [("gpu A", 2)]
    assert [(each.name, each.failures, each.days) for each in fleet.models] == [("NVIDIA H100", 2, 4.0)]
    part = history.of_part(path, "A")
    assert [slot.node for slot in part.slots] == ["n1", "n2"]
    assert told(part.findings) == ["n1:gpu3", "n2:gpu3"]
    assert told(history.of_part(path, "B").findings) == []


def test_figures_of_a_card_are_those_of_the_slot_it_was_in(path):
    def warm(**celsius):
        return visit(
            parts=tuple(gpu(serial, slot) for slot, serial, _ in celsius.values()),
            figures={f"{slot}.temperature_celsius": value for slot, _, value in celsius.values()},
        )

    keep(
        path,
        record(n1=warm(a=("gpu0", "A", 40.0)), n2=warm(b=("gpu0", "B", 60.0))),
        record(1, n1=warm(b=("gpu0", "B", 61.0)), n2=warm(a=("gpu0", "A", 41.0))),
    )
    points = history.of_part(path, "A").figures["temperature_celsius"]
    assert points == [(BEGAN, 40.0), (BEGAN + dt.timedelta(hours=1), 41.0)]


def test_what_is_not_known_is_one_sentence(path):
    keep(path, record(gpu07=visit(), a=visit(), b=visit()))
    with pytest.raises(InputError, match=r'no run visited .*did you mean "gpu07"'):
        history.of_node(path, "gpu7")
    with pytest.raises(InputError, match=r"no part with the serial number .X."):
        history.of_part(path, "X")
    with pytest.raises(InputError, match="nothing was measured between a and b"):
        history.of_link(path, "a", "b")
    with pytest.raises(InputError, match='no record of "x1"'):
        history.why(path, "x1")


def test_why_gathers_what_stands_what_is_gone_and_what_the_fleet_shares(path):
    leaf = finding(FLEET, "ib-ports", "leaf L3", nodes=("n1", "n2"))
    keep(
        path,
        record(n1=visit(finding(check="xid"), parts=(gpu("A", "gpu3"),))),
        record(1, n1=visit(finding(), checks=("xid", "gpu-lost")), fleet=(leaf,)),
    )
    why = history.why(path, "n1")
    assert [each.key.check for each in why.standing] == ["gpu-lost", "ib-ports"]
    assert [each.key.check for each in why.gone] == ["xid"]
    assert [(part.serial, count) for part, count in why.part_failures] == [("A", 2)]
    assert (why.latest.run, why.event) == (2, None)


def test_links_have_a_history(path):
    links = [(SeenLink("n1", "n2", 3, rate, 48.0),) for rate in (48.0, 31.0)]
    keep(path, *(record(k, verb="allreduce", n1=visit(), links=each) for k, each in enumerate(links)))
    assert [each.link.gb_per_s for each in history.of_link(path, "n2", "n1").measured] == [48.0, 31.0]


def test_a_series_has_the_figures_of_one_prefix(path):
    keep(path, *(record(k, n1=Visit("pass", figures={"gpu0.x": float(k), "gpu1.x": 9.0})) for k in range(3)))
    visits = history.of_node(path, "n1").visits
    assert [value for _, value in series(visits, "gpu0.")["gpu0.x"]] == [0.0, 1.0, 2.0]
    assert list(series(visits)) == ["gpu0.x", "gpu1.x"]


# exact intervals (Garwood 1936), as tables of the Poisson distribution print them
@pytest.mark.parametrize(
    ("count", "low", "high"), [(0, 0, 3.689), (1, 0.0253, 5.572), (5, 1.623, 11.668), (20, 12.217, 30.888)]
)
def test_interval_of_a_count(count, low, high):
    assert poisson_interval(count)[0] == pytest.approx(low, abs=0.02)
    assert poisson_interval(count)[1] == pytest.approx(high, rel=0.01)


def test_rates_need_a_day(path):
    assert FailureRecord("n1", 1, 0.9).per_1000_days is None
    rate, low, high = FailureRecord("n1", 2, 100.0).per_1000_days
    assert low < rate == 20.0 < high
    assert math.isclose(high, 72.2, rel_tol=0.02)


def test_a_finding_that_a_fix_ended_is_gone_for_the_next_validation_as_for_diff(path):
    keep(path, record(n1=visit(finding("n1"), finding("n1", part="gpu4"))))
    keep(path, record(1, verb="fix", n1=visit(checks=("gpu-lost",))))
    with Runs(path) as runs:
        _, changes = runs.save(record(2, n1=visit(finding("n1", part="gpu4"))))
    compared = history.diff(path, []).changes
    for found in (changes, compared):
        assert (told(found.gone), told(found.continuing), told(found.new)) == (["n1:gpu3"], ["n1:gpu4"], [])


def test_a_finding_that_a_shallow_run_left_open_continues_for_the_next_deep_one(path):
    keep(path, record(n1=visit(finding("n1"))), record(1, n1=visit(checks=())))
    with Runs(path) as runs:
        _, changes = runs.save(record(2, n1=visit(finding("n1"))))
    for found in (changes, history.diff(path, []).changes):
        assert (told(found.continuing), told(found.new)) == (["n1:gpu3"], [])

"""What the store knows of a node does not count where a check was put in shadow, or a finding waived, meanwhile."""

import datetime as dt
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gpuops.document import Where
from gpuops.judging import Waiver, discover
from gpuops.operations.past.recall import _fails, _still_holds, blamed
from gpuops.results.kept import ALL_REDUCE
from gpuops.store import Runs
from gpuops.store.records import FindingKey, KeptVisit, RunRecord, SeenFinding, Visit

NOW = dt.datetime(2026, 11, 24, tzinfo=dt.timezone.utc)
CHECKS = discover()
WAIVER = Waiver("xid", "known", "alice", dt.date(2026, 12, 31), Where("waivers.yml", 1, 3))


@pytest.mark.parametrize(
    ("result", "in_shadow", "waived", "holds", "fails"),
    [
        ("pass", False, (), True, ()),
        ("fail", False, (), True, ("xid",)),
        ("shared fail", False, (), True, ("xid",)),
        ("shadow fail", True, (), True, ()),
        ("shadow fail", False, (), False, ()),  # no longer in shadow
        ("fail", True, (), False, ("xid",)),  # in shadow by now
        ("fail", False, ("xid",), False, ("xid",)),
        ("fail", False, ("ecc-mode",), True, ("xid",)),
        ("waived skipped", False, ("xid",), False, ()),  # it may have expired
        ("waived fail", False, ("xid",), False, ("xid",)),
    ],
)
def test_a_visit_holds_unless_what_counts_has_changed(result, in_shadow, waived, holds, fails):
    visit = KeptVisit(1, NOW, "validate", Visit("pass", checks={"xid": result, "ecc-mode": "pass"}))
    checks = {"xid": replace(CHECKS["xid"], shadow=in_shadow), "ecc-mode": CHECKS["ecc-mode"]}
    assert (_still_holds(visit, checks, waived), _fails(visit)) == (holds, fails)


def measured(folder, part, check, waivers=()):
    """Return a workspace whose last measurement blamed a part of gpu01."""
    finding = SeenFinding(FindingKey("gpu01", ALL_REDUCE, part, "slow"), "fail", "fail", "200 of 400 GB/s")
    visit = Visit("fail", checks={ALL_REDUCE: "fail"}, findings=(finding,))
    with Runs(folder / "state.db") as runs:
        runs.save(RunRecord("allreduce", NOW, 1.0, "failed", "alice", nodes={"gpu01": visit}))
    return SimpleNamespace(
        project=SimpleNamespace(store_path=folder / "state.db"),
        catalogue=SimpleNamespace(checks=lambda: {ALL_REDUCE: check}),
        waivers=lambda: waivers,
    )


@pytest.mark.parametrize(
    ("in_shadow", "waiver", "is_blamed"),
    [
        (False, {}, True),
        (True, {}, False),
        (False, {"check": ALL_REDUCE}, False),
        (False, {"check": ALL_REDUCE, "part": "mlx5_3", "nodes": frozenset({"gpu01"})}, False),
        (False, {"check": ALL_REDUCE, "part": "mlx5_4"}, True),
        (False, {"check": ALL_REDUCE, "nodes": frozenset({"gpu02"})}, True),
    ],
)
def test_what_a_measurement_blamed_does_not_count_in_shadow_or_waived(tmp_path, in_shadow, waiver, is_blamed):
    work = measured(tmp_path, "mlx5_3", replace(CHECKS[ALL_REDUCE], shadow=in_shadow), (replace(WAIVER, **waiver),))
    assert list(blamed(work, ["gpu01", "gpu02"])) == (["gpu01"] if is_blamed else [])


@pytest.mark.parametrize(("part", "says"), [("mlx5_3", "blamed mlx5_3"), ("node", "blamed the node")])
def test_a_blamed_node_is_excluded_with_what_was_blamed(tmp_path, part, says):
    (excluded,) = blamed(measured(tmp_path, part, CHECKS[ALL_REDUCE]), ["gpu01"]).values()
    assert excluded.why == f"the all-reduce of 2026-11-24 00:00 (run 1) {says}"

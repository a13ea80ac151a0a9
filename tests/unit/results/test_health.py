import datetime as dt

import pytest

from gpuops.errors import CancelledError, ConnectError, LostError
from gpuops.judging import Check, Finding, Verdict
from gpuops.profile import NO_PROFILE, Profile
from gpuops.results.health import HostReport, Run, build

STARTED = dt.datetime(2026, 1, 5, 14, 2, 11, tzinfo=dt.timezone.utc)
BAD = (Finding("bad", severity="fail"),)
MEH = (Finding("meh", severity="warn"),)


@pytest.fixture
def run():
    return Run("0.1.0", STARTED, "prod.yml", "quick", 4.1, "gpuops validate -i prod.yml")


def host(*statuses, required=()):
    verdicts = tuple(Verdict(f"c{i}", "n", s, {"fail": BAD, "warn": MEH}.get(s, ())) for i, s in enumerate(statuses))
    return HostReport("n", verdicts, required=frozenset(required))


@pytest.mark.parametrize(
    ("statuses", "required", "status"),
    [
        (["pass", "warn", "fail", "unknown"], ["c3"], "fail"),
        (["pass", "warn", "unknown"], ["c2"], "warn"),
        (["pass", "unknown"], ["c1"], "unknown"),
        (["pass", "unknown"], [], "pass"),
        (["pass", "skipped"], ["c1"], "pass"),
        (["unknown", "skipped"], [], "unknown"),
        (["skipped"], [], "skipped"),
    ],
)
def test_a_host_has_the_gravest_status(statuses, required, status):
    assert host(*statuses, required=required).status == status


def test_only_a_node_nobody_answers_for_is_called_unreachable(run):
    nodes = {
        "a": ConnectError("a", "refused"),
        "b": LostError("b", "the connection broke"),
        "c": CancelledError("stopped"),
    }
    a, b, c = build(run, nodes, []).hosts
    assert (a.status, a.error) == ("unknown", "unreachable: refused")
    assert (b.status, b.error) == ("unknown", "the connection broke")
    assert (c.status, c.error) == ("unknown", "stopped")


def test_a_node_without_any_verdict_does_not_pass(run):
    (only,) = build(run, {"a": NO_PROFILE}, []).hosts
    assert only.status == "unknown"
    assert only.error == "nothing was judged here"


def test_nodes_keep_their_order_and_get_their_own_verdicts(run):
    verdicts = [Verdict("x", "a", "pass"), Verdict("x", "b", "fail", BAD), Verdict("y", "", "warn", MEH)]
    report = build(run, {"b": NO_PROFILE, "a": NO_PROFILE}, verdicts)
    assert [(h.name, h.status, len(h.verdicts)) for h in report.hosts] == [("b", "fail", 1), ("a", "pass", 1)]
    assert [(e.host, e.check, e.status) for e in report.findings] == [("b", "x", "fail"), ("", "y", "warn")]
    assert report.fleet == (verdicts[2],)


def test_the_summary_counts_every_node_once(run):
    nodes = dict.fromkeys("abcde", NO_PROFILE) | {"f": ConnectError("f", "refused")}
    statuses = dict(zip("abcde", ("pass", "pass", "fail", "warn", "skipped"), strict=True))
    report = build(
        run, nodes, [Verdict("x", name, s, {"fail": BAD, "warn": MEH}.get(s, ())) for name, s in statuses.items()]
    )
    assert report.summary == {"pass": 2, "warn": 1, "fail": 1, "unknown": 1, "skipped": 1}


def test_not_run_is_grouped_by_the_level_that_runs_it(run):
    later = [Check(n, (), iter, tags=(t,)) for n, t in [("a", "standard"), ("b", "burnin"), ("c", "standard")]]
    assert build(run, {}, [], later).not_run == {"standard": ("a", "c"), "burnin": ("b",)}


@pytest.mark.parametrize(
    ("verdict", "fail", "warn", "never"),
    [
        (Verdict("x", "a", "pass"), 0, 0, 0),
        (Verdict("x", "a", "warn", MEH), 0, 1, 0),
        (Verdict("x", "a", "fail", BAD), 1, 1, 0),
        (Verdict("x", "", "fail", BAD), 1, 1, 0),
        (Verdict("must", "a", "unknown"), 3, 3, 3),
        (Verdict("may", "a", "unknown"), 0, 0, 0),
        (Verdict("x", "a", "pass", (Finding("note", severity="info"),)), 0, 0, 0),
    ],
)
def test_the_exit_code_follows_fail_on(run, verdict, fail, warn, never):
    profile = Profile("p", required=frozenset({"must"}))
    report = build(run, {"a": profile}, [Verdict("seen", "a", "pass"), verdict])
    assert [report.exit_code(on) for on in ("fail", "warn", "never")] == [fail, warn, never]


def test_an_unreachable_node_gives_3_unless_something_fails(run):
    nodes = {"a": NO_PROFILE, "b": ConnectError("b", "refused")}
    assert build(run, nodes, [Verdict("x", "a", "pass")]).exit_code() == 3
    assert build(run, nodes, [Verdict("x", "a", "fail", BAD)]).exit_code() == 1
    assert build(run, nodes, [Verdict("x", "a", "warn", MEH)]).exit_code("fail") == 3


def test_a_warning_does_not_hide_that_a_required_check_was_blind(run):
    verdicts = [Verdict("x", "a", "warn", MEH), Verdict("must", "a", "unknown")]
    report = build(run, {"a": Profile("p", required=frozenset({"must"}))}, verdicts)
    assert (report.hosts[0].status, report.exit_code()) == ("warn", 3)


def test_a_drained_node_costs_nothing(run):
    report = build(run, {"a": "drained"}, [])
    assert (report.hosts[0].status, report.exit_code("warn")) == ("skipped", 0)


@pytest.mark.parametrize(
    ("found", "expected", "said"),
    [
        (200, 400.0, "measured 200 W, expected 400 W"),
        (None, 8, "expected 8 W"),
        (0, None, "measured 0 W"),
        (None, None, ""),
        (("a", "b"), (), "measured a, b W, expected none W"),
        (True, False, "measured yes W, expected no W"),
    ],
)
def test_a_comparison_says_what_there_is(run, found, expected, said):
    finding = Finding("m", expected=expected, found=found, unit="W")
    (entry,) = build(run, {"a": NO_PROFILE}, [Verdict("x", "a", "fail", (finding,))]).findings
    assert entry.comparison == said

import datetime as dt
import json
from dataclasses import replace

import pytest

from gpuops.errors import CancelledError, ConnectError, HostKeyError, IncompatibleError, LockedError, LostError
from gpuops.facts import Facts
from gpuops.judging import Finding, Verdict
from gpuops.profile import NO_PROFILE, Profile
from gpuops.reasons import EXIT_CODES, Excluded, excluded_by
from gpuops.results.health import HostReport, Run, build, format_exclusion

STARTED = dt.datetime(2026, 1, 5, 14, 2, 11, tzinfo=dt.timezone.utc)
BAD = (Finding("bad", severity="fail"),)
MEH = (Finding("meh", severity="warn"),)
MUST = Profile("p", required=frozenset({"must"}))
REFUSED = excluded_by("b", ConnectError("b", "refused", "refused"))


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
def test_host_has_the_most_severe_status(statuses, required, status):
    assert host(*statuses, required=required).status == status


@pytest.mark.parametrize(
    ("error", "kind", "unreachable", "why"),
    [
        (ConnectError("a", "refused", "refused"), "unreachable", "refused", "unreachable: refused"),
        (IncompatibleError("a", "no common key"), "unreachable", "incompatible", "unreachable: no common key"),
        (LostError("a", "the connection broke"), "unreachable", "lost", "the connection broke"),
        (HostKeyError("a", "host key changed"), "unreachable", "host_key", "host key changed"),
        (LockedError("a is locked"), "locked", None, "a is locked"),
        (CancelledError("stopped"), "interrupted", None, "stopped"),
    ],
)
def test_only_a_node_on_which_no_server_answered_is_called_unreachable(run, error, kind, unreachable, why):
    report = build(run, {"a": excluded_by("a", error)}, [])
    assert report.hosts[0].status == "unknown"
    excluded = report.excluded["a"]
    assert (excluded.kind, excluded.unreachable, format_exclusion(excluded)) == (kind, unreachable, why)


def test_a_node_without_any_verdict_does_not_pass(run):
    report = build(run, {"a": NO_PROFILE}, [])
    assert report.hosts[0].status == "unknown"
    assert report.excluded == {"a": Excluded("a", "unknown", "no check judged this host")}


def test_nodes_keep_their_order_and_get_their_own_verdicts(run):
    verdicts = [Verdict("x", "a", "pass"), Verdict("x", "b", "fail", BAD), Verdict("y", "", "warn", MEH)]
    report = build(run, {"b": NO_PROFILE, "a": NO_PROFILE}, verdicts)
    assert [(h.name, h.status, len(h.verdicts)) for h in report.hosts] == [("b", "fail", 1), ("a", "pass", 1)]
    assert report.findings == BAD + MEH
    assert [finding.status for finding in report.findings] == ["fail", "warn"]
    assert report.cluster_verdicts == (verdicts[2],)
    assert report.excluded == {}


def test_the_summary_counts_every_node_once(run):
    statuses = dict(zip("abcde", ("pass", "pass", "fail", "warn", "skipped"), strict=True))
    verdicts = [Verdict("x", name, s, {"fail": BAD, "warn": MEH}.get(s, ())) for name, s in statuses.items()]
    report = build(run, dict.fromkeys("abcde", NO_PROFILE) | {"f": REFUSED}, verdicts)
    assert report.summary == {"pass": 2, "warn": 1, "fail": 1, "unknown": 1, "skipped": 1}


def test_healthy_hosts_fail_nothing_and_have_no_required_unknown(run):
    verdicts = [
        Verdict("x", "good", "pass"),
        Verdict("y", "good", "unknown"),
        Verdict("x", "warned", "warn", MEH),
        Verdict("x", "failed", "fail", BAD),
        Verdict("x", "blind", "warn", MEH),
        Verdict("must", "blind", "unknown"),
    ]
    hosts = dict.fromkeys(["good", "warned", "failed", "blind", "silent"], MUST) | {"b": REFUSED}
    assert build(run, hosts, verdicts).healthy == ("good", "warned")


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
def test_the_conclusion_follows_fail_on(run, verdict, fail, warn, never):
    report = build(run, {"a": MUST}, [Verdict("seen", "a", "pass"), verdict])
    assert [EXIT_CODES[report.conclusion(on)] for on in ("fail", "warn", "never")] == [fail, warn, never]


def test_a_run_with_an_unreachable_node_is_incomplete_unless_something_fails(run):
    hosts = {"a": NO_PROFILE, "b": REFUSED}
    assert build(run, hosts, [Verdict("x", "a", "pass")]).conclusion() == "incomplete"
    assert build(run, hosts, [Verdict("x", "a", "fail", BAD)]).conclusion() == "failed"
    assert build(run, hosts, [Verdict("x", "a", "warn", MEH)]).conclusion("fail") == "incomplete"


def test_warning_does_not_hide_a_required_unknown(run):
    verdicts = [Verdict("x", "a", "warn", MEH), Verdict("must", "a", "unknown")]
    report = build(run, {"a": MUST}, verdicts)
    assert (report.hosts[0].status, report.conclusion()) == ("warn", "incomplete")


def test_nothing_is_concluded_from_an_interrupted_run(run):
    report = replace(build(run, {"a": NO_PROFILE}, [Verdict("x", "a", "fail", BAD)]), interrupted=True)
    assert report.conclusion() == "interrupted"


def test_node_with_nothing_to_judge_does_not_fail_a_run(run):
    report = build(run, {"a": NO_PROFILE}, [Verdict("x", "a", "skipped", why="no GPU")])
    assert (report.hosts[0].status, report.conclusion("warn")) == ("skipped", "ok")


def test_the_document_leaves_out_the_facts_and_is_json_text(run):
    facts = {"a": Facts("a", STARTED, {"secret": object()})}
    report = replace(build(run, {"a": NO_PROFILE}, [Verdict("x", "a", "pass")]), facts=facts)
    assert report.facts is facts
    assert report.seconds == 4.1
    assert json.loads(report.to_json()) == report.to_document()
    assert "secret" not in report.to_json()
    assert report.to_json().splitlines()[1] == f' "schema": "{report.SCHEMA}",'


def test_node_that_took_no_load_is_not_assessed(run):
    busy = Verdict("pace", "a", "unknown", why="skipped: busy (pid 4711)", not_measured=True)
    report = build(run, {"a": NO_PROFILE}, [Verdict("x", "a", "pass"), busy])
    assert (report.hosts[0].status, report.conclusion(), report.healthy) == ("unknown", "incomplete", ())
    (document,) = report.to_document()["hosts"]["a"]["unknown"]
    assert (document["why"], document["required"]) == ("skipped: busy (pid 4711)", True)
    report = build(run, {"a": NO_PROFILE}, [Verdict("x", "a", "warn", MEH), busy])
    assert (report.hosts[0].status, report.conclusion()) == ("warn", "incomplete")

"""Shadow and waivers: what they set aside counts for nothing, and nothing else changes."""

import datetime as dt

import pytest

from gpuops.document import Where
from gpuops.errors import ContentError, DocumentError
from gpuops.facts import Facts
from gpuops.judging import Finding, check, expired, judge_group, judge_node, put_in_shadow, unused, waive
from gpuops.judging.waivers import Waiver, load_waivers
from gpuops.probing import Probe, Unknown
from gpuops.profile import Profile
from gpuops.shell import Command

TODAY = dt.date(2026, 11, 24)
NOW = dt.datetime(2026, 11, 24, tzinfo=dt.timezone.utc)
one = Probe("one", Command(("one",)), lambda answer: answer.out)
PROFILE = Profile("test")
FACTS = Facts("n1", NOW, {"one": 1})
WHERE = Where("waivers.yml", 3, 3)


def checking(name, *said, **words):
    """A check that says ``said`` whatever it is shown."""

    def judge_it(*_):
        yield from said

    judge_it.__name__ = name
    return check(**{"needs": one, **words})(judge_it)


def waiver(check="bad", **fields):
    return Waiver(check, "known", "alice", dt.date(2026, 12, 31), WHERE, **fields)


def judged(*checks, waivers=()):
    return {v.check: v for v in waive(judge_node(checks, FACTS, PROFILE), waivers)}


def statuses(*checks, waivers=()):
    return {name: verdict.status for name, verdict in judged(*checks, waivers=waivers).items()}


GPU3 = Finding("broken", part="gpu3")
BAD = checking("bad", GPU3)


def test_a_check_in_shadow_is_judged_and_skipped():
    verdict = judged(checking("bad", GPU3, shadow=True))["bad"]
    assert (verdict.status, verdict.findings) == ("skipped", ())
    assert (verdict.shadow.status, [f.message for f in verdict.shadow.findings]) == ("fail", ["broken"])


def test_a_check_in_shadow_explains_and_blinds_nothing_and_no_chain_leads_through_it():
    dark, effect = checking("dark", Unknown("it could not look")), checking("effect", GPU3)
    for shadow, *told in ((False, "skipped", "skipped"), (True, "fail", "unknown")):
        cause = checking("bad", GPU3, shadow=shadow, explains=("effect",), blinds=("dark",))
        found = statuses(cause, effect, dark)
        assert [found["effect"], found["dark"]] == told
    first = checking("first", GPU3, explains=("middle",))
    middle = checking("middle", shadow=True, explains=("effect",))
    assert statuses(first, middle, effect)["effect"] == "fail"


def test_what_a_check_in_shadow_would_say_is_told_with_its_cause_as_if_it_counted():
    cause, effect = checking("bad", GPU3, explains=("effect",)), checking("effect", GPU3, shadow=True)
    assert judged(cause, effect)["effect"].shadow.findings == ()
    assert judged(cause, effect)["bad"].findings[0].effects == ()


def test_a_check_of_a_group_in_shadow_is_skipped_on_every_node_and_on_none():
    group = checking("bad", Finding("x", host="n1"), Finding("all of them"), scope="group", shadow=True)
    verdicts = judge_group(group, {"n1": FACTS, "n2": FACTS}, PROFILE)
    assert [(v.node, v.status, v.shadow.status) for v in verdicts] == [
        ("n1", "skipped", "fail"), ("n2", "skipped", "pass"), ("", "skipped", "fail"),
    ]  # fmt: skip


def test_a_name_in_gpuops_yml_is_put_in_shadow_and_an_unknown_one_is_refused():
    where = Where("gpuops.yml", 2, 10)
    assert put_in_shadow({"bad": BAD}, [("bad", where)])["bad"].shadow
    assert not put_in_shadow({"bad": BAD}, [])["bad"].shadow
    with pytest.raises(DocumentError, match=r'gpuops.yml:2:10: no check named "bda"; did you mean "bad"'):
        put_in_shadow({"bad": BAD}, [("bda", where)])


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, "skipped"),
        ({"check": "other"}, "fail"),
        ({"part": "gpu3"}, "skipped"),
        ({"part": "gpu4"}, "fail"),
        ({"nodes": frozenset({"n1", "n2"})}, "skipped"),
        ({"nodes": frozenset({"n2"})}, "fail"),
        ({"nodes": frozenset()}, "fail"),
        ({"code": "79"}, "fail"),
    ],
)
def test_a_waiver_covers_the_findings_that_it_names(fields, status):
    assert statuses(BAD, waivers=[waiver(**fields)]) == {"bad": status}


def test_a_waived_finding_is_listed_apart_and_the_others_of_its_check_count():
    both = checking("bad", GPU3, Finding("hot", part="gpu4", severity="warn"))
    verdict = judged(both, waivers=[waiver(part="gpu3")])["bad"]
    assert (verdict.status, [f.part for f in verdict.findings]) == ("warn", ["gpu4"])
    ((finding, by),) = verdict.waived
    assert (finding.part, by.note) == ("gpu3", "waived until 2026-12-31 by alice: known")


@pytest.mark.parametrize("severity", ["isolate", "rma"])
def test_a_part_that_must_not_be_used_has_to_be_named(severity):
    fatal = checking("bad", Finding("dead", part="gpu3", severity=severity))
    assert statuses(fatal, waivers=[waiver()]) == {"bad": "fail"}
    assert statuses(fatal, waivers=[waiver(part="gpu3")]) == {"bad": "skipped"}


def test_information_needs_no_waiver_and_what_a_check_could_not_see_stays_unknown():
    info = checking("bad", Finding("x", severity="info"))
    assert judged(info, waivers=[waiver()])["bad"].waived == ()
    assert statuses(checking("bad", GPU3, Unknown("the rest")), waivers=[waiver()]) == {"bad": "unknown"}


def test_what_a_waived_finding_blinds_is_unknown_and_what_it_explains_is_waived_with_it():
    cause = checking("bad", GPU3, explains=("effect",), blinds=("dark",))
    dark, effect = checking("dark", Unknown("it could not look")), checking("effect", GPU3)
    assert statuses(cause, effect, dark, waivers=[waiver()]) == {
        "bad": "skipped", "effect": "skipped", "dark": "unknown",
    }  # fmt: skip
    still = checking("bad", GPU3, Finding("more", part="gpu4"), blinds=("dark",))
    assert statuses(still, dark, waivers=[waiver(part="gpu3")])["dark"] == "skipped"


def test_a_finding_on_no_node_is_waived_for_all_nodes_only_or_for_all_that_it_names():
    def status(finding, by):
        verdicts = judge_group(checking("bad", finding, scope="group"), {"n1": FACTS}, PROFILE)
        return {v.node: v.status for v in waive(verdicts, [by])}[""]

    assert status(Finding("split"), waiver()) == "skipped"
    assert status(Finding("split"), waiver(nodes=frozenset({"n1"}))) == "fail"
    some = Finding("split", hosts=("n1", "n2"))
    assert status(some, waiver(nodes=frozenset({"n1"}))) == "fail"
    assert status(some, waiver(nodes=frozenset({"n1", "n2", "n3"}))) == "skipped"


def test_a_waiver_that_covers_nothing_is_named():
    idle, used = waiver("other"), waiver()
    assert unused(judged(BAD, waivers=[idle, used]).values(), [idle, used]) == [idle]


def test_an_expired_waiver_is_a_warning_about_the_fleet_that_names_its_line():
    (verdict,) = expired([waiver()])
    (finding,) = verdict.findings
    assert (verdict.check, verdict.node, verdict.status, finding.severity) == ("waiver-expired", "", "warn", "warn")
    assert finding.message.startswith("waivers.yml:3:3: the waiver for bad expired on 2026-12-31")


RIGHT = "- {check: bad, reason: known, author: alice, expires: 2026-12-31}\n"


def load(folder, text):
    (folder / "waivers.yml").write_text(text)
    return load_waivers(folder, ["bad", "worse"], TODAY)


def test_waivers_are_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_waivers(tmp_path, ["bad"], TODAY) == ()
    assert load(tmp_path, "") == ()
    (least,) = load(tmp_path, RIGHT)
    assert least == Waiver("bad", "known", "alice", dt.date(2026, 12, 31), Where("waivers.yml", 1, 3))
    (most,) = load(tmp_path, RIGHT.replace("{", "{hosts: 'gpu[01-03]', part: gpu3, code: '79', "))
    assert (most.hosts, most.part, most.code) == ("gpu[01-03]", "gpu3", "79")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("check: bad", "check: bda", 'waivers.yml:1:11: no check named "bda"; did you mean "bad"'),
        ("check: bad", "check: '*'", 'waivers.yml:1:11: "\\*" is not the name of a check; a waiver is for one check'),
        ("check: bad", "check: 'b*'", "a waiver is for one check"),
        ("check: bad, ", "", 'waivers.yml:1:3: a waiver needs the key "check"'),
        ("reason: known, ", "", 'a waiver needs the key "reason"'),
        ("reason: known", "reason: ' '", 'waivers.yml:1:24: "reason" is empty; write why'),
        ("author: alice, ", "", 'a waiver needs the key "author"'),
        (", expires: 2026-12-31", "", 'a waiver needs the key "expires"'),
        ("reason", "raeson", 'waivers.yml:1:16: unknown key "raeson" in a waiver; did you mean "reason"'),
        ("2026-12-31", "soon", 'waivers.yml:1:55: a date such as 2027-02-22 is expected, found "soon"'),
        ("2026-12-31", "2026-02-30", "2026-02-30 is not a day of the calendar"),
        ("2026-12-31", "2027-11-26", "2027-11-26 is more than a year ahead; the latest day is 2027-11-25"),
        ("check: bad", "check: bad, part: '*'", '"\\*" is not a part'),
        ("- {", "x: {", "expected a list of waivers"),
    ],
)
def test_a_wrong_waiver_is_refused_with_its_place(tmp_path, monkeypatch, old, new, told):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DocumentError, match=told):
        load(tmp_path, RIGHT.replace(old, new))


def test_waivers_that_anybody_may_write_are_refused(tmp_path):
    (tmp_path / "waivers.yml").write_text(RIGHT)
    (tmp_path / "waivers.yml").chmod(0o666)
    with pytest.raises(ContentError, match=r"waivers.yml: not read, because it is writable by others; fix it with"):
        load_waivers(tmp_path, ["bad"], TODAY)


def test_a_waiver_holds_through_its_last_day():
    assert waiver().is_active(dt.date(2026, 12, 31))
    assert not waiver().is_active(dt.date(2027, 1, 1))

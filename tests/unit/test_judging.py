import dataclasses
import datetime as dt
import itertools
import os
import pathlib
import stat

import pytest

from gpuops.errors import ContentError
from gpuops.facts import Facts
from gpuops.judging import (
    Check,
    Finding,
    NotApplicable,
    Verdict,
    check,
    choose,
    discover,
    fold_effects,
    judge,
    judge_group,
    judge_node,
    probes_of,
    worst,
)
from gpuops.probing import PartName, Probe, Unknown
from gpuops.profile import Expected, Profile
from gpuops.shell import Command

ROOT = pathlib.Path(__file__).parents[2]
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
one = Probe("one", Command(("one",)), lambda answer: answer.out)
two = Probe("two", Command(("two",)), lambda answer: answer.out)
load = Probe("load", Command(("load",)), lambda answer: answer.out, cost="heavy")
PROFILE = Profile("test", {"gpu.count": Expected(8, "here", "measured-here")})
GUESSED = Profile("test", {"gpu.count": Expected(8, "nowhere", "guess")})


def facts(node="n1", **values):
    return Facts(node, NOW, values)


def checking(*said, name="it", **words):
    """A check that says ``said`` whatever it is shown."""

    def judge_it(*_):
        yield from said

    judge_it.__name__ = name
    return check(**{"needs": one, **words})(judge_it)


def verdict_of(*said, profile=PROFILE, **words):
    return judge(checking(*said, **words), facts(one=1, two=2), profile)


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ((), "pass"),
        ((Finding("x"),), "fail"),
        ((Finding("x", severity="info"),), "pass"),
        ((Finding("x", severity="warn"),), "warn"),
        ((Finding("x", severity="info"), Finding("x", severity="isolate")), "fail"),
        ((Unknown("dark"),), "unknown"),
        ((NotApplicable("no such part"),), "skipped"),
        ((NotApplicable("no such part"), Unknown("dark")), "unknown"),
        ((Unknown("dark"), Finding("x", severity="warn")), "warn"),
        ((Unknown("dark"), Finding("x", severity="info")), "unknown"),
    ],
)
def test_what_a_check_says_gives_its_status(said, status):
    assert verdict_of(*said).status == status


def test_a_finding_takes_the_severity_and_remedy_of_its_check():
    (finding,) = verdict_of(Finding("x"), severity="reboot", fix="reboot it").findings
    assert (finding.severity, finding.fix) == ("reboot", "reboot it")
    (finding,) = verdict_of(Finding("x", severity="warn", fix="wait"), severity="reboot", fix="reboot it").findings
    assert (finding.severity, finding.fix) == ("warn", "wait")


def test_a_finding_bears_its_check_scope_and_host():
    (finding,) = verdict_of(Finding("x"), name="gpu_count").findings
    assert (finding.check, finding.scope, finding.host) == ("gpu-count", "node", "n1")


def test_a_finding_takes_all_but_its_message_by_keyword():
    with pytest.raises(TypeError, match="positional"):
        Finding("x", 8)


def test_a_finding_is_on_the_node_unless_it_names_a_part():
    assert (Finding("x").part, Finding("x").part_label) == ("node", "")
    named = Finding("x", part=PartName("gpu5", "GPU 5 (0000:c3:00.0)"))
    assert (named.part, named.part_label) == ("gpu5", "GPU 5 (0000:c3:00.0)")


@pytest.mark.parametrize(
    ("words", "part", "label"),
    [
        ({"subject": "gpu5", "label": "GPU 5"}, "gpu5", "GPU 5"),
        ({"subject": "driver"}, "driver", ""),
        ({"label": "this node"}, "node", "this node"),
    ],
)
def test_the_former_names_of_a_part_are_taken_with_a_warning_at_the_check(words, part, label):
    with pytest.warns(DeprecationWarning, match="part=") as warnings:
        finding = Finding("x", **words)
    assert warnings[0].filename == __file__
    assert (finding.part, finding.part_label) == (part, label)
    assert dataclasses.replace(finding, host="n1").part_label == label  # and no second warning


def test_a_guess_warns_and_never_fails():
    told = {"expects": ("gpu.count",), "severity": "isolate"}
    assert verdict_of(Finding("x"), **told).status == "fail"
    assert verdict_of(Finding("x"), profile=GUESSED, **told).status == "warn"
    assert verdict_of(Finding("x", severity="info"), profile=GUESSED, **told).status == "pass"


def test_a_profile_that_says_nothing_skips_the_check():
    verdict = verdict_of(Finding("x"), expects=("nvlink.links",))
    assert verdict.status == "skipped"
    assert "nvlink.links" in verdict.why


@pytest.mark.parametrize("scope", ["node", "group"])
def test_a_load_that_the_node_did_not_take_leaves_the_check_unknown(scope):
    def verdict(probe, value):
        own, a_check = facts(**{probe.name: value}), checking(Finding("x"), needs=probe, scope=scope)
        return judge(a_check, own, PROFILE) if scope == "node" else judge_group(a_check, {"n1": own}, PROFILE)[0]

    busy = verdict(load, Unknown("busy", skipped_on_purpose=True))
    assert (busy.status, busy.why, busy.not_measured) == ("unknown", "busy", True)
    assert not verdict(one, Unknown("dark")).not_measured


def test_an_unknown_need_stops_the_check_before_it_judges():
    verdict = judge(checking(Finding("x")), facts(one=Unknown("no tool", needs_root=True)), PROFILE)
    assert (verdict.status, verdict.why, verdict.needs_root) == ("unknown", "no tool", True)


def test_a_need_that_was_never_asked_is_unknown():
    assert judge(checking(), facts(), PROFILE).status == "unknown"


def test_a_tolerated_unknown_reaches_the_check():
    shown = []

    @check(needs=(one, two), tolerates=(two,))
    def it(first, second, profile):
        shown.append((first, second, profile))
        yield from ()

    assert judge(it, facts(one=1, two=Unknown("dark")), PROFILE).status == "pass"
    assert shown == [(1, Unknown("dark"), PROFILE)]


def test_nothing_passes_when_every_need_is_unknown():
    dark = facts(one=Unknown("dark"), two=Unknown("darker"))
    blind = checking(needs=(one, two), tolerates=(one, two))
    assert judge(blind, dark, PROFILE).status == "unknown"
    sure = checking(Finding("the tool hangs"), needs=(one, two), tolerates=(one, two))
    assert judge(sure, dark, PROFILE).status == "fail"


def test_a_check_that_raises_is_unknown_with_its_reason():
    @check(needs=one)
    def broken(_value, _profile):
        yield Finding("x")
        raise ZeroDivisionError("oops")

    verdict = judge(broken, facts(one=1), PROFILE)
    assert verdict.status == "unknown"
    assert "ZeroDivisionError: oops" in verdict.why


def test_worst_is_the_gravest():
    assert worst([]) == "pass"
    assert worst([Finding("x", severity="warn"), Finding("x", severity="info")]) == "warn"
    assert worst([Finding("x", severity="warn"), Finding("x", severity="reset")]) == "fail"


# --- one fault is one finding


def bearing(name, **words):
    return Check(name, (), lambda: iter(()), **words)


def told(name, *findings, status=None, why=""):
    """The verdict of a check, with its findings as judging completes them."""
    own = tuple(dataclasses.replace(finding, check=name, host="n1") for finding in findings)
    return Verdict(name, "n1", status or worst(own), own, why)


def every_order(verdicts, checks):
    """The verdicts by check, folded in every order, which must all agree."""
    answers = [
        {v.check: v for v in fold_effects(list(order), {c.name: c for c in checks})}
        for order in itertools.permutations(verdicts)
    ]
    assert all(answer == answers[0] for answer in answers)
    return answers[0]


def on(part, message="broken", severity="reset", **words):
    return Finding(message, part=part, severity=severity, **words)


def test_an_effect_is_told_inside_the_finding_on_its_own_part():
    checks = [bearing("link", explains=("matrix",)), bearing("matrix")]
    answer = every_order(
        [told("link", on("gpu1"), on("gpu2")), told("matrix", on("gpu2", "NV17"), on("gpu3", "SYS"))], checks
    )
    assert [(f.part, f.effects) for f in answer["link"].findings] == [("gpu1", ()), ("gpu2", ("matrix: NV17",))]
    assert [f.part for f in answer["matrix"].findings] == ["gpu3"]
    assert answer["matrix"].status == "fail"


def test_a_check_whose_findings_were_all_effects_is_skipped():
    checks = [bearing("link", explains=("matrix",)), bearing("matrix")]
    answer = every_order([told("link", on("gpu2")), told("matrix", on("gpu2"))], checks)
    assert (answer["matrix"].status, answer["matrix"].findings) == ("skipped", ())
    assert answer["matrix"].why == "an effect of link"


def test_a_remark_that_is_an_effect_leaves_a_pass_a_pass():
    checks = [bearing("link", explains=("xid",)), bearing("xid")]
    answer = every_order([told("link", on("gpu2")), told("xid", on("gpu2", severity="info"))], checks)
    assert (answer["xid"].status, answer["xid"].findings) == ("pass", ())


def test_what_such_a_check_could_not_see_stays_unknown():
    checks = [bearing("link", explains=("matrix",)), bearing("matrix")]
    answer = every_order([told("link", on("gpu2")), told("matrix", on("gpu2"), why="GPU 5 is dark")], checks)
    assert (answer["matrix"].status, answer["matrix"].why) == ("unknown", "GPU 5 is dark")


def test_a_chain_ends_in_its_first_cause():
    checks = [bearing("failed", explains=("pending",)), bearing("pending", explains=("ecc",)), bearing("ecc")]
    answer = every_order([told(c.name, on("gpu2", c.name)) for c in checks], checks)
    assert answer["failed"].findings[0].effects == ("ecc: ecc", "pending: pending")
    assert {answer[name].status for name in ("pending", "ecc")} == {"skipped"}


def test_a_chain_holds_where_its_middle_found_nothing():
    checks = [bearing("failed", explains=("pending",)), bearing("pending", explains=("ecc",)), bearing("ecc")]
    answer = every_order([told("failed", on("gpu2")), told("pending"), told("ecc", on("gpu2"))], checks)
    assert answer["ecc"].status == "skipped"
    assert answer["pending"].status == "pass"


@pytest.mark.parametrize("length", [2, 3])
def test_checks_that_explain_each_other_keep_one_finding(length):
    names = ["a", "b", "c"][:length]
    checks = [bearing(n, explains=(names[(i + 1) % length],)) for i, n in enumerate(names)]
    answer = every_order([told(n, on("gpu2", n)) for n in names], checks)
    assert [v.check for v in answer.values() if v.findings] == ["a"]
    assert len(answer["a"].findings[0].effects) == length - 1


def test_of_two_that_explain_each_other_the_graver_is_the_cause():
    checks = [bearing("heat", explains=("slow",)), bearing("slow", explains=("heat",))]
    answer = every_order([told("heat", on("gpu2", severity="warn")), told("slow", on("gpu2", severity="fail"))], checks)
    assert answer["heat"].status == "skipped"
    assert answer["slow"].status == "fail"


def test_nothing_is_explained_by_what_is_milder():
    checks = [bearing("heat", explains=("slow",)), bearing("slow")]
    answer = every_order([told("heat", on("gpu2", severity="warn")), told("slow", on("gpu2", severity="fail"))], checks)
    assert answer["heat"].status == "warn"
    assert answer["slow"].status == "fail"


def test_a_code_is_explained_and_its_neighbours_are_not():
    checks = [bearing("lost", explains=("xid:79",)), bearing("xid")]
    answer = every_order(
        [told("lost", on("gpu2")), told("xid", on("gpu2", code="79"), on("gpu2", "GSP", code="119"))], checks
    )
    assert [f.code for f in answer["xid"].findings] == ["119"]
    assert answer["lost"].findings[0].effects == ("xid: broken",)


def test_a_tag_explains_and_blinds_every_check_that_bears_it():
    checks = [
        bearing("lost", explains=("smi",), blinds=("smi",)),
        bearing("power", tags=("smi",)),
        bearing("fan", tags=("smi",)),
        bearing("disk"),
    ]
    answer = every_order(
        [
            told("lost", on("gpu2")),
            told("power", status="unknown", why="GPU is lost"),
            told("fan", on("gpu2")),
            told("disk", status="unknown", why="df is missing"),
        ],
        checks,
    )
    assert (answer["power"].status, answer["power"].why) == ("skipped", "an effect of lost")
    assert answer["fan"].status == "skipped"
    assert answer["disk"].status == "unknown"


def test_what_only_explains_does_not_blind_and_a_warning_blinds_nobody():
    checks = [bearing("remap", explains=("ecc",)), bearing("note", blinds=("ecc",)), bearing("ecc")]
    answer = every_order(
        [
            told("remap", on("gpu2")),
            told("note", on("gpu2", severity="warn")),
            told("ecc", status="unknown", why="GPU 5 does not tell"),
        ],
        checks,
    )
    assert answer["ecc"].status == "unknown"


def test_no_finding_is_ever_lost_or_told_twice():
    checks = [
        bearing("a", explains=("b", "c")),
        bearing("b", explains=("c", "d")),
        bearing("c", explains=("a",)),
        bearing("d"),
    ]
    verdicts = [told(c.name, on("gpu1", f"{c.name}1"), on("gpu2", f"{c.name}2")) for c in checks]
    answer = every_order(verdicts, checks)
    kept = [f.message for v in answer.values() for f in v.findings]
    effects = [e.split(": ")[1] for v in answer.values() for f in v.findings for e in f.effects]
    assert sorted(kept + effects) == sorted(f.message for v in verdicts for f in v.findings)


def test_a_node_is_judged_and_folded_at_once():
    cause = checking(on("gpu1"), name="cause", explains=("effect",))
    effect = checking(on("gpu1"), name="effect")
    group = checking(name="group", scope="group")
    verdicts = judge_node([effect, cause, group], facts(one=1), PROFILE)
    assert [(v.check, v.status) for v in verdicts] == [("effect", "skipped"), ("cause", "fail")]


# --- groups


def test_a_group_is_judged_node_by_node():
    @check(needs=one, scope="group")
    def same(values, _profile):
        assert values == {"a": 1, "b": 2}
        yield Finding("differs", host="b")

    group = {"a": facts("a", one=1), "b": facts("b", one=2), "c": facts("c", one=Unknown("dark"))}
    verdicts = judge_group(same, group, PROFILE)
    assert {v.node: v.status for v in verdicts} == {"a": "pass", "b": "fail", "c": "unknown"}
    assert [(f.host, f.check, f.scope) for v in verdicts for f in v.findings] == [("b", "same", "group")]


def test_a_finding_without_host_blames_no_part():
    split = checking(Finding("split", severity="warn"), scope="group")
    verdicts = judge_group(split, {"a": facts("a", one=1), "b": facts("b", one=2)}, PROFILE)
    assert {v.node: v.status for v in verdicts} == {"a": "pass", "b": "pass", "": "warn"}
    assert [(f.host, f.check) for v in verdicts for f in v.findings] == [("", "it")]


# --- choosing


def test_levels_hold_the_ones_below():
    known = {"a": bearing("a"), "b": bearing("b", tags=("standard",)), "c": bearing("c", tags=("burnin", "gpu"))}
    assert [c.name for c in choose(known, "quick")] == ["a"]
    assert [c.name for c in choose(known, "standard")] == ["a", "b"]
    assert [c.name for c in choose(known, "burnin", skip=["gpu"])] == ["a", "b"]
    assert [c.name for c in choose(known, "quick", only=["burnin", "a"])] == ["a", "c"]
    assert [c.name for c in choose(known, "quick", only=["c"])] == ["c"]


def test_a_tag_chooses_within_the_level():
    known = {"a": bearing("a", tags=("gpu",)), "b": bearing("b", tags=("burnin", "gpu", "heat"))}
    assert [c.name for c in choose(known, "quick", only=["gpu"])] == ["a"]
    assert [c.name for c in choose(known, "burnin", only=["gpu"])] == ["a", "b"]
    with pytest.raises(ContentError, match='no check of level quick has the tag "heat"; add --level burnin'):
        choose(known, "quick", only=["heat"])


def test_an_unknown_check_or_tag_is_refused_with_the_nearest():
    with pytest.raises(ContentError, match='did you mean "gpu-count"'):
        choose({"gpu-count": bearing("gpu-count")}, "quick", only=["gpu-cuont"])


def test_a_probe_that_several_checks_need_is_asked_once():
    assert probes_of([checking(needs=(one, two)), checking(needs=two)]) == [one, two]


# --- one new file

CHECK = '''
"""The node has a name."""
from gpuops import Finding, check
from gpuops.probes.host.system import system

@check(needs=system, severity="warn")
def {name}(machine, profile):
    """Its own host name."""
    if not machine.hostname:
        yield Finding("{message}")
'''


@pytest.fixture
def project(tmp_path):
    (tmp_path / "checks").mkdir()
    return tmp_path


def test_a_check_is_one_new_file(project):
    (project / "checks" / "host_name.py").write_text(CHECK.format(name="host_name", message="nameless"))
    known = discover(project)
    assert set(known) == {*discover(), "host-name"}
    assert known["host-name"].doc == "The node has a name. Its own host name."
    assert known["host-name"].path == project / "checks" / "host_name.py"


def test_a_projects_check_hides_the_built_in_one(project):
    (project / "checks" / "gpu_count.py").write_text(CHECK.format(name="gpu_count", message="mine"))
    assert discover(project)["gpu-count"].path == project / "checks" / "gpu_count.py"
    assert discover()["gpu-count"].path == ROOT / "checks" / "gpu_count.py"


def test_a_check_that_everyone_may_write_is_refused(project):
    path = project / "checks" / "host_name.py"
    path.write_text(CHECK.format(name="host_name", message="nameless"))
    path.chmod(0o646)
    with pytest.raises(ContentError, match=r"host_name\.py: refusing to run a file that is writable by others"):
        discover(project)
    path.chmod(0o644)
    path.parent.chmod(stat.S_IRWXU | stat.S_IRWXO)
    with pytest.raises(ContentError, match="refusing to run a file that is writable by others"):
        discover(project)


@pytest.mark.root("give a file away")
def test_a_check_of_another_user_is_refused(project):
    path = project / "checks" / "host_name.py"
    path.write_text(CHECK.format(name="host_name", message="nameless"))
    os.chown(path, 12345, -1)
    with pytest.raises(ContentError, match="refusing to run a file that is owned by another user"):
        discover(project)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("x = 1\n", "expected exactly one @check function, named host_name"),
        (CHECK.format(name="other", message=""), "expected exactly one @check function, named host_name"),
        ("def broken(:\n", r"host_name\.py:1: cannot be loaded: SyntaxError"),
        ("import no_such_module\n", "cannot be loaded: ModuleNotFoundError"),
    ],
)
def test_a_broken_check_is_one_sentence(project, text, complaint):
    (project / "checks" / "host_name.py").write_text(text)
    with pytest.raises(ContentError, match=complaint):
        discover(project)


def test_a_check_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        checking().name = "other"


@pytest.mark.parametrize(
    ("seconds", "status", "said"),
    [(90, "warn", "slow; the node booted 90 s ago"), (301, "fail", "slow"), (None, "fail", "slow")],
    ids=["just booted", "up for long", "uptime unknown"],
)
def test_what_starts_after_a_boot_only_warns_at_first(seconds, status, said):
    slow = checking(Finding("slow", fix="reset it"), settles_seconds=300)
    verdict = judge(slow, facts(one=1, **({} if seconds is None else {"uptime": float(seconds)})), PROFILE)
    (only,) = verdict.findings
    assert (verdict.status, only.message) == (status, said)
    assert only.fix == ("look again 210 s from now" if status == "warn" else "reset it")


def test_a_fault_is_the_nodes_unless_the_check_says_otherwise():
    verdict = verdict_of(Finding("busy"), Finding("broken", fault_of="node"), fault_of="user")
    assert [finding.fault_of for finding in verdict.findings] == ["user", "node"]

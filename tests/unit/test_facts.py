import datetime as dt
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops import facts
from gpuops.errors import InputError
from gpuops.facts import Facts
from gpuops.probing import Probe, Unknown
from gpuops.shell import Command, Completed, Files, Resources

UPTIME = Probe("uptime", Command(("uptime",)), parse=lambda answer: answer.out.strip())
WORDS = Probe("words", Command(("uptime",), timeout_seconds=99), parse=lambda answer: answer.out.split())
LIMITS = Probe("limits", Files(("/proc/self/limits",)), parse=lambda answer: len(answer.out))
BROKEN = Probe("broken", Command(("uptime",)), parse=lambda answer: 1 / 0)
PROBES = (UPTIME, WORDS, LIMITS, BROKEN)
NOON = dt.datetime(2026, 11, 20, 12, 0, 0, tzinfo=dt.timezone.utc)
ANSWERS = (
    Completed("n1", UPTIME.question, 0, "up 3 days\n", "warning: é\ud800?".encode("utf-8", "replace").decode(), 0.25),
    Completed("n1", LIMITS.question, 0, "/proc/self/limits\0Max\0", seconds=0.001, truncated=True, state="D"),
)


def test_many_probes_read_one_answer_and_it_is_asked_once():
    asked = []

    def ask(questions):
        asked.extend(questions)
        return [Completed("n1", question, 0, "up 3 days\n") for question in questions]

    found = facts.gather("n1", ask, PROBES)
    assert asked == [UPTIME.question, LIMITS.question]
    assert (found[UPTIME], found[WORDS]) == ("up 3 days", ["up", "3", "days"])
    assert found.taken_at.tzinfo is dt.timezone.utc
    assert found.answers == ()


def test_a_probe_that_cannot_read_leaves_the_others_alone():
    found = facts.read("n1", NOON, ANSWERS, PROBES)
    assert isinstance(found[BROKEN], Unknown)
    assert found[UPTIME] == "up 3 days"


def test_what_was_not_asked_is_unknown():
    found = facts.read("n1", NOON, ANSWERS[:1], PROBES)
    assert found[LIMITS] == Unknown("limits was not collected")


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "n1.json"
    found = facts.read("n1", NOON, ANSWERS, PROBES, keep_answers=True)
    path.write_text(facts.to_document(found), "utf-8")
    return path


def test_what_is_saved_is_loaded_with_every_field(saved):
    loaded = facts.load(saved, PROBES)
    again = facts.read("n1", NOON, ANSWERS, PROBES, keep_answers=True)
    assert loaded == Facts("n1", NOON, again.values)
    kept = []
    spy = Probe("spy", UPTIME.question, parse=kept.append)
    facts.load(saved, (spy,))
    assert kept == [ANSWERS[0]]


def test_answers_of_saved_facts_can_be_saved_again(saved):
    again = facts.load(saved, PROBES, keep_answers=True)
    assert facts.to_document(again) == saved.read_text("utf-8")


def test_saved_facts_are_read_by_tomorrows_parser_of_another_deadline(saved):
    slower = Probe("uptime", Command(("uptime",), timeout_seconds=20, lane="nvidia"), parse=lambda a: a.out.upper())
    assert facts.load(saved, (slower,))[slower] == "UP 3 DAYS\n"


def test_another_time_zone_is_the_same_moment(saved):
    document = json.loads(saved.read_text())
    document["taken_at"] = "2026-11-20T13:00:00+01:00"
    saved.write_text(json.dumps(document))
    assert facts.load(saved, PROBES).taken_at == NOON


def test_another_schema_is_named(saved):
    saved.write_text(saved.read_text().replace("gpuops.facts/1", "gpuops.facts/7"))
    with pytest.raises(InputError, match=r"schema gpuops.facts/7 is not gpuops.facts/1; save the facts again"):
        facts.load(saved, PROBES)


def test_a_missing_file_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match="cannot be read: no such file"):
        facts.load(tmp_path / "none.json", PROBES)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("node",), 5),
        (("answers",), {}),
        (("answers",), 7),
        (("answers", 0), []),
        (("answers", 0, "exit"), "0"),
        (("answers", 0, "out"), None),
        (("answers", 0, "err"), 5),
        (("answers", 0, "timed_out"), "no"),
        (("answers", 0, "surprise"), 1),
        (("answers", 0, "kind"), "python"),
        (("answers", 0, "question"), "uptime"),
        (("answers", 0, "question", "words"), [["uptime"]]),
        (("answers", 0, "question", "words"), "uptime"),
        (("answers", 0, "question", "words"), ["a\0b"]),
        (("answers", 1, "question", "globs"), [1]),
        (("taken_at",), "yesterday"),
        (("taken_at",), None),
    ],
)
def test_a_damaged_document_is_refused(saved, place, value):
    document = json.loads(saved.read_text())
    *path, last = place
    at = document
    for step in path:
        at = at[step]
    at[last] = value
    if value == {}:
        del document["answers"]
    saved.write_text(json.dumps(document))
    with pytest.raises(InputError):
        facts.load(saved, PROBES)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "7", '"x"', "\x00", "[" * 100_000, '{"schema": "gpuops.facts/1"}']
)
def test_what_is_no_document_is_refused(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(InputError):
        facts.load(path, PROBES)


@given(st.integers(0, 2000), st.binary(max_size=3))
def test_a_cut_or_overwritten_document_never_raises_anything_else(saved, at, noise):
    whole = saved.read_bytes()
    damaged = saved.with_name("damaged.json")
    damaged.write_bytes(whole[:at] + noise + whole[at + 2 * len(noise) :])
    try:
        loaded = facts.load(damaged, PROBES)
    except InputError as error:
        said, values = str(error), set()
    else:
        said, values = str(damaged), set(loaded.values)
    assert str(damaged) in said
    assert values <= {probe.name for probe in PROBES}


def test_a_folder_is_loaded_by_name(saved):
    saved.with_name("n0.json").write_text(saved.read_text().replace('"n1"', '"n0"'))
    assert [found.node for found in facts.load_folder(saved.parent, PROBES)] == ["n0", "n1"]


def test_an_empty_folder_tells_how_to_fill_it(tmp_path):
    with pytest.raises(InputError, match=r"gpuops facts --save"):
        facts.load_folder(tmp_path, PROBES)


@pytest.fixture
def many(saved):
    """So many nodes that several processes read them."""
    document = json.loads(saved.read_text("utf-8"))
    for number in range(200):
        (saved.parent / f"m{number:03}.json").write_text(json.dumps({**document, "node": f"m{number:03}"}), "utf-8")
    return saved.parent


def test_many_files_are_loaded_in_order_and_say_the_same_as_one(many):
    loaded = facts.load_folder(many, PROBES)
    assert [found.node for found in loaded] == [*(f"m{number:03}" for number in range(200)), "n1"]
    assert {repr(found.values) for found in loaded} == {repr(loaded[-1].values)}
    assert loaded[-1].values == facts.load(many / "n1.json", PROBES).values


def test_of_many_files_only_what_is_made_of_them_comes_back(many):
    made = facts.of_folder(many, PROBES, lambda found: found.only([UPTIME, LIMITS]))
    assert [found.node for found in made] == [*(f"m{number:03}" for number in range(200)), "n1"]
    assert {tuple(found.values) for found in made} == {("uptime", "limits")}
    assert made[0][WORDS] == Unknown("words was not collected")


def test_saved_facts_are_read_when_the_first_is_looked_at(many):
    found = facts.SavedFacts(many, PROBES, ["n1", "m007"])
    (many / "m007.json").write_text((many / "m007.json").read_text().replace("up 3 days", "up 4 days"))
    assert (list(found), len(found), "m008" in found) == (["n1", "m007"], 2, False)
    assert found["m007"][WORDS] == ["up", "4", "days"]
    (many / "n1.json").unlink()
    assert found["n1"][WORDS] == ["up", "3", "days"]


def test_a_file_among_many_that_is_no_facts_is_named(many):
    (many / "m100.json").write_text("{}", "utf-8")
    with pytest.raises(InputError, match=r"m100\.json: not facts"):
        facts.load_folder(many, PROBES)


def test_values_that_no_process_can_hand_over_are_loaded_all_the_same(many):
    opaque = Probe("opaque", UPTIME.question, parse=lambda answer: lambda: answer.out)
    assert facts.load_folder(many, [opaque])[0][opaque]() == "up 3 days\n"


def test_answers_of_a_bmc_are_saved_and_restored(tmp_path):
    power = Probe(
        "power", Resources(("/redfish/v1/Chassis/*/Power",), 120.0), parse=lambda answer: json.loads(answer.out)
    )
    answers = (Completed("n1", power.question, 0, '{"/redfish/v1/Chassis/1/Power": {"é": []}}', seconds=1.5),)
    (tmp_path / "n1.json").write_text(facts.to_document(facts.read("n1", NOON, answers, [power], keep_answers=True)))
    loaded = facts.load(tmp_path / "n1.json", [power])
    assert loaded[power] == {"/redfish/v1/Chassis/1/Power": {"é": []}}
    document = json.loads((tmp_path / "n1.json").read_text())
    assert document["answers"][0]["kind"] == "resources"
    document["answers"][0]["question"]["paths"] = "/redfish/v1"
    (tmp_path / "n1.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match="paths is '/redfish/v1'"):
        facts.load(tmp_path / "n1.json", [power])

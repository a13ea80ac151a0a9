import copy
import json
import math
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import get_args

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops import report
from gpuops.errors import InputError, UnreachableKind
from gpuops.judging import Finding, Verdict
from gpuops.probing import PartName
from gpuops.reasons import Excluded, ExclusionKind
from gpuops.results.health import build
from gpuops.secret import MASK, Secret

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "schemas" / "report-1.json").read_text())
ANY_TEXT = st.text(st.characters(blacklist_categories=()), max_size=30)


def validator(schema):
    return jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())


def closed(schema):
    """Return the schema, closed to keys that it does not describe."""
    schema = copy.deepcopy(schema)
    inner = list(schema.get("$defs", {}).values()) + list(schema.get("properties", {}).values())
    for part in [schema, *inner, *[p["items"] for p in inner if "properties" in p.get("items", {})]]:
        if "properties" in part:
            part["additionalProperties"] = False
    for name, part in schema.get("$defs", {}).items():
        schema["$defs"][name] = closed(part)
    return schema


def faulty(run, h100, finding, why=""):
    found = replace(finding, check="x", host="a")
    verdicts = [Verdict("x", "a", "fail", (found,)), Verdict("y", "a", "unknown", why=why)]
    return build(run, {"a": h100}, verdicts)


def test_every_format_is_one_file_of_the_directory():
    files = Path(report.__file__).with_name("formats").glob("[a-z]*.py")
    assert report.format_names() == sorted(path.stem for path in files) == ["json", "junit", "table"]


@pytest.mark.parametrize(("file", "name"), [("a.json", "json"), ("b.XML", "junit"), ("c.txt", "table")])
def test_suffix_selects_a_format(file, name):
    assert report.format_for(Path(file)) == name


def test_unknown_formats_are_refused(rack):
    with pytest.raises(InputError, match=r'unknown report format "jsn"; did you mean "json"\?'):
        report.render("jsn", rack)
    with pytest.raises(InputError, match=r'r.pdf: unknown suffix ".pdf"; use .json, .xml, .txt or --format'):
        report.format_for(Path("r.pdf"))


def test_document_matches_the_closed_schema(rack):
    document = json.loads(report.render("json", rack))
    validator(SCHEMA).validate(document)
    validator(closed(SCHEMA)).validate(document)
    assert document["findings"]
    assert document["run"]["not_run"] == {"standard": ["all-reduce"]}


def test_closed_schema_rejects_unknown_keys(rack):
    document = json.loads(report.render("json", rack))
    for part in (document["run"], document["findings"][0], document["hosts"]["gpu001"]["unknown"][0]):
        part["new"] = 1
        assert not validator(closed(SCHEMA)).is_valid(document)
        assert validator(SCHEMA).is_valid(document)
        del part["new"]


def test_document_has_the_content_of_the_report(rack):
    document = json.loads(report.render("json", rack))
    assert document["schema"] == "gpuops.report/1"
    assert document["summary"] == {
        "nodes": 16, "pass": 10, "warn": 0, "fail": 3, "unknown": 2, "skipped": 1, "findings": 4
    }  # fmt: skip
    assert list(document["hosts"]) == [host.name for host in rack.hosts]
    assert document["run"]["started_at"] == "2026-01-05T14:02:11Z"
    slow = {
        "check": "ib-rate", "code": "", "scope": "node", "host": "gpu009",
        "hosts": [], "fault_of": "node", "part": "mlx5_3", "subject": "mlx5_3",
        "label": "mlx5_3 (rail 3)", "status": "fail", "severity": "reset", "message": "the port is slow",
        "measured": 200, "expected": 400.0, "unit": "Gbit/s", "fix": "reseat the optic at gpu009 port 3", "effects": [],
    }  # fmt: skip
    assert list(document["findings"][1].items()) == list(slow.items())
    assert document["hosts"]["gpu009"]["findings"] == [slow]
    assert document["findings"][3]["host"] is None
    assert document["hosts"]["gpu014"]["unknown"] == [
        {"check": "gpu-count", "why": "hung", "required": True, "needs_root": False}
    ]
    assert document["hosts"]["gpu005"]["skipped"] == [{"check": "ecc", "why": "this card has no ECC"}]
    late = document["hosts"]["gpu015"]
    assert late["error"] == "unreachable: connection timed out after 10 s (10.2.0.15:22)"
    assert late["unreachable"] == "timeout"
    assert late["excluded"] == {
        "kind": "unreachable", "why": "connection timed out after 10 s (10.2.0.15:22)", "unreachable": "timeout"
    }  # fmt: skip
    assert {document["hosts"]["gpu001"][key] for key in ("error", "unreachable", "excluded")} == {None}
    assert {host["skipped_why"] for host in document["hosts"].values()} == {None}


def test_schema_has_every_kind_of_exclusion():
    definitions = SCHEMA["$defs"]
    assert definitions["excluded"]["properties"]["kind"]["enum"] == [*get_args(ExclusionKind)]
    assert definitions["host"]["properties"]["unreachable"]["enum"] == [*get_args(UnreachableKind), None]


def test_exclusion_has_all_fields_and_no_secret(run):
    Secret("health-hunter2")
    sick = Excluded("a", "unhealthy", "fails ecc", checks=("ecc",), do="say health-hunter2")
    document = json.loads(report.render("json", build(run, {"a": sick}, [])))
    validator(closed(SCHEMA)).validate(document)
    assert document["hosts"]["a"]["error"] == "fails ecc"
    assert document["hosts"]["a"]["excluded"] == {
        "kind": "unhealthy", "why": "fails ecc", "checks": ["ecc"], "do": f"say {MASK}"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (math.nan, "nan"),
        (math.inf, "inf"),
        (("a", 1), ["a", 1]),
        ({"b", "a"}, ["a", "b"]),
        ({1: (None, True)}, {"1": [None, True]}),
        (Path("/x"), "/x"),
    ],
)
def test_any_value_becomes_json(run, h100, value, told):
    document = json.loads(report.render("json", faulty(run, h100, Finding("m", found=value))))
    assert document["findings"][0]["measured"] == told


def test_no_format_contains_a_secret(run, h100):
    Secret('formats-"hunter2"')
    said = 'x formats-"hunter2" y'
    finding = Finding(said, expected={said: 1}, found=(said,), fix=said, part=PartName(said, said), effects=(said,))
    for name in report.format_names():
        text = report.render(name, faulty(run, h100, finding, why=said))
        assert "hunter2" not in text
        assert MASK in text


@given(ANY_TEXT)
def test_every_format_accepts_any_text(run, h100, text):
    finding = Finding(text, expected=text, found=text, unit=text, fix=text, part=PartName(text, text), effects=(text,))
    made = faulty(run, h100, finding, why=text)
    assert json.loads(report.render("json", made))["findings"][0]["message"] == text
    junit = ET.fromstring(report.render("junit", made).encode())
    assert len(junit.findall("testsuite/testcase")) == 2
    assert report.render("table", made).encode()


def suites(made):
    root = ET.fromstring(report.render("junit", made).encode())
    return root, {suite.get("name"): suite for suite in root}


def outcomes(suite):
    return {case.get("name"): [child.tag for child in case] for case in suite}


def test_junit_has_one_suite_per_node_and_one_case_per_check(rack):
    _, by_name = suites(rack)
    assert list(by_name) == [*(host.name for host in rack.hosts), "all nodes"]
    assert outcomes(by_name["gpu001"]) == {"gpu-count": [], "clock": ["skipped"], "ecc": ["skipped"]}
    assert outcomes(by_name["gpu004"]) == {"gpu-count": [], "gpu-lost": ["failure"]}
    assert outcomes(by_name["gpu014"]) == {"gpu-count": ["error"]}
    assert outcomes(by_name["gpu015"]) == {"reach": ["error"]}
    assert outcomes(by_name["gpu016"]) == {"ecc": ["skipped"]}
    assert outcomes(by_name["all nodes"]) == {"driver-agrees": ["system-out"]}


def test_junit_counts_and_times_add_up(rack):
    root, by_name = suites(rack)
    assert {k: root.get(k) for k in ("failures", "errors", "skipped", "time")} == {
        "failures": "3", "errors": "2", "skipped": "7", "time": "4.100"
    }  # fmt: skip
    for word in ("tests", "failures", "errors", "skipped"):
        assert int(root.get(word)) == sum(int(suite.get(word)) for suite in by_name.values())
    assert {case.get("time") for case in root.iter("testcase")} == {"0"}
    assert by_name["gpu001"].get("timestamp") == "2026-01-05T14:02:11"


def test_junit_has_the_fault_and_its_fix(rack):
    failure = suites(rack)[1]["gpu009"].find("testcase/failure")
    assert failure.get("message") == "the port is slow"
    assert failure.text.splitlines() == [
        "reset mlx5_3 (rail 3): the port is slow",
        "measured 200 Gbit/s, expected 400 Gbit/s",
        "do: reseat the optic at gpu009 port 3",
    ]

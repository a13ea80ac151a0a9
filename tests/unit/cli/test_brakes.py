"""Shadow and waivers through the commands: what they set aside closes no node and changes no exit code."""

import datetime as dt
import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner
from tests.unit.cli.test_place import FAILED_REMAP, INVENTORY, save, smi_text, topo_text

from gpuops.cli import program
from gpuops.cluster import Cluster
from gpuops.requests import ValidateRequest
from gpuops.results.recorded import record
from gpuops.store.records import RunRecord

SCHEMA = json.loads((Path(__file__).parents[3] / "docs/schemas/report-1.json").read_text())
PLAIN = "inventory: prod.yml\n"
SHADOW = f"{PLAIN}shadow: [row-remap-failed]\n"
GPUS = [f"gpu{index}" for index in range(4)]
FAILS = ("failed", "fail", ["gpu02"])
"""The conclusion, the status of gpu02, and the nodes that get no rank."""
PASSES = ("ok", "skipped", [])


def day(days):
    return (dt.datetime.now(dt.timezone.utc) + dt.timedelta(days=days)).date()


def waivers(parts=tuple(GPUS), days=30, hosts="gpu02"):
    """One waiver for each part; one for any part if it is empty."""
    words = "check: row-remap-failed, reason: RMA 17, author: alice"
    return "".join(
        f"- {{{words}, hosts: '{hosts}', expires: {day(days)}{f', part: {part}' if part else ''}}}\n" for part in parts
    )


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Saved facts of three nodes; every GPU of gpu02 is to be returned."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prod.yml").write_text(INVENTORY)
    (tmp_path / "gpuops.yml").write_text(PLAIN)
    (tmp_path / "facts").mkdir()
    for name in ("gpu01", "gpu02", "gpu03"):
        save(tmp_path / "facts", name, smi_text(FAILED_REMAP if name == "gpu02" else ""), topo_text())
    return tmp_path


def run(*words):
    return CliRunner().invoke(program, [words[0], "--from", "facts", *words[1:]], standalone_mode=False)


def validated():
    done = run("validate", "--only", "row-remap-failed", "--json")
    document = json.loads(done.stdout)
    jsonschema.validate(document, SCHEMA)
    return done.return_value, document


@pytest.mark.parametrize(
    ("settings", "waived", "outcome", "apart"),
    [
        (PLAIN, None, FAILS, (0, 0)),
        (SHADOW, None, PASSES, (4, 0)),
        (PLAIN, {}, PASSES, (0, 4)),
        (PLAIN, {"hosts": "gpu0[1-2]:!gpu01"}, PASSES, (0, 4)),
        (PLAIN, {"hosts": "gpu01"}, FAILS, (0, 0)),
        (PLAIN, {"hosts": "gpu77"}, FAILS, (0, 0)),
        (PLAIN, {"parts": [""]}, FAILS, (0, 0)),  # it is to be returned, so its part must be named
        (PLAIN, {"parts": GPUS[1:]}, FAILS, (0, 3)),
        (PLAIN, {"days": 0}, PASSES, (0, 4)),
        (PLAIN, {"days": -1}, FAILS, (0, 0)),
        (SHADOW, {}, PASSES, (4, 0)),
    ],
)
def test_shadow_and_waivers_decide_what_counts(project, settings, waived, outcome, apart):
    (project / "gpuops.yml").write_text(settings)
    if waived is not None:  # written now: a day of the collection may be over
        (project / "waivers.yml").write_text(waivers(**waived))
    code, document = validated()
    placed = json.loads(run("place", "--layout", "dp=8", "--json").stdout)
    excluded = [node for node, each in placed["excluded"].items() if each["kind"] == "unhealthy"]
    assert (["ok", "failed"][code], document["hosts"]["gpu02"]["status"], excluded) == outcome
    assert (len(document["shadow"]), len(document["waived"])) == apart
    counted = [finding for finding in document["findings"] if finding["check"] == "row-remap-failed"]
    assert len(counted) + max(apart) == 4


def test_what_does_not_count_is_listed_apart_with_the_reason(project):
    (project / "waivers.yml").write_text(waivers())
    told = " ".join(run("validate", "--only", "row-remap-failed").stdout.split())
    assert f"waived until {day(30)} by alice: RMA 17: row-remap-failed: " in told
    assert " on gpu02 gpu[0-3]" in told
    (project / "gpuops.yml").write_text(SHADOW)
    told = " ".join(run("validate", "--only", "row-remap-failed").stdout.split())
    assert "in shadow, counts for nothing: row-remap-failed: " in told


@pytest.mark.parametrize(
    ("waived", "why"),
    [
        ({"hosts": "gpu77"}, '"gpu77" selects no host'),
        ({"parts": [""]}, "rma findings need their part; add to it: part: gpu0"),
        ({"hosts": "gpu01", "parts": ["gpu1"]}, "no such finding in this run"),
        ({"parts": ["gpu9"]}, "no such finding in this run"),
        ({"parts": ["gpu1"]}, ""),
    ],
)
def test_a_waiver_that_covers_nothing_says_why(project, waived, why):
    (project / "waivers.yml").write_text(waivers(**{"parts": ["gpu1"], **waived}))
    told = " ".join(run("validate", "--only", "row-remap-failed").stdout.split())
    said = "waivers.yml:1:3: the waiver for row-remap-failed covers nothing: "
    assert f"{said}{why}" in told if why else said not in told
    assert "covers nothing: no such" not in run("validate", "--only", "ecc-uncorrectable").stdout


def test_an_expired_waiver_is_a_warning_and_a_waiver_of_nothing_is_in_the_document(project):
    (project / "waivers.yml").write_text(waivers(parts=["gpu1"], days=-1) + waivers(parts=["gpu9"]))
    _, document = validated()
    (expired,) = [finding for finding in document["findings"] if finding["check"] == "waiver-expired"]
    assert (expired["severity"], expired["scope"], expired["host"]) == ("warn", "fleet", None)
    assert expired["message"].startswith("waivers.yml:1:3: the waiver for row-remap-failed expired on")
    assert [(each["part"], each["where"]) for each in document["unused_waivers"]] == [("gpu9", "waivers.yml:2:3")]


@pytest.mark.parametrize("verb", [("validate",), ("place", "--layout", "dp=8"), ("allreduce",)])
@pytest.mark.parametrize("file", ["gpuops.yml", "waivers.yml"])
def test_a_check_that_does_not_exist_is_an_error_before_any_node_is_asked(project, monkeypatch, verb, file):
    texts = {"gpuops.yml": SHADOW, "waivers.yml": waivers()}
    (project / file).write_text(texts[file].replace("row-remap-failed", "row-remap-faild"))
    monkeypatch.setattr("gpuops.nodes.Nodes.read", lambda *_, **__: pytest.fail("a node was asked"))
    monkeypatch.setattr("gpuops.nodes.Nodes.gather", lambda *_, **__: pytest.fail("a node was asked"))
    done = CliRunner().invoke(program, [*verb])
    assert 'no check named "row-remap-faild"; did you mean "row-remap-failed"' in str(done.exception)
    assert str(done.exception).startswith(f"{file}:")


@pytest.mark.parametrize(
    ("settings", "waived", "result", "kept"),
    [(PLAIN, "", "fail", 4), (SHADOW, "", "shadow fail", 0), (PLAIN, waivers(), "waived skipped", 0)],
)
def test_the_store_keeps_what_did_not_count_as_such(project, settings, waived, result, kept):
    (project / "gpuops.yml").write_text(settings)
    (project / "waivers.yml").write_text(waived)
    with Cluster.saved(project / "facts", inventory=project / "prod.yml", project=project) as cluster:
        report = cluster.ask(ValidateRequest(only=["row-remap-failed"]))
        hosts = {host.name: host for host in cluster.hosts}
    visit = record(report, RunRecord("", report.run.started_at, 0.0, "ok", "alice"), hosts).nodes["gpu02"]
    assert (visit.checks, len(visit.findings)) == ({"reach": "pass", "row-remap-failed": result}, kept)

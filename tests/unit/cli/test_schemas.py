"""Every JSON document that the command line prints names its schema, and docs/schemas/ describes it."""

import json
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from gpuops.cli import program
from gpuops.playbook.record import Record
from gpuops.playbook.result import StepResult
from gpuops.reasons import Excluded, Objection
from gpuops.results.answers import Answers
from gpuops.results.life import GateResult, NodeOnboarding, Onboarding
from gpuops.results.repair import Repair
from gpuops.results.trusted import Trusted

ROOT = Path(__file__).parents[3]
SCHEMAS = {path.stem: json.loads(path.read_text()) for path in (ROOT / "docs" / "schemas").glob("*.json")}
INVENTORY = "all: {hosts: {n1: {ansible_connection: local}}}\n"
PLAYBOOK = "- hosts: all\n  tasks: [{command: {words: ['true'], always: true}}]\n"
RUNS = """\
id,source,layers,hidden,heads,ffn,seq_len,gpu,precision,n_gpus,tp,pp,dp,mbs,gbs,step_time_s
a,here,48,6144,64,24576,2048,A100-SXM-80GB,bf16,8,8,1,1,4,4,0.6
b,here,48,6144,64,24576,2048,A100-SXM-80GB,bf16,8,8,1,1,2,4,0.7
"""
COMMANDS = {
    "answers": [("ping",), ("run", "all"), ("ping", "-i", "nowhere.invalid,")],
    "values": [("facts", "--probe", "system")],
    "report": [("validate", "--only", "clock")],
    "record": [("provision", "p.yml", "-C")],
    "plan": [("provision", "p.yml", word) for word in ("--list-tasks", "--list-hosts", "--syntax-check")],
    "transition": [
        ("drain", "n1", "--reason", "x"),
        ("admit", "n1"),
        ("state", "set", "n1", "repair", "--reason", "x"),
    ],
    "states": [("state", "list")],
    "history": [("state", "show", "n1")],
    "checks": [("checks", "list")],
    "targets": [("targets", "list")],
    "profiles": [("profiles", "list")],
    "profile": [("profiles", "show", "hgx-h200")],
    "profile-diff": [("profiles", "diff", "hgx-h100", "rtx-4090")],
    "playbooks": [("playbooks", "list")],
    "runs": [("runs", "list")],
    "simulation": [("allreduce", "simulate", "--random-faults", "2")],
    "isolation": [("allreduce", "simulate", "--program", f"{sys.executable} {ROOT}/docs/examples/fabric_program.py")],
    "layout-plan": [
        ("plan", "--params", "7B", "--cluster", "1xhgx-h100", "--explain", "--why-not", "tp=16"),
        ("plan", "--params", "500B", "--cluster", "1xrtx-4090"),
    ],
    "pipeline-schedule": [("plan", "simulate", "--vpp", "2")],
    "plan-calibration": [("plan", "calibrate", "runs.csv")],
    "plan-score": [("plan", "score", "runs.csv"), ("plan", "score", "runs.csv", "--experts")],
    "parsed": [("parse", "nvlink", "answer")],
}


def check(document):
    name = document["schema"].removeprefix("gpuops.").replace("/", "-")
    Draft202012Validator(SCHEMAS[name]).validate(document)
    return name


@pytest.fixture
def gpuops(home, monkeypatch):
    monkeypatch.chdir(home)
    monkeypatch.delenv("GPUOPS_INVENTORY", raising=False)
    (home / "hosts.yml").write_text(INVENTORY)
    (home / "gpuops.yml").write_text("inventory: hosts.yml\n")
    (home / "p.yml").write_text(PLAYBOOK)
    (home / "answer").write_text("hello\n")
    (home / "runs.csv").write_text(RUNS)

    def run(*words):
        words = [*words, "--json", *(("--", "true") if words[0] == "run" else ())]
        done = CliRunner().invoke(program, words, standalone_mode=False)
        assert done.exception is None, done.exception
        return json.loads(done.stdout)

    return run


@pytest.mark.sampled
@pytest.mark.parametrize("name", COMMANDS)
def test_document_matches_its_schema(gpuops, name):
    if name in ("states", "history"):
        gpuops("drain", "n1", "--reason", "fan swap")
    if name == "runs":
        CliRunner().invoke(program, ["provision", "p.yml"], standalone_mode=False)
    for words in COMMANDS[name]:
        assert check(gpuops(*words)) == f"{name}-1", words


@pytest.mark.root("lock this machine for a run")
def test_run_is_listed_with_its_end_and_its_changes(gpuops):
    CliRunner().invoke(program, ["provision", "p.yml"], standalone_mode=False)
    (run,) = gpuops("runs", "list")["runs"]
    assert (run["exit"], run["changes"], run["failed"]) == (0, 1, [])
    shown = CliRunner().invoke(program, ["runs", "show", run["run"]]).stdout.splitlines()
    assert re.search(r"   run   .*p\.yml   \w+ on ", shown[0])
    assert shown[1].endswith("   n1   ok   true")
    assert shown[2].endswith("   end   ok")


RECORD = Record(
    "fixes/clock", "r1", check=True, results=(StepResult("n1", "1.1", "put", "would_change"),), stopped="",
    waiting={"n1": ("reload",)}, locked=(), untouched=(), interrupted=False, seconds=1.0,
)  # fmt: skip
LOST = Excluded("n2", "busy", "in use by python3", do="gpuops drain n2")
GATES = (GateResult("facts", "passed", "read"), GateResult("pair", "failed", "slow"))


@pytest.mark.parametrize(
    "result",
    [
        RECORD,
        Repair("clock", RECORD, excluded={"n2": LOST}),
        Repair("clock", RECORD, RECORD),
        Answers({"n1": Trusted({"ssh-ed25519": "SHA256:x"}, "not_recorded", Path("known_hosts"), "its key changed")}),
        Onboarding(
            {"n1": NodeOnboarding(GATES, "pair", Objection("slow", "look", excluded=LOST), "validated")},
        ),
    ],
)
def test_result_matches_its_schema(result):
    check(json.loads(result.to_json()))


def test_schemas_are_valid_and_named_like_their_documents():
    for name, schema in SCHEMAS.items():
        Draft202012Validator.check_schema(schema)
        assert schema["properties"]["schema"]["const"] == f"gpuops.{name.removesuffix('-1')}/1"
        assert "schema" in schema["required"]


def test_every_schema_of_a_result_is_described():
    names = set()
    for path in (ROOT / "src" / "gpuops").rglob("*.py"):
        names |= set(re.findall(r'"gpuops\.([a-z-]+)/1"', path.read_text("utf-8")))
    saved = {"facts", "journal", "allreduce", "burn-in", "seats", "calibration"}  # files that gpuops itself reads back
    inside = {"launch"}  # stands inside gpuops.launches
    assert {name.removesuffix("-1") for name in SCHEMAS} == names - saved - inside


def test_document_that_lacks_a_field_is_refused(gpuops):
    document = gpuops("ping")
    del document["excluded"]
    with pytest.raises(Exception, match="'excluded' is a required property"):
        check(document)

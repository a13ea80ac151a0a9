"""Need, conclusion and JSON document of repairs."""

import json

import pytest

from gpuops.errors import LockedError
from gpuops.judging import Verdict
from gpuops.playbook.record import Record
from gpuops.playbook.result import StepResult
from gpuops.reasons import Excluded, Objection
from gpuops.results.repair import Repair

SILENT = {"n1": Excluded("n1", "unreachable", "refused")}


def record_of(status, *, check=False, **fields):
    defaults = {
        "playbook": "fixes/clock", "run_id": "r1", "check": check, "stopped": "", "waiting": {}, "locked": (),
        "untouched": (), "interrupted": False, "seconds": 1.5,
    }  # fmt: skip
    return Record(**{**defaults, **fields, "results": (StepResult("n1", "1.1", "put", status),)})


PREVIEW = record_of("would_change", check=True)
DONE = record_of("changed")


def repair_of(*statuses, **fields):
    verdicts = tuple(Verdict("clock", f"n{number}", status) for number, status in enumerate(statuses, start=1))
    return Repair("clock", fields.pop("preview", PREVIEW), fields.pop("record", DONE), verdicts, **fields)


@pytest.mark.parametrize(
    ("status", "needed"),
    [("would_change", True), ("later", True), ("ok", False), ("unreachable", False), ("failed", False)],
)
def test_fix_is_needed_if_it_would_change_something(status, needed):
    assert Repair("clock", record_of(status, check=True)).needed is needed


@pytest.mark.parametrize(
    ("repair", "conclusion"),
    [
        (repair_of("pass"), "ok"),
        (repair_of("pass", "warn", "skipped"), "ok"),
        (repair_of("pass", "fail"), "failed"),
        (repair_of("unknown"), "incomplete"),
        (repair_of("unknown", "fail", excluded=SILENT), "failed"),
        (repair_of("pass", excluded=SILENT), "incomplete"),
        (repair_of(excluded=SILENT), "incomplete"),
        (repair_of("pass", interrupted=True), "interrupted"),
        (repair_of(record=None), "failed"),  # the needed fix was not applied
        (repair_of(record=None, blocked={"n1": Objection("it is admitted")}), "failed"),
        (repair_of(record=record_of("failed")), "failed"),
        (repair_of(record=record_of("needs_operator")), "incomplete"),
        (repair_of(record=record_of("ok", locked=(LockedError("n1 is locked by ann"),))), "locked"),
        (repair_of(record=None, preview=record_of("unreachable", check=True)), "incomplete"),
        (repair_of("pass", record=None, preview=record_of("ok", check=True)), "ok"),
    ],
)
def test_a_repair_is_ok_once_its_check_passes(repair, conclusion):
    assert repair.conclusion() == repair.conclusion("warn") == conclusion


def test_document_has_the_preview_the_run_and_the_verdicts():
    document = json.loads(repair_of("pass", "fail", excluded={"n3": SILENT["n1"]}).to_json())
    assert document.pop("preview")["conclusion"] == "failed"
    assert document.pop("record")["conclusion"] == "ok"
    assert document == {
        "schema": "gpuops.repair/1",
        "check": "clock",
        "needed": True,
        "verdicts": {"n1": "pass", "n2": "fail"},
        "excluded": {"n3": {"kind": "unreachable", "why": "refused"}},
        "bundles": {},
    }
    assert json.loads(repair_of(record=None).to_json())["record"] is None

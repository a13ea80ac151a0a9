"""gpuops diff, history, why and runs on a store, as a person calls them; each JSON document fits its schema."""

import csv
import io
import json
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from tests.program import run_gpuops
from tests.unit.test_store_runs import BEGAN, finding, gpu, in_rack, machine, record, shared_by, visit

from gpuops.report.page import Page
from gpuops.report.past.changes import lines
from gpuops.report.past.history import fleet_lines, sparkline, to_csv
from gpuops.report.past.wording import format_days
from gpuops.results.health import Report, Run
from gpuops.results.history import FailureRecord, FleetHistory
from gpuops.store import Runs, StateChange, Store
from gpuops.store.records import FLEET, SeenLink, SeenPart, Visit

SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"


@pytest.fixture
def project(tmp_path):
    (tmp_path / "prod.yml").write_text("all:\n  hosts:\n    n1:\n    n2:\n")
    with Runs(tmp_path / ".gpuops" / "state.db") as runs:
        for hours in range(6):
            found = (finding("n1", message="fell off the bus\x1b[31m"),) if hours in (2, 3, 5) else ()
            heat = {"gpu3.temperature_celsius": 40.0 + hours**2, "gpu3.ecc_corrected_volatile": 3.0 * hours}
            n1 = visit(*found, parts=(gpu("A", "gpu3"),), figures=heat | {"gpu3.memory_total_mib": 81559.0})
            runs.save(record(hours * 24, n1=n1, n2=visit(parts=(gpu("B", "gpu3"),))))
        link = SeenLink("n1", "n2", 3, 31.4, 48.0)
        runs.save(record(200, verb="allreduce", n1=visit(checks=()), links=(link, SeenLink("n1", "n2", None, 300.0))))
    return tmp_path


CALLS = {
    "run-diff": ("diff", "5", "6"),
    "fleet-history": ("history",),
    "node-history": ("history", "n1"),
    "part-history": ("history", "gpu", "A"),
    "link-history": ("history", "link", "n2", "n1"),
    "kept-run": ("runs", "show", "4"),
    "runs": ("runs", "list"),
    "why": ("why", "n1"),
}


@pytest.mark.parametrize("name", CALLS)
def test_document_matches_its_schema(project, name):
    done = run_gpuops(*CALLS[name], "-i", "prod.yml", "--json", cwd=project)
    assert (done.returncode, done.stderr) == (0, "")
    schema = json.loads((SCHEMAS / f"{name}-1.json").read_text())
    document = json.loads(done.stdout)
    jsonschema.Draft202012Validator(schema).validate(document)
    assert document["schema"] == f"gpuops.{name}/1"


@pytest.mark.parametrize("name", CALLS)
def test_text_fits_80_columns_and_has_no_control_characters(project, name):
    done = run_gpuops(*CALLS[name], "-i", "prod.yml", cwd=project)
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("name", ["run-diff", "node-history", "kept-run", "runs", "why"])
def test_what_only_asking_nodes_needs_is_not_loaded(project, name):
    code = f"import sys; sys.argv[1:] = {CALLS[name]}\nfrom gpuops.cli import program\n"
    code += "program(standalone_mode=False); print(*sys.modules)"
    (project / "gpuops.yml").write_text("inventory: prod.yml\n")
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=True)
    loaded = {*done.stdout.splitlines()[-1].split()}
    assert "gpuops.store.runs" in loaded
    asking = {"workspace", "nodes", "facts", "judging", "transport", "catalogue", "inventory.inventory"}
    assert not loaded & {*(f"gpuops.{module}" for module in asking), "concurrent.futures", "jinja2", "numpy"}


def test_the_report_names_the_nodes_that_join_a_finding_of_the_fleet(tmp_path):
    path = tmp_path / "state.db"
    with Runs(path) as runs:
        for hours, nodes in enumerate((("n1", "n2", "n3"), ("n1", "n2", "n3", "n4"))):
            _, changes = runs.save(record(hours, **shared_by(*nodes)))
    told = [line.strip() for line in lines(changes, 2, Page())]
    assert told[1] == "new       n4 fleet ib-ports"
    report = Report(Run("0", BEGAN, "prod.yml", "quick", 1.0), (), changes=changes)
    assert report.conclusion("new") == "failed"


def test_a_finding_of_the_fleet_is_told_of_the_nodes_and_runs_that_had_it(tmp_path):
    (tmp_path / "prod.yml").write_text("all: {hosts: {n1: }}\n")
    with Runs(tmp_path / ".gpuops" / "state.db") as runs:
        runs.save(record(0, **shared_by()))
        runs.save(record(1, **shared_by("n1", "n2", "n3")))
        runs.save(record(2, **shared_by("n1", "n2", "n3", "n4")))
    first, last = (text(tmp_path, "runs", "show", number) for number in "23")
    assert "isolate n[1-3] fleet ib-ports: fell off the bus (in run 3)" in first
    assert last.endswith("isolate n[1-4] fleet ib-ports: fell off the bus")
    for words in (("why",), ("history",)):
        assert "(2 runs in 1.0 h)" in text(tmp_path, *words, "n3")
        assert "(1 run)" in text(tmp_path, *words, "n4")


def test_what_is_the_same_on_many_nodes_is_said_once(tmp_path):
    (tmp_path / "prod.yml").write_text("all: {hosts: {n1: }}\n")
    names = [f"n{number}" for number in range(1, 41)]
    alike = {name: visit(finding(name, message="fell off the bus")) for name in names}
    with Runs(tmp_path / ".gpuops" / "state.db") as runs:
        runs.save(record(0, **dict.fromkeys([*names, "other"], visit())))
        runs.save(record(5, **alike, other=visit(finding("other", message="vanished"))))
    for words, label in ((("diff", "1", "2"), "new"), (("runs", "show", "2"), "isolate")):
        told = text(tmp_path, *words)
        assert f"{label} n[1-40] gpu3 gpu-lost: fell off the bus {label} other gpu3 gpu-lost: vanished" in told


def test_a_fault_that_a_rack_shares_is_on_record_for_each_card(tmp_path):
    (tmp_path / "prod.yml").write_text("all: {hosts: {n1: }}\n")
    with Runs(tmp_path / ".gpuops" / "state.db") as runs:
        for hours, nodes in enumerate(((), ("n1", "n2", "n3"), ())):
            seen = in_rack(*nodes)
            seen |= {n: replace(v, parts=(gpu(f"serial-{n}", "gpu3"),)) for n, v in seen.items() if n != "fleet"}
            runs.save(record(48 * hours, **seen))
            if nodes:
                standing = text(tmp_path, "why", "n1")
    assert "isolate: rack:r1 ib-ports" in standing
    assert "isolate: gpu3 ib-ports" not in standing
    assert "earlier gpu3 ib-ports (1 time)" in text(tmp_path, "why", "n1")
    assert "part gpu3 serial-n1: 1 failure on record" in text(tmp_path, "why", "n1")
    assert "isolate gpu3 ib-ports: fell off the bus" in text(tmp_path, "history", "gpu", "serial-n2")
    assert "3 runs of 4 nodes; 1 without a failure of their own" in text(tmp_path, "history")


def test_why_keeps_what_was_tried_after_later_runs(tmp_path):
    (tmp_path / "prod.yml").write_text("all: {hosts: {n1: }}\n")
    with Runs(tmp_path / ".gpuops" / "state.db") as runs:
        runs.save(record(0, n1=visit(finding())))
        runs.save(replace(record(1, verb="fix", n1=visit(checks=("gpu-lost",))), level="gpu-lost"))
        runs.save(replace(record(2, verb="fix", n1=Visit("skipped", "it takes jobs")), level="xid"))
        runs.save(record(3, n1=visit()))
    told = text(tmp_path, "why", "n1")
    assert "tried 2026-11-01 13:00 alice: fix gpu-lost, then pass (run 2)" in told
    assert "fix xid" not in told
    document = json.loads(run_gpuops("why", "n1", "-i", "prod.yml", "--json", cwd=tmp_path).stdout)
    assert [(each["run"], each["check"], each["status"]) for each in document["fixes"]] == [(2, "gpu-lost", "pass")]
    jsonschema.validate(document, json.loads((SCHEMAS / "why-1.json").read_text()))


def test_a_cable_is_followed_with_the_findings_on_its_port(tmp_path):
    (tmp_path / "prod.yml").write_text("all: {hosts: {n1: }}\n")
    with Runs(tmp_path / ".gpuops" / "state.db") as runs:
        for hours, port in enumerate(("mlx5_0", "mlx5_3")):
            parts = (SeenPart("hca", port, "H7"), SeenPart("cable", f"{port} cable", "C1", "NVIDIA MMA4"))
            runs.save(record(hours, n1=visit(finding("n1", "ib-ports", port, message="down"), parts=parts)))
    told = text(tmp_path, "history", "cable", "C1")
    assert told.startswith("cable C1 NVIDIA MMA4 in n1 mlx5_0 cable")
    assert "isolate mlx5_0 ib-ports: down" in told
    assert "isolate mlx5_3 ib-ports: down" in told
    assert "cable C1: 2 failures" not in text(tmp_path, "why", "n1")


def test_why_tells_how_a_healthy_node_comes_to_take_jobs(tmp_path):
    (tmp_path / "prod.yml").write_text("all: {hosts: {n1: }}\n")
    path = tmp_path / ".gpuops" / "state.db"
    with Runs(path) as runs:
        runs.save(record(n1=visit()))
    assert "do next nothing" in text(tmp_path, "why", "n1")
    for state, verb in (("drained", "admit"), ("provisioned", "onboard"), ("admitted", "")):
        with Store(path) as store:
            run = store.begin("by hand", who="alice")
            store.record_transition("n1", run, lambda _, state=state: StateChange(state, "by hand"))
        told = text(tmp_path, "why", "n1")
        assert told.endswith(f"do next gpuops {verb} n1 -i prod.yml" if verb else "do next nothing")


def test_a_renamed_machine_is_told_under_both_names(tmp_path):
    (tmp_path / "prod.yml").write_text("all: {hosts: {n1: }}\n")
    with Runs(tmp_path / ".gpuops" / "state.db") as runs:
        runs.save(record(0, gpu06=machine(finding("gpu06")), n2=visit()))
        _, changes = runs.save(record(1, node_six=machine(finding("node_six")), n2=visit()))
    told = "gpu06 is now named node_six"
    assert any(told in line for line in lines(changes, 2, Page()))
    assert f"name {told} 1 finding in both" in text(tmp_path, "diff")
    for name in ("gpu06", "node_six"):
        assert f"name {told}, since run 2" in text(tmp_path, "why", name)
        assert f"node_six fail 2 runs since 2026-11-01 12:00 name {told}" in text(tmp_path, "history", name)
        document = json.loads(run_gpuops("why", name, "-i", "prod.yml", "--json", cwd=tmp_path).stdout)
        assert [each["former"] for each in document["renames"]] == ["gpu06"]


def test_history_of_a_node_has_what_it_shares_with_others(tmp_path):
    (tmp_path / "prod.yml").write_text("all: {hosts: {n1: }}\n")
    shared = finding(FLEET, "clock", "fleet", message="the time server is gone", nodes=("n1", "n2"))
    with Runs(tmp_path / ".gpuops" / "state.db") as runs:
        runs.save(record(fleet=(shared,), **dict.fromkeys(["n1", "n2", "n3"], visit(checks=("clock",)))))
    assert "isolate fleet clock: the time server is gone; since" in text(tmp_path, "history", "n1")
    assert "clock" not in text(tmp_path, "history", "n3")


def text(project, *words):
    return " ".join(run_gpuops(*words, "-i", "prod.yml", cwd=project).stdout.split())


def test_diff_tells_that_a_run_is_partial_or_named_first(tmp_path):
    (tmp_path / "prod.yml").write_text("all: {hosts: {n1: }}\n")
    with Runs(tmp_path / ".gpuops" / "state.db") as runs:
        for hours, checks in enumerate((("gpu-lost", "ib-ports"), ("ib-ports",))):
            runs.save(record(hours, n1=visit(checks=checks)))
    told = text(tmp_path, "diff", "2", "1")
    assert "order the earlier run is the first, though it was named second" in told
    assert "partial run 2 did not have 1 check of run 1; they count for no status" in told
    assert "order" not in text(tmp_path, "diff", "1", "2")


def test_screens_say_what_a_person_asks(project):
    assert "new n1 gpu3 gpu-lost: fell off the bus" in text(project, "diff", "5", "6")
    assert "status n1: pass → fail" in text(project, "diff", "5", "6")
    assert "n1 2 8.3 d 3.0 d gpu-lost" in text(project, "history")
    node = text(project, "history", "n1")
    assert "gpu3.temperature_celsius ▁▁▂▃▅█ 40 to 65" in node
    assert "gpu3.ecc_corrected_volatile ▁▂▃▅▆█ 0 to 15, +15" in node
    assert "unchanged: 1 figure" in node
    assert "rail 3 ▁ 31.4 of 48.0 GB/s" in text(project, "history", "link", "n1", "n2")
    why = text(project, "why", "n1")
    assert "isolate: gpu3 gpu-lost: fell off the bus" in why
    assert "do next power-cycle it" in why
    assert "FAIL 1 n1" in text(project, "runs", "show", "4")


def test_part_names_model_and_serial_once_when_it_never_moved(project):
    shown = text(project, "history", "gpu", "A")
    assert (shown.count("H100"), shown.count(" A ")) == (1, 1)
    assert "in n1 gpu3 since 2026-" in shown


def test_fleet_history_fits_its_table_and_promises_a_rate_when_it_is_short(tmp_path):
    (tmp_path / "prod.yml").write_text("all:\n  hosts:\n    n1:\n")
    parts = (gpu("1659465171801", "gpu3"), SeenPart("hca", "mlx5_0", "a088:5ca5:882b:12b8", "MT4129"))
    with Runs(tmp_path / ".gpuops" / "state.db") as runs:
        for hours in (0.0, 0.25):
            lost = finding("n1", part="mlx5_0", check="all-reduce-bandwidth")
            runs.save(record(hours, n1=visit(lost, parts=parts)))
    shown = run_gpuops("history", "-i", "prod.yml", cwd=tmp_path).stdout
    rows = [" ".join(line.split()) for line in shown.splitlines()]
    assert "n1 1 15 min all-reduce-bandwidth" in rows
    assert "hca a088:5ca5:882b:12b8 1 15 min all-reduce-bandwidth" in rows
    assert "HCA MT4129 1 15 min known after 30 d" in rows
    assert "median gap" not in shown
    assert "1 GPU NVIDIA H100, 1 HCA MT4129" in text(tmp_path, "why", "n1")
    assert "(2 runs in 15 min)" in text(tmp_path, "why", "n1")


def test_a_node_that_never_answered_is_not_said_to_have_never_failed(tmp_path):
    (tmp_path / "prod.yml").write_text("all:\n  hosts:\n    n1:\n")
    refused = Visit("unknown", "unreachable: refused", checks={"reach": "fail"})
    with Runs(tmp_path / ".gpuops" / "state.db") as runs:
        runs.save(record(n1=visit(), n2=refused, n3=Visit("unknown", boot="b1")))
        runs.save(record(1, verb="preflight", n2=Visit("fail", "reach: refused")))
    assert "2 runs of 3 nodes; 2 without a failure of their own; never reached: n2" in text(tmp_path, "history")
    shown = run_gpuops("history", "-i", "prod.yml", "--json", cwd=tmp_path).stdout
    assert json.loads(shown)["never_reached"] == ["n2"]


@pytest.mark.parametrize(
    ("failures", "days", "shown"),
    [
        (0, 29.9, "known after 30 d"),
        (0, 1000.0, "at most 3.7"),
        (2, 1000.0, "2.0 (0.2 to 7.2)"),
        (9, 30.0, "300 (137 to 570)"),
    ],
)
def test_model_row_shows_a_rate_when_it_was_watched_for_long_enough(failures, days, shown):
    record = FailureRecord("H100", failures, days, kind="gpu")
    row = list(fleet_lines(FleetHistory(1, (), (), (record,)), Page()))[-1]
    assert row.endswith(shown)


@pytest.mark.parametrize(
    ("days", "shown"), [(0.0, "0 min"), (0.009, "13 min"), (0.3125, "7.5 h"), (8.34, "8.3 d"), (1234.0, "1,234 d")]
)
def test_duration_has_its_own_unit(days, shown):
    assert format_days(days) == shown


def test_csv_has_a_row_for_each_point(project):
    done = run_gpuops("history", "n1", "-i", "prod.yml", "--format", "csv", cwd=project)
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    heat = [float(row["value"]) for row in rows if row["figure"] == "gpu3.temperature_celsius"]
    assert heat == [40.0, 41.0, 44.0, 49.0, 56.0, 65.0]
    fleet = run_gpuops("history", "-i", "prod.yml", "--format", "csv", cwd=project).stdout
    assert "node,n1,2," in fleet


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\x1b[31m=x", "a\nb,c"])
def test_csv_has_no_formula_and_no_control_character_of_a_node(name):
    text = to_csv(FleetHistory(1, (), (), (FailureRecord(name, 1, 2.0),)))
    _, (_, cell, *_) = csv.reader(io.StringIO(text))
    assert cell[0] not in "=+-@"
    assert cell.isprintable()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("diff", "1", "2", "3"), "expected at most two runs, found 3"),
        (("diff", "99"), "no run 99 in the store; to list them: gpuops runs list -i prod.yml\n"),
        (("history", "disk", "A"), "nvme SERIAL, cable SERIAL or link A B, found disk A"),
        (("history", "gpu"), "expected NODE, gpu SERIAL, hca GUID, nvme SERIAL, cable SERIAL or link A B, found gpu"),
        (("history", "n9"), 'no run visited "n9"'),
        (("history", "link", "n1", "n9"), 'no run visited "n9"'),
        (("history", "link", "n1", "n1"), 'a link has two nodes, found "n1" twice'),
        (("why", "n9"), 'no record of "n9"'),
        (("runs", "show", "99"), "no run 99 in the store; to list them: gpuops runs list -i prod.yml\n"),
        (("history", "gpu", "S9"), "nodes and parts that failed: gpuops history -i prod.yml\n"),
    ],
)
def test_wrong_words_are_one_sentence(project, words, sentence):
    done = run_gpuops(*words, "-i", "prod.yml", cwd=project)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [("why", "n1"), ("history", "n1"), ("history", "gpu", "A"), ("diff",), ("diff", "1"), ("runs", "show", "1")],
)
def test_an_empty_store_says_how_to_fill_it(tmp_path, words):
    (tmp_path / "prod.yml").write_text("all:\n  hosts:\n    n1:\n")
    done = run_gpuops(*words, "-i", "prod.yml", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.endswith("is kept yet; to save one: gpuops validate -i prod.yml\n")


def test_without_a_store_nothing_is_made(tmp_path):
    (tmp_path / "prod.yml").write_text("all:\n  hosts:\n    n1:\n")
    done = run_gpuops("history", "-i", "prod.yml", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "no runs yet; to save one: gpuops validate -i prod.yml\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["prod.yml"]


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([1.0], "▁"),
        ([2.0, 2.0], "▁▁"),
        ([0.0, 7.0], "▁█"),
        ([float(k) for k in range(240)], "▁▁▁▁▂▂▂▃▃▃▄▄▄▄▅▅▅▆▆▆▇▇▇█"),
    ],
)
def test_sparkline(values, shown):
    assert sparkline(values) == shown


DAMAGES = {
    "figures": "UPDATE visits SET figures = x'00ff'",
    "findings of a visit": "UPDATE visits SET findings = 'oops'",
    "texts that are gone": "DELETE FROM texts",
    "texts": "UPDATE texts SET content = x'1234'",
    "nodes of a finding": "UPDATE findings SET nodes = '['",
    "time of a finding": "UPDATE findings SET last_at = 'yesterday'",
    "time of a run": "UPDATE records SET began = 'noon'",
    "time of a part": "UPDATE parts SET last_at = ''",
    "time of a visit": "UPDATE nodes SET last_at = 'x'",
    "a table that is gone": "DROP TABLE findings",
}


@pytest.mark.long
@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_store_is_one_sentence(project, name):
    path = project / ".gpuops" / "state.db"
    database = sqlite3.connect(path)
    database.executescript(DAMAGES[name])
    database.close()
    outcomes = [run_gpuops(*words, "-i", "prod.yml", cwd=project) for words in CALLS.values()]
    refused = [done for done in outcomes if done.returncode]
    assert refused
    for done in refused:
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert done.stderr.startswith("gpuops: .gpuops/state.db: ")

"""Caps of ``gpuops drain``, and what ``admit`` and ``onboard`` ask of a node that a check closed."""

import datetime as dt
import json

import pytest
from tests.unit.cli.test_life import HERE, make
from tests.unit.cli.test_life import gpuops as gpuops  # noqa: PLC0414 - a fixture
from tests.unit.cli.test_life import project as project  # noqa: PLC0414 - a fixture
from tests.unit.cli.test_life import slurm as slurm  # noqa: PLC0414 - a fixture

from gpuops.errors import OutputError
from gpuops.store import ClosingCheck, StateChange, Store

NAMES = ("n1", "n2", "n3", "n4", "n5")
CHECK = '''\
"""The host is held."""

from gpuops import Command, Finding, Probe, check

held = Probe("held", Command(("cat", "{file}")), lambda answer: answer.out)


@check(needs=held, tags=("{level}",))
def purpose(text, _profile):
    """It is not broken."""
    if "broken" in text:
        yield Finding("it is broken")
'''


@pytest.fixture
def five(project):
    """Five nodes, all admitted, in a project without a scheduler."""
    hosts = ", ".join(f"{name}: {{ansible_connection: local}}" for name in NAMES)
    (project / "inventory.yml").write_text(f"all: {{hosts: {{{hosts}}}}}\n")
    (project / "gpuops.yml").write_text("inventory: inventory.yml\nscheduler: none\nmax_closed: {day: 2}\n")
    with Store(project / ".gpuops" / "state.db") as store:
        run = store.begin("a test", who="ops")
        for name in NAMES:
            store.record_transition(name, run, lambda _: StateChange("admitted", "x"))
    return project


def admitted(gpuops):
    hosts = json.loads(gpuops("state", "list", "--json"))["hosts"]
    return [name for name, event in hosts.items() if event["state"] == "admitted"]


def test_a_drain_above_the_cap_of_a_day_closes_nothing_without_force(five, gpuops):
    gpuops("drain", "n1", "--reason", "fan swap")
    told = gpuops("drain", "n2", "n3", "--reason", "planned reboot", code=3)
    assert "n[2-3]: not drained: 1 were drained within 24 hours, and 2 more would make 3" in told
    assert "max_closed (day: 2) allows 2 of 5 nodes; to do: drain fewer nodes, or add --force" in told
    assert admitted(gpuops) == ["n2", "n3", "n4", "n5"]
    gpuops("drain", "n1", "n2", "--reason", "one of them is closed already")
    gpuops("drain", "n3", "--reason", "x", code=3)
    gpuops("drain", "n[3-5]", "--reason", "planned reboot", "--force")
    assert admitted(gpuops) == []


def test_a_node_that_only_the_scheduler_uses_counts_and_stays_open_above_the_cap(project, gpuops, slurm):
    (project / "gpuops.yml").write_text("inventory: inventory.yml\nscheduler: slurm\nmax_closed: {day: 0}\n")
    assert "max_closed (day: 0) allows 0 of 1 nodes" in gpuops("drain", HERE, "--reason", "x", code=3)
    assert slurm() == "idle none"
    gpuops("drain", HERE, "--reason", "x", "--force")
    assert slurm() == "drained gpuops:new x"


def test_nothing_is_closed_if_the_store_cannot_be_read(project, gpuops, slurm):
    make(project, "admitted")
    for file in (project / ".gpuops").glob("state.db*"):
        file.write_bytes(b"no database, but long enough to be read as one\n" * 40)
    told = gpuops("drain", HERE, "--reason", "x", "--force", code=OutputError.exit_code)
    assert "not a gpuops store, or damaged" in told
    assert slurm() == "idle none"


@pytest.fixture
def closed(project):
    """Return a function that closes the validated node by the check ``purpose``, in a project that has it."""
    (project / "bin" / "sinfo.state").write_text("drained gpuops:validated x\n")
    (project / "checks").mkdir()

    def close(level="quick", gate="validate", name="purpose"):
        text = CHECK.replace("{file}", str(project / "held")).replace("{level}", level)
        (project / "checks" / "purpose.py").write_text(text)
        (project / "held").write_text("broken")
        make(project, "validated")
        with Store(project / ".gpuops" / "state.db") as store:
            change = StateChange("drained", "x", cause="stopped", checks=(ClosingCheck(name, level, gate),))
            store.record_transition(HERE, store.begin("onboard", who="ops"), lambda _: change)
            for table, minutes in (("events", 5), ("gates", 9)):
                before = (dt.datetime.now(dt.timezone.utc) - dt.timedelta(minutes=minutes)).isoformat()
                store._database.execute(f"UPDATE {table} SET at = ?", (before,))

    return close


@pytest.mark.parametrize(
    ("level", "shown"), [("quick", "--only purpose"), ("standard", "--only purpose --level standard")]
)
def test_a_node_is_admitted_when_the_check_that_closed_it_has_passed_at_its_level(
    project, gpuops, slurm, closed, level, shown
):
    closed(level)
    told = gpuops("admit", HERE, code=3)
    assert "purpose failed at validate on" in told
    assert f"has not passed since; to do: gpuops validate --limit {HERE} {shown}" in told
    assert slurm() == "drained gpuops:validated x"
    gpuops("validate", "--only", "purpose", "--level", level, code=1)
    gpuops("admit", HERE, code=3)  # it was asked, and failed
    (project / "held").write_text("well")
    if level != "quick":
        gpuops("validate", "--only", "purpose")
        gpuops("admit", HERE, code=3)  # a level below shows nothing
    gpuops("validate", "--only", "purpose", "--level", level)
    gpuops("admit", HERE)
    assert slurm() == "idle none"


@pytest.mark.parametrize("words", [("force",), ("shadow",), ("waiver",), ("gone",)], ids=lambda words: words[0])
def test_what_else_opens_it(project, gpuops, slurm, closed, words):
    closed(name="gone" if words == ("gone",) else "purpose")
    if words == ("shadow",):
        with (project / "gpuops.yml").open("a") as file:
            file.write("shadow: [purpose]\n")
    if words == ("waiver",):
        day = (dt.datetime.now(dt.timezone.utc) + dt.timedelta(days=9)).date()
        text = f"- {{check: purpose, reason: known, author: alice, expires: {day}}}\n"
        (project / "waivers.yml").write_text(text)
    gpuops("admit", HERE, *(["--force"] if words == ("force",) else []))
    assert slurm() == "idle none"


def test_a_quick_check_may_show_it_in_the_admission_itself(project, gpuops, slurm, closed, monkeypatch):
    from gpuops.judging import discover

    closed(gate="admit")
    monkeypatch.setattr("gpuops.operations.health.quick_checks", lambda *_: [discover(project)["purpose"]])
    assert "fails purpose" in gpuops("admit", HERE, code=1)
    (project / "held").unlink()  # then nobody can look
    gpuops("admit", HERE, code=3)
    (project / "held").write_text("well")
    gpuops("admit", HERE)
    assert slurm() == "idle none"

"""``gpuops state``, ``drain``, ``admit`` and ``fix`` on this very machine, with a Slurm that is a script."""

import datetime as dt
import json
import os
import socket
import stat
import threading
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from gpuops.cli import program
from gpuops.cluster import Cluster
from gpuops.errors import CancelledError, ConnectError, GpuopsError
from gpuops.events import Activity
from gpuops.lifecycle.gates import GATES
from gpuops.lifecycle.scheduler import ProjectScheduler
from gpuops.reasons import Objection
from gpuops.report.states import transition_complaints
from gpuops.results.life import Transition
from gpuops.store import StateChange, Store

HERE = socket.gethostname()
INVENTORY = f"all: {{hosts: {{{HERE}: {{ansible_connection: local}}}}}}\n"
# sinfo tells the state that is kept in a file, scontrol changes it
SINFO = '#!/bin/sh\nread -r state reason <"$0.state"; echo "$NODE|$NODE|$NODE|$state|$reason"\n'
SCONTROL = """\
#!/bin/sh
cd "$(dirname "$0")"
case "$3" in
State=DRAIN) echo "drained ${4#Reason=}" >sinfo.state ;;
State=RESUME) echo "idle none" >sinfo.state ;;
*) exit 1 ;;
esac
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project whose inventory is this machine, and a Slurm whose state may be written."""
    (tmp_path / "inventory.yml").write_text(INVENTORY)
    (tmp_path / "gpuops.yml").write_text("inventory: inventory.yml\nscheduler: slurm\n")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("sinfo", SINFO), ("scontrol", SCONTROL)):
        (programs / name).write_text(text)
        (programs / name).chmod(stat.S_IRWXU)
    (programs / "sinfo.state").write_text("idle none\n")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("NODE", HERE)
    monkeypatch.setattr("gpuops.operations.health.quick_checks", lambda *_: [])  # whether this machine is well
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def slurm(project):
    return lambda: (project / "bin" / "sinfo.state").read_text().strip()


@pytest.fixture
def gpuops():
    def gpuops(*words, code=0):
        done = CliRunner().invoke(program, words, standalone_mode=False)
        if isinstance(done.exception, GpuopsError):
            assert done.exception.exit_code == code, done.exception
            return str(done.exception)
        assert done.exception is None, done.exception
        assert (done.return_value or 0) == code, done.output
        return done.output

    return gpuops


def make(project, state, *, fingerprint=None, gates=True):
    """The node as if it had been onboarded."""
    with Store(project / ".gpuops" / "state.db") as store:
        run = store.begin("a test", who="ops")
        store.record_transition(HERE, run, lambda _: StateChange(state, "as a test has it", fingerprint or {}))
        for gate in GATES if gates else ():
            store.record_gate(HERE, gate.name, run, fingerprint or {})


def test_a_drain_and_an_admission_go_round(project, gpuops, slurm):
    make(project, "admitted")
    assert gpuops("drain", HERE, "--reason", "fan swap").startswith(f"{HERE}   drained   fan swap")
    assert slurm() == "drained gpuops:drained fan swap"
    assert gpuops("admit", HERE, "--reason", "new fan") == f"{HERE}   admitted   new fan\n"
    assert slurm() == "idle none"
    told = json.loads(gpuops("state", "show", HERE, "--json"))
    assert [(event["state"], event["why"], event["cause"]) for event in told["history"]] == [
        ("admitted", "as a test has it", ""),
        ("drained", "fan swap", "by_hand"),
        ("admitted", "new fan", "by_hand"),
    ]


@pytest.mark.parametrize(
    "words", [("drain", HERE, "--reason", "x"), ("admit", HERE), ("state", "set", HERE, "repair", "--reason", "x")]
)
def test_the_scheduler_is_asked_for_our_own_job_and_hung_up_in_the_end(project, gpuops, monkeypatch, words):
    make(project, "drained")
    (project / "bin" / "sinfo.state").write_text("drained gpuops:drained x\n")
    schedulers = []

    def make_scheduler(*fields):
        schedulers.append(ProjectScheduler(*fields))
        return schedulers[-1]

    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setattr("gpuops.lifecycle.scheduler.ProjectScheduler", make_scheduler)
    gpuops(*words)
    assert [(scheduler.own_job, scheduler.transport._closed) for scheduler in schedulers] == [("17", True)]


def test_what_another_user_drained_stays_so(project, gpuops, slurm):
    make(project, "drained")
    (project / "bin" / "sinfo.state").write_text("drained fan swap, T812\n")
    assert "drained by another user: drained (fan swap, T812)" in gpuops("admit", HERE, code=1)
    assert slurm() == "drained fan swap, T812"
    assert json.loads(gpuops("state", "list", "--json"))["hosts"][HERE]["state"] == "drained"


@pytest.mark.parametrize(
    ("state", "gates", "told"),
    [
        ("drained", False, "not proved for this machine: burn-in, validate, pair"),
        ("new", True, "it is new (as a test has it); to do: gpuops onboard"),
    ],
)
def test_no_node_is_admitted_without_proof(project, gpuops, slurm, state, gates, told):
    make(project, state, gates=gates)
    (project / "bin" / "sinfo.state").write_text(f"drained gpuops:{state} x\n")
    assert told in gpuops("admit", HERE, code=1)
    assert slurm() == f"drained gpuops:{state} x"
    assert "untested" in gpuops("admit", HERE, "--force")
    assert slurm() == "idle none"


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_a_node_that_does_not_answer_is_not_admitted(project, gpuops, slurm, monkeypatch, force):
    make(project, "drained")
    (project / "bin" / "sinfo.state").write_text("drained gpuops:drained x\n")

    def gather(node, *_args, **_options):
        raise ConnectError(node, "timed out", "timeout")

    monkeypatch.setattr("gpuops.nodes.gather", gather)
    assert f"{HERE}: timed out" in gpuops("admit", HERE, *force, code=3)
    assert slurm() == "drained gpuops:drained x"


def test_an_admitted_node_that_hides_what_it_is_could_not_be_assessed(project, gpuops):
    make(project, "admitted", fingerprint={"GPU serials": ("165",)})
    assert "its GPU serials can no longer be read; to do: gpuops onboard" in gpuops("admit", HERE, code=3)


def test_another_machine_is_not_admitted(project, gpuops):
    make(project, "validated", fingerprint={"kernel": ("1.2.3-old",)})
    assert "kernel 1.2.3-old →" in gpuops("admit", HERE, code=1)
    assert json.loads(gpuops("state", "list", "--json"))["hosts"][HERE]["state"] == "provisioned"


@pytest.fixture
def working(project):
    """Jobs that do not end run on the node."""
    make(project, "admitted")
    script = SCONTROL.replace('"drained ${4#Reason=}"', '"draining ${4#Reason=}"')
    (project / "bin" / "scontrol").write_text(script)


@pytest.mark.usefixtures("working")
def test_a_drain_that_has_to_wait_says_for_what(gpuops):
    assert "draining (gpuops:drained x) in Slurm" in gpuops("drain", HERE, "--reason", "x", "--wait", "0.1", code=1)


@pytest.mark.usefixtures("working")
def test_ctrl_c_ends_a_wait_for_jobs_and_what_was_drained_is_reported(gpuops, monkeypatch):
    class Pressed(threading.Event):
        def wait(self, _seconds=None):
            raise KeyboardInterrupt

    monkeypatch.setattr("gpuops.operations.life.threading", SimpleNamespace(Event=Pressed))
    told = gpuops("drain", HERE, "--reason", "x", "--wait", "600", code=130)
    assert f"{HERE}   drained   x\n" in told
    assert "in Slurm" in told


@pytest.mark.usefixtures("working")
def test_another_thread_may_cancel_a_wait_for_jobs(project):
    def listener(event):
        if isinstance(event, Activity):
            threading.Thread(target=cluster.cancel).start()

    cluster = Cluster.open("inventory.yml", project=project, events=listener)
    with cluster, pytest.raises(CancelledError) as stop:
        cluster.drain(reason="x", wait=600)
    assert stop.value.partial.events[HERE].state == "drained"
    assert stop.value.partial.interrupted


def test_the_same_words_about_several_hosts_are_told_once():
    unscheduled = Objection("recorded only", "name a scheduler", "incomplete")
    result = Transition({}, dict.fromkeys(("gpu01", "gpu02", "gpu03"), unscheduled), busy={"gpu07": "draining"})
    assert list(transition_complaints(result)) == [
        "gpu[01-03]: recorded only; to do: name a scheduler",
        "gpu07: draining",
    ]


def test_a_drain_that_no_scheduler_carries_out_is_recorded_and_not_called_done(project, gpuops):
    (project / "gpuops.yml").write_text("inventory: inventory.yml\n")
    make(project, "admitted")
    told = gpuops("drain", HERE, "--reason", "x", code=3)
    assert f"{HERE}   drained   x\n" in told
    assert f"{HERE}: recorded in gpuops' store only: gpuops.yml names no scheduler" in told
    assert "to do: set scheduler: slurm, kubernetes or none in gpuops.yml" in told
    (project / "gpuops.yml").write_text("inventory: inventory.yml\nscheduler: none\n")
    told = gpuops("drain", HERE, "--reason", "x")
    assert "recorded in gpuops' store only: with scheduler: none, nothing keeps new jobs from starting" in told


def test_a_state_follows_from_the_one_before_or_is_refused(project, gpuops, slurm):
    make(project, "admitted")
    assert "is admitted and cannot become rma; allowed next states: provisioned, drained" in gpuops(
        "state", "set", HERE, "rma", "--reason", "x", code=2
    )
    assert slurm() == "idle none"
    gpuops("state", "set", HERE, "repair", "--reason", "Xid 79")
    assert slurm() == "drained gpuops:repair Xid 79"
    assert json.loads(gpuops("state", "show", HERE, "--json"))["cause"] == "by_hand"
    assert "gpuops admit" in gpuops("state", "set", HERE, "admitted", "--reason", "x", code=2)


def test_who_changes_a_state_is_the_user_behind_sudo(project, gpuops, slurm, monkeypatch):
    make(project, "admitted")
    monkeypatch.setenv("SUDO_USER", "alice")
    gpuops("drain", HERE, "--reason", "fan swap")
    assert gpuops("state", "list").split()[4:6] == ["alice", "fan"]


def test_states_are_listed_and_shown_with_who_and_why(project, gpuops):
    make(project, "admitted", fingerprint={"driver": ("580.95.05",)})
    listed = gpuops("state", "list").split()
    assert listed[:2] == [HERE, "admitted"]
    assert listed[4:6] == ["ops", "as"]
    shown = gpuops("state", "show", HERE)
    assert "580.95.05" in shown
    assert "burn-in" in shown
    assert f"{dt.datetime.now(dt.timezone.utc):%Y-%m-%d}" in shown


def test_a_node_without_a_record_is_onboarded_only_if_the_inventory_has_it(project, gpuops, monkeypatch):
    make(project, "admitted")
    (project / "two.yml").write_text("all: {hosts: {gpu01: }}\n")

    def answer(*words):
        return gpuops("state", "show", *words, code=2)

    assert answer("gpu01", "-i", "two.yml") == "no record of gpu01; to onboard it: gpuops onboard gpu01 -i two.yml"
    assert answer("gpu02", "-i", "two.yml") == 'no record of gpu02; did you mean "gpu01"?'
    listing = "to list the nodes that have one: gpuops state list"
    assert answer("elsewhere") == f"no record of elsewhere; {listing}"
    (project / "gpuops.yml").unlink()
    assert answer("localhost") == f"no record of localhost; {listing}"


FIX = """\
- hosts: all
  tasks:
    - file: {{path: "{path}", content: "well\\n", owner: "{owner}", group: "{group}"}}
"""


@pytest.fixture
def remedy(project):
    """A project's own playbook that mends what the check disk-space finds."""
    folder = project / "playbooks" / "fixes"
    folder.mkdir(parents=True)
    text = FIX.format(path=project / "mended", owner=os.geteuid(), group=os.getegid())
    (folder / "disk-space.yml").write_text(text)
    return project / "mended"


def test_a_fix_is_shown_and_nothing_is_done_unasked(gpuops, remedy):
    told = gpuops("fix", "disk-space", HERE, code=1)
    assert "+well" in told
    assert f"to apply it: gpuops fix disk-space {HERE} --yes" in told
    assert not remedy.exists()


def test_a_node_that_takes_jobs_is_drained_first(project, gpuops, remedy):
    assert "idle in Slurm; first: gpuops drain" in gpuops("fix", "disk-space", HERE, "--yes", code=3)
    (project / "bin" / "sinfo.state").write_text("drained gpuops:drained x\n")
    make(project, "admitted")
    assert "it is admitted; first: gpuops drain" in gpuops("fix", "disk-space", HERE, "--yes", code=3)
    assert not remedy.exists()


def test_where_nothing_is_left_to_do_the_check_is_asked_at_once(gpuops, remedy):
    remedy.write_text("well\n")
    remedy.chmod(0o644)
    assert "disk-space: " in gpuops("fix", "disk-space", HERE, code=_now(gpuops))


def _now(gpuops):
    """What the check says of this machine's disks."""
    done = CliRunner().invoke(program, ["validate", "--only", "disk-space", "--fail-on", "fail"], standalone_mode=False)
    assert done.exception is None, done.exception
    return done.return_value


@pytest.mark.parametrize(("check", "told"), [("gpu-lost", "no playbook fixes gpu-lost"), ("disk-spce", "did you mean")])
def test_what_cannot_be_mended_from_here_says_what_to_do(project, gpuops, check, told):
    assert told in gpuops("fix", check, HERE, code=2)

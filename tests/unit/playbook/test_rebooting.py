import socket

import pytest

from gpuops.errors import CancelledError, ConnectError, LostError
from gpuops.playbook import journal, rebooting
from gpuops.playbook.journal import read
from gpuops.playbook.node_session import NodeSession


def test_a_reboot_is_proved_by_a_new_boot(world, steps):
    record = world.run(steps("reboot: {reason: a new kernel}", "put: {key: a, value: '1'}"))
    assert world.statuses(record) == [("reboot", "changed"), ("put", "changed")]
    assert world.node.done == ["reboot", "put a 1"]


def test_a_node_that_still_answers_from_its_old_boot_is_not_back(world, monkeypatch, steps):
    node, polls = world.node, []

    def reboot(_command):
        node.done.append("reboot")
        polls.append(0)
        return (0,)

    def answer(question):
        if polls and question == rebooting.BOOT_ID:
            polls[0] += 1
            if polls[0] == 4:  # systemd had services to stop
                node.boots, node.lock = 1, ""
        return type(node).answer(node, question)

    monkeypatch.setattr(node, "_systemd_run", reboot, raising=False)
    monkeypatch.setattr(node, "answer", answer, raising=False)
    record = world.run(steps("reboot: {reason: a new kernel}", "put: {key: a, value: '1'}"))
    assert world.statuses(record) == [("reboot", "changed"), ("put", "changed")]
    assert (polls[0] >= 4, node.boots) == (True, 1)


def test_how_a_node_came_back_from_a_reboot_and_who_asked_for_it_is_in_the_journal(world, steps):
    world.node.system = "degraded"
    world.run(steps("reboot: {reason: a new kernel}"))
    lines = list(read(journal.find(world.folder / "runs", world.last.run_id)))
    (done,) = [line for line in lines if line["event"] == "done"]
    assert (done["said"], done["seconds"] >= 1) == ("degraded: nvidia-dcgm.service", True)
    assert lines[0]["who"] == f"ops on {socket.gethostname()}"


def test_a_connection_that_is_lost_while_the_node_still_starts_is_opened_again(world, monkeypatch, steps):
    story = [LostError("n1", "the network is set up anew"), "starting", ConnectError("n1", "nobody answers")]
    settle = world.node._systemctl

    def systemctl(command):
        if "is-system-running" in command.words and world.node.boots and story:
            event = story.pop(0)
            if isinstance(event, Exception):
                raise event
            return 0, f"{event}\n"
        return settle(command)

    monkeypatch.setattr(world.node, "_systemctl", systemctl, raising=False)
    record = world.run(steps("reboot: {reason: a new kernel}"))
    assert (world.statuses(record), story) == ([("reboot", "changed")], [])


def test_a_node_that_stays_away_is_out_of_reach(world, steps):
    world.node.stays_away = True
    record = world.run(steps("reboot: {reason: a new kernel}", "put: {key: a, value: '1'}"))
    (result,) = record.results
    assert result.status == "unreachable"
    assert "check its console or its BMC" in result.why
    assert sum(world.slept) >= rebooting.BACK_SECONDS
    assert record.exit_code(check=False) == 3


def test_an_interrupt_does_not_wait_for_a_node_that_reboots():
    """It comes back without help, and the boot ID in the journal proves the reboot to the run that resumes."""
    told = []
    session = NodeSession(None, None, None, None, sleep=told.append)
    session.stopping = True
    with pytest.raises(CancelledError, match="not back yet"):
        rebooting._pause(session, 12.0)
    assert told == []


def test_a_node_is_not_rebooted_for_ever(world, steps):
    record = world.run(steps(*["reboot: {reason: again}"] * 5))
    assert [r.status for r in record.results] == ["changed", "changed", "changed", "needs_operator"]
    assert world.node.done.count("reboot") == 3


def test_the_machine_that_gpuops_runs_on_is_not_rebooted(world, monkeypatch, tmp_path, steps):
    own = tmp_path / "boot_id"
    own.write_text("boot-0\n")
    monkeypatch.setattr(rebooting, "Path", lambda _: own)
    record = world.run(steps("reboot: {reason: again}"))
    assert record.results[0].status == "needs_operator"
    assert "the machine that gpuops runs on" in record.results[0].why
    assert world.node.done == []

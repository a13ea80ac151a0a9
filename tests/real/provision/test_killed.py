"""Runs that break off, and connections that do: the node comes to the same end, and nothing is done to it twice."""

import contextlib
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

PLAYBOOK = """\
- hosts: all
  tasks:
    - nvidia_repo: {name: cuda, url: "{{ mirror.url }}", fingerprint: "{{ mirror.fingerprint }}"}
    - package: {names: [nvidia-persistenced]}
      notify: reboot
    - package_hold: {names: [nvidia-persistenced]}
    - flush: handlers
    - service: {name: nvidia-persistenced, state: started, enabled: true}
  handlers:
    - {name: reboot, reboot: {reason: driver}}
"""
LINES = 23
# the program, that dies as the journal's line number {} reaches the disk
MORTAL = """
import os, signal
from gpuops.playbook.journal import Journal
write, left = Journal._append, [{}]
def append(self, data):
    write(self, data)
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
Journal._append = append
from gpuops.cli import main; main()
"""
# the program, which takes three seconds without an answer for a lost connection
IMPATIENT = """
from gpuops.cli import main
from gpuops.transport import quick
quick._SILENCE_SECONDS = 3
main()
"""
PASSING = ("etc/machine-id", "etc/ssh/", "var/cache/", "var/lib/apt/lists/", "var/lib/systemd/", "var/log/")
TOOLKIT = "cuda-toolkit-13-0"


def deeds(node):
    """What dpkg did, in order; nothing is there twice that was done once."""
    log = node.disk / "var/log/dpkg.log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [line.split(" ", 2)[2] for line in lines if line.split()[2] in ("install", "configure", "upgrade")]


def state(node):
    """All that the playbook brings about, and how often it was done."""
    service = node.seen.service("nvidia-persistenced")
    reboots = (node.folder / "console").read_text().count("ended with 133")
    locked = node.seen.file("/run/gpuops/lock").exists
    return node.written(*PASSING), deeds(node), service.is_running, service.is_enabled, reboots, locked


def test_killed_after_any_line_of_its_journal_it_comes_to_the_same_end(new_node):
    with new_node() as node:
        (node.folder / "p.yml").write_text(PLAYBOOK)
        node.provision("p.yml")
        assert len(node.journal) == LINES
        clean = state(node)
    assert clean[2:] == (True, True, 1, False)

    def break_off(line):
        with new_node(line) as node:
            (node.folder / "p.yml").write_text(PLAYBOOK)
            node.provision("p.yml", program=MORTAL.format(line), code=-signal.SIGKILL)
            node.provision("p.yml", "--resume", node.last_run)
            return state(node)

    with ThreadPoolExecutor(4) as pool:
        ends = dict(enumerate(pool.map(break_off, range(1, LINES + 1)), start=1))
    assert {line: end for line, end in ends.items() if end != clean} == {}


@pytest.fixture
def installing(node):
    """Begins to install a package that takes until `done` is called, and waits until it is at it."""
    node.provision("node.yml", "--tags", "repository")
    slow = node.disk / "var/lib/slow"

    def start(more="", **how):
        slow.touch()
        playbook = node.playbook(f"    - package: {{names: [{TOOLKIT}]{more}}}\n")
        process = node.start(playbook, **how)
        node.wait_until(lambda: f"configure {TOOLKIT}:amd64 13.0.2-1 <none>" in deeds(node))
        return process

    start.done = slow.unlink
    return start


PLAIN = ", detach: false"  # as on a node without systemd


def break_connections(node):
    """All that there are now, ours to look at the node too."""
    served = ",".join(node.seen.check_output("pgrep --full '^sshd: ops'").split())
    soon = "systemd-run --quiet --on-active=1 --timer-property=AccuracySec=100ms"
    node.seen.check_output(f"{soon} pkill -KILL --full '^sshd: ops'")

    def are_broken():
        with contextlib.suppress(RuntimeError):
            return node.seen.run(f"ps --pid {served}").rc == 1
        return False

    node.wait_until(are_broken)


def test_a_long_step_outlives_the_program_that_began_it(node, installing):
    process = installing()
    process.kill()
    process.communicate()
    installing.done()
    assert "1 changed, 0 ok, 0 failed" in node.provision("steps.yml", "--resume", node.last_run)
    assert node.seen.package(TOOLKIT).is_installed
    assert len(deeds(node)) == 2


def test_a_new_run_waits_for_what_a_dead_one_left_at_work(node, installing):
    process = installing()
    process.kill()
    process.communicate()
    dead = node.last_run
    second = node.start("steps.yml")
    node.wait_until(lambda: node.seen.run(f"ls /run/gpuops/lock | grep -v {dead}").rc == 0)
    installing.done()
    assert "1 node, 1 step: 1 ok, 0 failed" in node.finish(second)
    assert node.seen.package(TOOLKIT).is_installed
    assert len(deeds(node)) == 2
    assert node.seen.run("systemctl list-units --plain --no-legend 'gpuops-*'").stdout == ""


def test_a_long_step_outlives_its_connection_and_so_does_the_run(node, installing):
    process = installing()
    break_connections(node)
    installing.done()
    assert "1 changed, 0 ok, 0 failed" in node.finish(process)
    assert len(deeds(node)) == 2


def test_a_step_whose_connection_is_lost_is_told_and_healed_by_the_next_run(node, installing):
    process = installing(PLAIN)
    break_connections(node)
    assert "unreachable" in node.finish(process, code=3)
    installing.done()
    node.wait_until(lambda: node.seen.run("pgrep dpkg").rc == 1)  # apt ends with the connection, its dpkg a bit later
    assert "complete the interrupted dpkg" in node.provision("steps.yml")
    assert node.seen.package(TOOLKIT).is_installed


def test_a_node_that_falls_silent_is_lost_too(node, installing):
    process = installing(PLAIN, program=IMPATIENT)
    node.link("down")
    assert "unreachable" in node.finish(process, code=3)
    node.link("up")
    installing.done()
    node.wait_until(lambda: node.seen.run("pgrep dpkg").rc == 1)
    assert "0 failed" in node.provision("steps.yml", "--resume", node.last_run)
    assert node.seen.package(TOOLKIT).is_installed


def test_what_dpkg_left_half_done_when_the_power_failed_is_finished(node, installing):
    process = installing(PLAIN)
    node.cut_power()
    assert "unreachable" in node.finish(process, code=3)
    installing.done()
    node.wait_until(node.answers)
    assert node.seen.run(f"dpkg --status {TOOLKIT}").stdout.splitlines()[1] == "Status: install ok half-configured"
    assert "complete the interrupted dpkg" in node.provision("steps.yml", "--resume", node.last_run)
    assert node.seen.package(TOOLKIT).is_installed

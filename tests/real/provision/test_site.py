"""What check mode shows of a bare node, against what is done then: real apt, real systemd, and testinfra as witness."""

import re

LOGS = ("var/log/", "var/lib/systemd/timers/")


def test_check_mode_goes_through_all_steps_and_leaves_no_trace(node):
    before = node.written(*LOGS)
    told = node.provision("site", "--check", "--diff", code=1)
    assert re.search(r" \d+ would change, \d+ later, \d+ ok, \d+ skipped, 0 failed", told)
    assert "+URIs: http" in told
    assert node.commands_of_root() == []
    assert node.written(*LOGS) == before
    assert not node.seen.file("/run/gpuops").exists


def test_what_check_mode_shows_is_what_is_done_then(node):
    node.provision("node.yml", "--tags", "repository,headers,version")
    told = node.provision("node.yml", "--check", code=1)
    assert "7 would change, 2 later, 3 ok, 0 failed" in told
    node.provision("node.yml")
    made = [line["what"] for line in node.journal if line["event"] == "change"]
    shown = "".join(told.split())  # a long path is broken
    later = [what for what in made if "".join(what.split()) not in shown]
    assert {what.split()[0] for what in later} == {"hold", "enable", "start"}
    assert len(made) > 2 * len(later)


def test_a_limit_holds_for_whoever_logs_in(node):
    node.provision(node.playbook("    - limits: {domain: '*', item: nofile, value: '16384'}\n"))
    with node.seen.sudo("ops"):
        assert node.seen.check_output("ulimit -n") == "16384"

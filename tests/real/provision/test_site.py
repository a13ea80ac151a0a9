"""A bare node becomes a GPU node: real apt, real systemd, a real reboot. testinfra, over OpenSSH, is the witness."""

LOGS = ("var/log/", "var/lib/systemd/timers/")
HELD = {"nvidia-open", "nvidia-fabricmanager", "libnvidia-nscq", "libnccl2", "libnccl-dev"}


def commands_of_root(node):
    """What sudo noted that somebody did as root, but for us who look."""
    log = node.seen.check_output("journalctl --identifier=sudo --output=cat --no-pager")
    commands = [line.partition("COMMAND=")[2] for line in log.splitlines() if "COMMAND=" in line]
    return [command for command in commands if not command.startswith("/bin/sh -c ")]


def test_check_mode_goes_through_all_steps_and_leaves_no_trace(node):
    before = node.written(*LOGS)
    told = node.provision("site.yml", "--check", "--diff", code=1)
    assert "10 would change, 2 later, 0 ok, 0 failed" in told
    assert "+URIs: http" in told
    assert [command for command in commands_of_root(node) if "make.log" not in command] == []  # which is only read
    assert node.written(*LOGS) == before
    assert not node.seen.file("/run/gpuops").exists


def test_what_check_mode_shows_is_what_is_done_then(node):
    node.provision("site.yml", "--tags", "repository,headers,version")
    told = node.provision("site.yml", "--check", code=1)
    assert "7 would change, 2 later, 3 ok, 0 failed" in told
    node.provision("site.yml")
    made = [line["what"] for line in node.journal if line["event"] == "change"]
    shown = "".join(told.split())  # a long path is broken
    later = [what for what in made if "".join(what.split()) not in shown]
    assert {what.split()[0] for what in later} == {"hold", "enable", "start"}
    assert len(made) > 2 * len(later)


def test_a_bare_node_becomes_what_the_playbook_says_and_stays_so(node):
    boot = node.boot_id
    assert "11 changed, 1 ok, 0 failed" in node.provision("site.yml")
    assert node.boot_id != boot

    seen = node.seen
    assert seen.package("nvidia-open").version == "580.159.04-1"
    assert seen.package("nvidia-kernel-open-dkms").version == "580.159.04-1"
    assert seen.package("libnccl-dev").version == "2.28.9-1+cuda13.0"
    assert set(seen.check_output("apt-mark showhold").split()) == HELD
    for name in ("nvidia-fabricmanager", "nvidia-persistenced"):
        assert (seen.service(name).is_running, seen.service(name).is_enabled) == (True, True)
    options = seen.file("/etc/modprobe.d/gpuops-nvidia.conf")
    assert (options.mode, options.user, options.group) == (0o644, "root", "root")
    assert options.content_string == "options nvidia NVreg_RestrictProfilingToAdminUsers=0\n"
    assert seen.sysctl("net.core.somaxconn") == 5000
    with seen.sudo("ops"):
        assert seen.check_output("ulimit -n") == "16384"
    assert seen.check_output("nvidia-smi") == "Driver Version: 580.159.04"
    assert seen.check_output("systemctl is-system-running") == "running"

    boot, before = node.boot_id, node.written(*LOGS)
    done = commands_of_root(node)
    assert "11 ok, 0 failed" in node.provision("site.yml")
    assert "11 ok, 0 failed" in node.provision("site.yml", "--check")
    assert (node.boot_id, node.written(*LOGS)) == (boot, before)
    assert len(commands_of_root(node)) == len(done) + 2  # the lock is taken, and released


def test_onboard_takes_a_bare_node_to_an_admitted_one(node):
    untried = [word for gate in ("burn-in", "validate", "pair") for word in ("--without", gate)]  # there are no GPUs
    boot = node.boot_id
    told = node.provision("gpu01", "--playbook", "site.yml", *untried, verb="onboard")
    for gate in ("facts", "preflight", "provision", "second-pass", "admit"):
        assert f"{gate} passed" in told
    assert node.boot_id != boot
    assert node.seen.service("nvidia-fabricmanager").is_running
    boot = node.boot_id
    told = node.provision("gpu01", "--playbook", "site.yml", *untried, verb="onboard")
    assert "provision" not in told, told
    assert node.boot_id == boot

"""Bare nodes become admitted ones with the built-in playbooks: real apt, systemd, reboots, and traffic between nodes.

testinfra, over OpenSSH, is the witness. GPUs, NVSwitches and adapters are the lab's hardware model (hardware.py), on
which nothing computes. So the all-reduce is that of the nodes' own network (engine tcp), and there is none within a
node; and the gate burn-in is left out, which is for GPUs that compute and get hot.
"""

import itertools
import pathlib
import re

import pytest
import yaml

ONBOARD = ("--engine", "tcp", "--without", "burn-in")
STACKS = pathlib.Path(__file__).parents[3] / "playbooks/stacks"
DRIVER = (
    *("nvidia-open", "nvidia-kernel-open-dkms", "nvidia-driver-cuda", "libnvidia-compute", "nvidia-persistenced"),
    *("nvidia-fabricmanager", "libnvidia-nscq", "libnvsdm"),
)
DCGM = [f"datacenter-gpu-manager-4-{part}" for part in ("core", "proprietary", "cuda13", "proprietary-cuda13")]
CONTAINERS = (
    *("nvidia-container-toolkit", "nvidia-container-toolkit-base"),
    *("libnvidia-container-tools", "libnvidia-container1"),
)
UNITS = ("chrony", "nvidia-dcgm", "nvidia-fabricmanager", "nvidia-persistenced", "gpuops-acs", "gpuops-cpu-governor")
SYSCTLS = {
    "kernel.numa_balancing": 0,
    "net.ipv4.neigh.default.gc_thresh3": 16384,
    "vm.max_map_count": 1048576,
    "vm.swappiness": 1,
}
FILES = {
    "/etc/default/grub.d/90-iommu.cfg": "iommu=pt",
    "/etc/docker/daemon.json": "nvidia-container-runtime",
    "/etc/modprobe.d/gpuops-nouveau.conf": "blacklist nouveau",
    "/etc/modules-load.d/gpuops-ib_umad.conf": "ib_umad",
    "/etc/security/limits.d/90-gpuops.conf": "memlock unlimited",
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance",
    "/sys/module/ib_umad": "",
}


def pinned(stack):
    """The packages of a stack that must be at one version, as the repositories write it."""
    told = yaml.safe_load((STACKS / f"{stack}.yml").read_text())
    return {
        **dict.fromkeys(DRIVER, f"{told['driver']['version']}-1"),
        **dict.fromkeys(DCGM, f"1:{told['dcgm']['version']}-1"),
        **dict.fromkeys(CONTAINERS, f"{told['container_toolkit']['version']}-1"),
        "libnccl2": "{version}-1+cuda{cuda}".format(**told["nccl"]),
        "cuda-toolkit-13-0": "13.0.2-1",
    }


def installed(node):
    """Every package that is on hold, with its version."""
    rows = node.seen.check_output("dpkg-query --show --showformat='${db:Status-Want} ${Package} ${Version}\\n'")
    return dict(row.split()[1:] for row in rows.splitlines() if row.startswith("hold "))


def onboard(node, name, code=0):
    """What becomes of the node at each gate; and all that was said."""
    told = node.provision(name, *ONBOARD, verb="onboard", code=code)
    return dict(re.findall(rf"{name} ([a-z-]+) (passed before|passed|left out|stopped)", told)), told


def roll(nodes, playbook, stack):
    """Give all nodes the driver of a stack; each is done, with a reboot, before the next begins."""
    boots, wanted = [node.boot_id for node in nodes], pinned(stack)
    nodes[0].provision(playbook)
    for node, boot in zip(nodes, boots, strict=True):
        have = installed(node)
        assert {name: have[name] for name in DRIVER} == {name: wanted[name] for name in DRIVER}
        assert wanted["nvidia-open"].removesuffix("-1") in node.seen.check_output("nvidia-smi")
        assert node.boot_id != boot
    changed = [line["node"] for line in nodes[0].journal if line["event"] == "change"]
    assert [name for name, _ in itertools.groupby(changed)] == ["gpu01", "gpu02"]


@pytest.fixture(scope="module")
def nodes(new_node):
    """Two nodes of one project, of which the first took the whole way; no cable leads from one to the other."""
    with new_node(1, "gpu01") as first, new_node(2, "gpu02") as second:
        first.know(first, second)
        first.bare_boot = first.boot_id
        meanwhile = first.start("site", "--limit", "gpu02")
        first.gates, _ = onboard(first, "gpu01")
        first.finish(meanwhile)
        yield first, second


@pytest.fixture
def node(nodes):
    return nodes[0]


def test_a_bare_node_passes_every_gate_with_a_reboot_on_the_way(node):
    passed = dict.fromkeys(("facts", "preflight", "provision", "second-pass", "validate", "admit"), "passed")
    assert node.gates == {**passed, "burn-in": "left out", "pair": "left out"}  # there is no admitted neighbour yet
    assert node.boot_id != node.bare_boot
    assert (node.folder / "console").read_text().count("ended with 133") == 1


def test_an_independent_witness_finds_what_the_playbook_says(node):
    seen, current = node.seen, pinned("current")
    assert installed(node) == current
    assert "0 upgraded, 0 newly installed, 0 to remove" in seen.check_output("apt-get --simulate dist-upgrade")
    for name in UNITS:
        assert (name, seen.service(name).is_running, seen.service(name).is_enabled) == (name, True, True)
    assert {key: seen.sysctl(key) for key in SYSCTLS} == SYSCTLS
    for path, text in FILES.items():
        assert (path, seen.run("cat %s", path).stdout.find(text) >= 0) == (path, True)
    assert seen.file("/proc/cmdline").content_string.split()[-2:] == ["intel_iommu=on", "iommu=pt"]
    assert current["nvidia-open"].removesuffix("-1") in seen.check_output("nvidia-smi")
    assert seen.check_output("systemctl is-system-running") == "running"


def test_a_second_run_changes_nothing(node):
    boot, before, done = node.boot_id, node.written("var/log/"), node.commands_of_root()
    assert re.search(r" node, \d+ steps: \d+ ok, \d+ skipped, 0 failed", node.provision("site", "--limit", "gpu01"))
    assert (node.boot_id, node.written("var/log/")) == (boot, before)
    assert len(node.commands_of_root()) == len(done) + 2  # the lock is taken, and released
    assert onboard(node, "gpu01")[0] == dict.fromkeys(("facts", "preflight", "second-pass"), "passed")


def test_a_node_that_its_neighbour_cannot_reach_stops_there_and_goes_on_when_it_can(nodes):
    node, other = nodes
    gates, told = onboard(node, "gpu02", code=3)
    assert gates["pair"] == "stopped"
    assert "gpu02 cannot connect to gpu01: Network is unreachable" in told
    node.wire(other)
    gates, _ = onboard(node, "gpu02")
    assert {gate: gates[gate] for gate in ("validate", "pair", "admit")} == {
        "validate": "passed before",
        "pair": "passed",
        "admit": "passed",
    }


def test_a_node_in_use_is_left_alone(node):
    node.seen.check_output("touch /dev/nvidia0")
    node.seen.check_output("systemd-run --quiet --unit=job --uid=ops sh -c 'exec sleep 600 </dev/nvidia0'")
    told = node.provision("rollback", "--limit", "gpu01", code=3)
    assert "sleep, user ops" in told
    assert installed(node) == pinned("current")
    node.seen.check_output("systemctl stop job; rm /dev/nvidia0")


def test_a_driver_goes_back_and_forth_node_by_node_and_meanwhile_it_is_another_machine(nodes):
    node, _ = nodes
    roll(nodes, "rollback", "previous")
    gates, told = onboard(node, "gpu01", code=1)
    assert gates == {"facts": "stopped"}
    assert "no longer the machine that was tested: driver " in told
    roll(nodes, "upgrade", "current")
    gates, _ = onboard(node, "gpu01")
    assert (gates["provision"], gates["validate"], gates["admit"]) == ("passed", "passed before", "passed")

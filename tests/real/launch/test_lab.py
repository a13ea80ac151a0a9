"""The lab that launchers are tried on: hosts apart from each other and from this machine."""

import subprocess
from pathlib import Path


def test_every_host_has_its_own_name_processes_and_tmp(lab):
    assert lab.run("hostname | tee /tmp/name", host="node10").stdout == "node10\n"
    assert lab.run("cat /tmp/name", host="node3").returncode != 0
    assert "pytest" not in lab.run("ps -e -o args", host="node3").stdout


def test_hosts_reach_each_other_and_nothing_else(lab):
    assert lab.run("ssh node11 hostname", host="node2").stdout == "node11\n"
    assert lab.run("ip route", host="node2").stdout.split()[:3] == ["10.77.0.0/24", "dev", "eth0"]
    assert "default" not in lab.run("ip route", host="node2").stdout


def test_nothing_of_it_is_seen_outside(lab):
    assert "bridge0" in lab.run("ip link").stdout
    assert "bridge0" not in subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout
    assert str(lab.state) not in Path("/proc/self/mounts").read_text()

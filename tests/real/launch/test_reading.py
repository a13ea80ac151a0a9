"""DeepSpeed's, Accelerate's and ssh's own readers take the rendered files, and understand what the layout says."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpuops.inventory import Inventory
from gpuops.layout import parse_layout
from gpuops.placement import declared_shape, place
from gpuops.render import Job, environment_of, find_target, render, write


@pytest.mark.parametrize(
    "words", ["dp=8,zero=0", "dp=8,zero=1,mbs=2,chunks=3", "dp=8,zero=2,offload=cpu", "dp=8,zero=3,offload=nvme"]
)
def test_the_libraries_read_what_was_meant(tmp_path, node, words):
    if not all(map(importlib.util.find_spec, ("deepspeed", "accelerate"))):
        pytest.skip("there is no DeepSpeed or Accelerate here, which are of the extra gpuops[launch]")
    placement = place(parse_layout(words), [node("n1", 4), node("n2", 4)])
    for name in ("deepspeed", "accelerate-deepspeed"):
        target = find_target(name)
        write(render(target, placement, Job(env=environment_of(placement, target.engine))), tmp_path / name)
    whole_node = place(parse_layout("tp=4"), [node("n1", 4)])
    write(render(find_target("deepspeed-inference"), whole_node, Job()), tmp_path / "deepspeed-inference")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", Path(__file__).with_name("reading.py"), tmp_path, str(placement.layout.dp)],
        env={**os.environ, "DS_ACCELERATOR": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    layout = placement.layout
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "hosts": [["n1", 4], ["n2", 4]],
        "stage": layout.zero,
        "batch": layout.global_batch,
        "not_read": [],
        "inference": ["torch.bfloat16", 4],
        "processes": 8,
        "accelerate_stage": layout.zero,
    }


def test_ssh_reads_the_rendered_configuration(tmp_path, node):
    if shutil.which("ssh") is None:
        pytest.skip("there is no ssh on this machine")
    placement = place(parse_layout("dp=8"), [node(name, 4, f"{name}.example") for name in ("n1", "n2")])
    write(render(find_target("env"), placement, Job()), tmp_path)
    for name in ("n1", "n2"):
        assert ssh_reads(tmp_path, name)["hostname"] == f"{name}.example"


def ssh_reads(folder, name):
    """Return what the system's ssh makes of the rendered configuration for one host."""
    words = ["ssh", "-G", "-F", folder / "ssh_config", name]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


INVENTORY = """
all:
  vars:
    ansible_user: ops
    ansible_ssh_common_args: -o ProxyJump=adm@bastion:2200 -o Compression=yes
  hosts:
    n1: {ansible_host: 10.0.0.1, ansible_port: 2222, ansible_ssh_private_key_file: "/keys/a b%c"}
    n2: {ansible_host: "fd00::2", ansible_user: root, ansible_ssh_common_args: "-o 'ProxyCommand=nc -X 5 %h %p'"}
    n3: {}
"""


def test_ssh_reads_the_login_of_the_inventory(tmp_path):
    if shutil.which("ssh") is None:
        pytest.skip("there is no ssh on this machine")
    (tmp_path / "hosts.yml").write_text(INVENTORY)
    shapes = [declared_shape(host, 1) for host in Inventory.load(tmp_path / "hosts.yml").hosts.values()]
    write(render(find_target("env"), place(parse_layout("dp=3"), shapes), Job()), tmp_path)
    expected = {
        "n1": ("10.0.0.1", "2222", "ops", "adm@bastion:2200", None, "yes"),
        "n2": ("fd00::2", "22", "root", None, "nc -X 5 %h %p", "no"),
        "n3": ("n3", "22", "ops", "adm@bastion:2200", None, "yes"),
    }
    names = ("hostname", "port", "user", "proxyjump", "proxycommand", "compression")
    read = {name: ssh_reads(tmp_path, name) for name in expected}
    assert {name: tuple(own.get(key) for key in names) for name, own in read.items()} == expected
    assert read["n1"]["identityfile"] == "/keys/a b%%c", "ssh -G shows a doubled %, which it reads as one"

"""The scripts that tasks send, run by this machine's own shell with made-up tools."""

import os
import pathlib
import stat
import subprocess

import pytest

from gpuops.playbook.loading import load_playbook
from gpuops.shell import Command

ROOT = pathlib.Path(__file__).parents[4]

FABRIC = """\
GPU 00000000:1B:00.0
    Persistence Mode                              : Enabled
    Fabric
        State                                     : {}
        Status                                    : Success
GPU 00000000:43:00.0
    Fabric
        State                                     : Completed
"""


@pytest.fixture
def shell(tmp_path):
    """Runs a script; the tools that are given print a text, or end with a number."""

    def shell(script, **tools):
        for name, said in tools.items():
            tool = tmp_path / name.replace("_", "-")
            done = f"exit {said}" if isinstance(said, int) else f"cat <<'END'\n{said}END"
            tool.write_text(f'#!/bin/sh\necho "{name} $*" >>{tmp_path}/told\n{done}\n')
            tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
        path = f"{tmp_path}:{os.environ['PATH']}"
        done = subprocess.run(["sh", "-c", script], env={"PATH": path}, capture_output=True, text=True, check=False)
        told = tmp_path / "told"
        return done.returncode, told.read_text().splitlines() if told.exists() else []

    return shell


@pytest.fixture
def joined(node, look):
    """The question whether all GPUs have joined the fabric."""
    node.answers.update({"sh -c for device": "", "sh -c all=": 0})
    node.installed.update(dict.fromkeys(("nvidia-fabricmanager", "libnvidia-nscq", "libnvsdm"), "580.126.20-1"))
    node.unit("nvidia-fabricmanager")
    node.load("580.126.20")
    asked = []
    node.answers["sh -c all="] = lambda words: asked.append(words[2]) or 0
    look(node, "fabric_manager", version="580.126.20", nvswitch=True)
    return asked[0]


@pytest.mark.parametrize(
    ("said", "good"),
    [
        (FABRIC.format("Completed"), True),
        (FABRIC.format("In Progress"), False),
        (FABRIC.format("Not Started"), False),
        (FABRIC.format("N/A"), True),
        (9, False),
    ],
)
def test_a_fabric_is_joined_when_no_gpu_waits_for_it(joined, shell, said, good):
    assert (shell(joined, nvidia_smi=said)[0] == 0) == good


@pytest.mark.parametrize(
    ("said", "over"),
    [("status: running\n", False), ("status: not run\n", False), ("status: done\n", True), ("status: error\n", True),
     ("status: disabled\n", True), (127, True)],
)  # fmt: skip
def test_a_first_boot_is_over_when_cloud_init_says_so(library, shell, said, over):
    (play,) = load_playbook("tuning", library, ROOT).plays
    (words,) = [step.raw_params.map()["words"].plain() for step in play.steps if step.task.name == "wait_for"]
    assert (shell(words[2], cloud_init=said)[0] == 0) == over


def script_of(found):
    """The text of the boot script that a task would write."""
    return next(change.after for change in found.changes if "/usr/local/lib/gpuops/" in change.what)


def test_access_control_is_only_written_to_what_has_it(node, look, shell, tmp_path):
    node.installed["pciutils"] = "3.9"
    text = script_of(look(node, "acs")).replace("/run/gpuops-boot", str(tmp_path / "ran"))
    listed = "0000:00:01.0 PCI bridge: x\n0000:1b:00.0 3D controller: y\n"
    exit_code, told = shell(text, lspci=listed, setpci=0)
    assert exit_code == 0
    assert [line for line in told if "=0000" in line] == [
        "setpci -s 0000:00:01.0 ECAP_ACS+0x6.w=0000",
        "setpci -s 0000:1b:00.0 ECAP_ACS+0x6.w=0000",
    ]
    exit_code, _ = shell(text, lspci=listed, setpci=1)
    assert exit_code == 0
    assert (tmp_path / "ran" / "acs").read_text()


def test_a_boot_script_that_fails_leaves_no_mark(node, look, shell, tmp_path):
    text = script_of(look(node, "boot_script", name="x", about="x", script="false\n"))
    assert shell(text.replace("/run/gpuops-boot", str(tmp_path / "ran")))[0] != 0
    assert not (tmp_path / "ran").exists()


def test_every_script_is_one_that_sh_understands(node, look):
    place = "/sys/class/infiniband/mlx5_0/ports/1"
    leaves = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec", "link_layer": "Ethernet"}
    node.files |= {"/sys/class": "", **{f"{place}/{leaf}": f"{text}\n" for leaf, text in leaves.items()}}
    node.files["/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"] = "powersave\n"
    node.installed["pciutils"] = "3.9"
    for name in ("roce_qos", "cpu_governor", "acs"):
        text = script_of(look(node, name))
        done = subprocess.run(["sh", "-n"], input=text, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), name


def test_no_question_of_the_tasks_changes_anything(node, look):
    asked = []
    batch = node.batch
    node.batch = lambda questions: asked.extend(questions) or batch(questions)
    node.answers["sh -c for device"] = ""
    for name, params in {
        "nvidia_driver": {"version": "580.126.20"},
        "fabric_manager": {"version": "580.126.20"},
        "kernel_headers": {},
        "acs": {},
        "time_sync": {},
        "dcgm": {"version": "4.6.0"},
    }.items():
        look(node, name, **params)
    words = [question.words for question in asked if isinstance(question, Command)]
    assert words
    changing = {"modprobe", "systemctl start", "rm", "apt-mark hold", "update-initramfs", "setpci", "mokutil --import"}
    assert not [line for line in map(" ".join, words) if any(line.startswith(start) for start in changing)]
    assert all("-s" in line or "indextargets" in line for line in words if "apt-get" in line)

import subprocess

import pytest

from gpuops import NeedsOperator
from gpuops.errors import DocumentError

REBOOT = ["write /run/reboot-required", "write /run/reboot-required.pkgs"]
GRUBBY = """\
index=0
kernel="/boot/vmlinuz-5.14.0-503.el9.x86_64"
args="ro crashkernel=1G {0}"
root="/dev/mapper/rhel-root"
index=1
kernel="/boot/vmlinuz-0-rescue"
args="ro crashkernel=1G {0}"
"""


def red_hat(booted="", running="", later=None):
    script = {"grubby": GRUBBY.format(booted), "/proc/cmdline": f"ro {running}\n"}
    return script if later is None else {**script, "/etc/kernel/cmdline": later}


def debian(menu, running="", drop_in=None):
    """A node whose grub.cfg boots with the words of ``menu``."""
    entry = f"menuentry 'x' {{\n\tlinux\t/boot/vmlinuz root=UUID=1 ro {menu}\n}}\n"
    script = {"grubby": 127, "/proc/cmdline": f"ro {running}\n", "/boot/grub/grub.cfg": entry}
    return script if drop_in is None else {**script, "/etc/default/grub.d/90-gpuops.cfg": drop_in}


def whats(found):
    return [change.what for change in found.changes]


def test_grubby_is_told_once_for_all_kernels(planned):
    found = planned("kernel_cmdline", red_hat("quiet"), add=["iommu=pt"], remove=["quiet"])
    assert str(found.changes[0].command) == "grubby --update-kernel=ALL --remove-args=quiet --args=iommu=pt"
    assert whats(found)[1:] == REBOOT
    assert planned("kernel_cmdline", red_hat("iommu=pt", "iommu=pt"), add=["iommu=pt"], remove=["iommu"]).changes == []


def test_kernels_that_come_later_get_it_too(planned):
    found = planned("kernel_cmdline", red_hat("a=1", "a=1", "root=/dev/x ro\n"), add=["a=1"])
    assert [(c.what, c.after) for c in found.changes] == [("replace /etc/kernel/cmdline", "root=/dev/x ro a=1\n")]


def test_a_boot_is_noted_where_the_node_runs_without(planned):
    assert whats(planned("kernel_cmdline", red_hat("a=1"), add=["a=1"])) == REBOOT


def test_grub_gets_a_drop_in_and_a_new_menu(planned):
    found = planned("kernel_cmdline", debian("quiet"), add=["iommu=pt"])
    (drop_in, menu) = found.changes[:2]
    assert drop_in.what == "write /etc/default/grub.d/90-gpuops.cfg"
    assert (str(menu.command), menu.before) == ("update-grub", "/boot/vmlinuz root=UUID=1 ro quiet")
    assert whats(found)[2:] == REBOOT
    after = planned("kernel_cmdline", debian("iommu=pt", "iommu=pt", drop_in.after), add=["iommu=pt"])
    assert after.changes == []
    stale = planned("kernel_cmdline", debian("quiet", "iommu=pt", drop_in.after), add=["iommu=pt"])
    assert [str(change.command) for change in stale.changes] == ["update-grub"]


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"add": ["iommu=pt"]}, ["a=1", "quiet", "splash", "b", "iommu=pt"]),
        ({"remove": ["quiet", "a"]}, ["splash", "b"]),
        ({"add": ["a=2"], "remove": ["a"]}, ["quiet", "splash", "b", "a=2"]),
        ({"remove": ["a=2"]}, ["a=1", "quiet", "splash", "b"]),
        ({"add": ["splash"]}, ["a=1", "quiet", "b", "splash"]),
    ],
)
def test_the_drop_in_edits_what_grub_was_told(planned, params, expected):
    text = planned("kernel_cmdline", debian(""), **params).changes[0].after
    script = f'GRUB_CMDLINE_LINUX="a=1 quiet"; GRUB_CMDLINE_LINUX_DEFAULT="splash b"\n{text}\n'
    tell = 'echo "$GRUB_CMDLINE_LINUX" "$GRUB_CMDLINE_LINUX_DEFAULT"'
    told = subprocess.run(["sh", "-eu", "-c", script + tell], capture_output=True, text=True, check=True).stdout
    assert told.split() == expected


@pytest.mark.parametrize("script", [{"grubby": 127}, {"grubby": (1, "", "no boot loader")}])
def test_another_way_to_boot_is_left_to_a_person(planned, script):
    assert isinstance(planned("kernel_cmdline", script, add=["a=1"]).stop, NeedsOperator)


@pytest.mark.parametrize(
    "wrong",
    [{}, {"add": ["a b"]}, {"add": ["$(id)"]}, {"add": ["a;b"]}, {"remove": ["*"]}, {"add": ["a"], "name": "../x"}],
)
def test_wrong_parameters_are_refused(planned, wrong):
    with pytest.raises(DocumentError, match="kernel_cmdline"):
        planned("kernel_cmdline", {}, **wrong)

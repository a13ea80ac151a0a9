import pytest

from gpuops import Later
from gpuops.errors import DocumentError

KERNEL = {"/proc/sys/kernel/osrelease": "6.1\n", "stat": (1, "5.0 /boot/initrd.img-6.1\n")}
CONF, BOOT = "/etc/modprobe.d/gpuops-{}.conf", "/etc/modules-load.d/gpuops-{}.conf"


def node(name, *, loaded=False, options=None, files=None):
    """A node whose modprobe.d and modules-load.d hold these files for the module."""
    place = f"/sys/module/{name}"
    seen = {place: ""} if loaded else {}
    told = {f"{place}/parameters/{key}": f"{value}\n" for key, value in (options or {}).items()}
    held = {path.format(name): text for path, text in (files or {}).items()}
    return {**KERNEL, **seen, **told, **held, "modinfo": "/lib/x.ko\n"}


@pytest.fixture
def whats(planned):
    """What the task would do on a node: ``given`` are its parameters, the rest is about the node."""

    def whats(name="nvidia-peermem", /, given=None, **about):
        script = node(name.replace("-", "_"), **about)
        return [change.what for change in planned("kernel_module", script, name=name, **(given or {})).changes]

    return whats


def test_a_module_is_loaded_now_and_at_every_boot(whats):
    assert whats() == [f"write {BOOT.format('nvidia_peermem')}", "load nvidia_peermem"]
    assert whats(loaded=True, files={BOOT: "nvidia_peermem\n"}) == []
    assert whats(given={"at_boot": False}) == ["load nvidia_peermem"]


def test_options_are_written_before_the_module_is_loaded(whats):
    given = {"options": {"NVreg_RestrictProfilingToAdminUsers": "0"}, "at_boot": False}
    assert whats("nvidia", given) == [
        f"write {CONF.format('nvidia')}",
        "rebuild the initramfs",
        "load nvidia",
    ]


OPTIONS = {CONF: "options nvidia_uvm a=1 b=16\n"}


@pytest.mark.parametrize(("shown", "noted"), [({"a": "Y", "b": "0x10"}, False), ({"a": "N"}, True), ({}, False)])
def test_a_module_that_runs_with_other_options_needs_a_boot(whats, shown, noted):
    given = {"options": {"a": "1", "b": "16"}, "at_boot": False}
    found = whats("nvidia_uvm", given, loaded=True, options=shown, files=OPTIONS)
    assert bool(found) == noted
    assert all("reboot-required" in what for what in found)


def test_a_blacklisted_module_that_is_loaded_needs_a_boot(whats):
    given = {"options": {"modeset": "0"}, "state": "blacklisted"}
    text = "blacklist nouveau\noptions nouveau modeset=0\n"
    reboot = ["write /run/reboot-required", "write /run/reboot-required.pkgs"]
    new = [f"write {CONF.format('nouveau')}", "rebuild the initramfs"]
    assert whats("nouveau", given) == new
    assert whats("nouveau", given, loaded=True) == [*new, *reboot]
    assert whats("nouveau", given, files={CONF: text}) == []


def test_a_module_that_the_kernel_lacks_may_come_later(planned):
    script = node("a", files={BOOT: "a\n"})
    found = planned("kernel_module", {**script, "modinfo": (1, "", "modinfo: ERROR: Module a not found.")}, name="a")
    assert found.changes == []
    assert found.later == [Later("the running kernel has no module a; its package may not be installed yet")]


@pytest.mark.parametrize(
    "wrong",
    [{"name": "a b"}, {"name": "../a"}, {"options": {"a b": "1"}}, {"options": {"a": "1 b"}}, {"options": {"a": "\\"}}],
)
def test_wrong_parameters_are_refused(planned, wrong):
    with pytest.raises(DocumentError, match="kernel_module"):
        planned("kernel_module", {}, **{"name": "a", **wrong})

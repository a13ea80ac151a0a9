import pytest

from gpuops.errors import DocumentError

GIVEN = {"name": "x", "about": "something", "script": "echo 1\n"}


def test_it_runs_now_once_and_at_every_boot(node, apply):
    done = apply(node, "boot_script", **GIVEN)
    assert done.count("something, now") == 1
    assert node.units["gpuops-x.service"] == {"ActiveState": "active", "UnitFileState": "enabled"}
    assert "Before=slurmd.service kubelet.service\n" in node.files["/etc/systemd/system/gpuops-x.service"]
    assert apply(node, "boot_script", **GIVEN) == []


def test_another_script_runs_at_once(node, apply):
    apply(node, "boot_script", **GIVEN)
    done = apply(node, "boot_script", **{**GIVEN, "script": "echo 2\n"})
    assert done == ["replace /usr/local/lib/gpuops/x.sh", "something, now"]


def test_it_runs_again_where_it_did_not_run_since_the_boot_or_where_it_is_due(node, apply, look):
    apply(node, "boot_script", **GIVEN)
    (change,) = look(node, "boot_script", **GIVEN, due=True).changes
    assert str(change.command) == "systemctl restart -- gpuops-x.service"
    node.files.pop("/run/gpuops-boot/x")
    assert apply(node, "boot_script", **GIVEN) == ["something, now"]


def test_a_script_that_the_caller_runs_is_only_installed(node, apply, look):
    assert "something, now" not in apply(node, "boot_script", **GIVEN, at_boot_only=True)
    assert node.units["gpuops-x.service"]["UnitFileState"] == "enabled"
    assert look(node, "boot_script", **GIVEN, at_boot_only=True).value == "/usr/local/lib/gpuops/x.sh"


@pytest.mark.parametrize("wrong", [{"name": "../x"}, {"about": "a\nb"}, {"after": ["a%n"]}])
def test_wrong_parameters_are_refused(node, look, wrong):
    with pytest.raises(DocumentError, match="boot_script"):
        look(node, "boot_script", **{**GIVEN, **wrong})

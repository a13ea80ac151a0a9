"""GPUs on the bus that nvidia-smi does not list: the driver says why, and one cause is one finding."""

import pytest
from tests.unit.checks.lab_node import CHECKS, facts_of, findings_of
from tests.unit.checks.test_mutants import add, told, within_gpu

from gpuops.judging import judge_node
from gpuops.probes.host.kernel_log import parse_kernel_log
from gpuops.probes.host.session import Session
from gpuops.probes.nvidia.init_failures import InitFailure
from gpuops.probing import Unknown
from gpuops.profile import load

OPEN = "(PCI ID: 10de:2901) installed in this system requires use of the NVIDIA open kernel modules."
REGION = "This PCI I/O region assigned to your NVIDIA device is invalid: BAR1 is 0M @ 0x0"


def none_listed(machine):
    return machine.without_smi("no-devices", "No devices were found").but(pci_devices=())


def of_all(machine, text, reason):
    said = tuple(InitFailure(gpu.address, text, reason) for gpu in machine.values["gpus"])
    later = tuple(InitFailure(failure.address, "failed with error -1") for failure in said)
    return none_listed(machine).but(init_failures=(*said, *later))


def log_of(machine, text="RmInitAdapter failed! (0x22:0x56:884)"):
    lines = (f"[ 9.1] NVRM: GPU {gpu.address}: {text}\n" for gpu in machine.values["gpus"])
    return machine.but(kernel_log=parse_kernel_log("[    0.000000] Linux version 6.8.0\n" + "".join(lines)))


@pytest.mark.parametrize(
    ("text", "reason", "remedy"),
    [(OPEN, "open-modules", "open kernel modules"), (REGION, "no-bar", "Above 4G Decoding"), ("what", "other", "NVRM")],
)
def test_no_gpu_works_and_the_log_says_why(h100, text, reason, remedy):
    (finding,) = of_all(h100, text, reason).judge("gpu-count").findings
    assert (finding.part, finding.severity, finding.expected, finding.found) == ("node", "isolate", 8, 0)
    assert text in finding.message or reason == "other"
    assert remedy in finding.fix


@pytest.mark.parametrize("declared", [True, False])
def test_modules_that_the_gpus_do_not_work_with_are_one_finding(declared):
    facts, profile = facts_of("hgx-b200", "host:proprietary-modules"), load("hgx-b200")
    if not declared:
        profile = profile.expecting({}, "x")
    found = [(v.check, f) for v in judge_node(CHECKS, facts, profile) for f in v.findings if f.severity != "info"]
    ((check, finding),) = found
    assert (check, finding.part) == ("gpu-count", "node")
    assert "requires use of the NVIDIA open kernel modules" in finding.message
    assert finding.fix.startswith("install the driver's open kernel modules")
    assert [effect.partition(":")[0] for effect in finding.effects] == ["xid"]


def test_without_a_reason_the_driver_has_to_manage_them(h100):
    machine = none_listed(h100)
    assert [f.part for f in machine.judge("gpu-count").findings] == ["node"]
    unmanaged = machine.but(driver=Unknown("not loaded"), pcie={})
    assert unmanaged.judge("gpu-count").status == "unknown"
    assert machine.but(session=Session("a container")).judge("gpu-count").status == "unknown"
    assert machine.but(session=Unknown("dark")).judge("gpu-count").status == "unknown"
    assert machine.but(pci_devices=Unknown("dark")).judge("gpu-count").status == "unknown"


def test_failures_alike_of_all_gpus_are_one_finding_of_the_log(h100):
    dark = Unknown("No devices were found")
    (finding,) = log_of(h100).but(gpus=dark).judge("xid").findings
    assert (finding.part, finding.code, finding.severity) == ("node", "init-failed", "reboot")
    assert finding.message.startswith("the driver could not initialize gpu0, gpu1, gpu2, gpu3, gpu4, gpu5, gpu6, gpu7:")
    some = h100.seeing(*h100.values["gpus"][2:])
    told = [(f.part, f.severity) for f in log_of(h100).but(gpus=some.values["gpus"]).judge("xid").findings]
    assert [part for part, severity in told if severity == "reboot"] == ["gpu0", "gpu1"]
    assert [part for part, severity in told if severity == "info"] == [f"gpu{n}" for n in range(2, 8)]  # they answer


@pytest.mark.parametrize(
    ("fault", "words", "remedy", "severity"),
    [
        ("no-bar", "BAR1 is 0M @ 0x0", "Above 4G Decoding", "isolate"),
        ("power-cable", "necessary power cables", "connect every power cable", "isolate"),
        ("excluded", "NVreg_ExcludedGpus", "remove it from NVreg_ExcludedGpus", "fail"),
    ],
)
def test_one_gpu_of_several_with_its_reason(fault, words, remedy, severity):
    told_of, verdicts = findings_of("hgx-h100", f"gpu4:{fault}")
    assert told_of == [("gpu-count", "gpu4", severity)]
    (finding,) = verdicts["gpu-count"].findings
    assert words in finding.message
    assert remedy in finding.fix


@pytest.mark.parametrize("logged", [True, False])
@pytest.mark.parametrize("code", [0, 15])
def test_a_gpu_that_is_lost_inside_the_list_is_named_whatever_the_exit_code(h100, logged, code):
    xid = "[ 9000.1] NVRM: Xid (PCI:0000:52:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
    values = within_gpu(2, r">\d[^<]*(C|W|MHz|MiB|%|KB/s)<", ">GPU is lost<", times=0)
    found, _ = told("hgx-h100", code=code, smi=values, **({"dmesg": add(xid)} if logged else {}))
    assert found == [("gpu-lost", "gpu2", "isolate")]

"""Healthy lab hosts whose answers were changed as real nodes show it: each fault is named, no healthy oddity blamed."""

import re
from dataclasses import replace

import pytest
from tests.unit.checks.lab_node import CHECKS, NOW, PROBES, answers_of

from gpuops.assessment import profile_of
from gpuops.document import Where
from gpuops.facts import read
from gpuops.inventory import Host
from gpuops.judging import judge_node
from gpuops.profile import known, load

PROFILES = known()
SMI, LSPCI, DMESG = "nvidia-smi -q -x", "lspci -Dnn", "dmesg"
DEVICES, SYSFS, PROC = "/proc/bus/pci/devices", "drivers/nvidia/*/current_link", "driver/nvidia/gpus"


def mutated(machine, *, code=None, **changes):
    """Answers of a healthy host, changed by the function for their kind of question; ``code`` is nvidia-smi's."""
    answers = [
        replace(answer, out=change(answer.out)) if (change := changes.get(kind_of(answer))) else answer
        for answer in answers_of(machine)
    ]
    return [replace(a, exit=code) if code is not None and kind_of(a) == "smi" else a for a in answers]


def kind_of(answer):
    text = str(answer.question)
    kinds = {"smi": SMI, "lspci": LSPCI, "dmesg": DMESG, "devices": DEVICES, "sysfs": SYSFS, "proc": PROC}
    return next((kind for kind, part in kinds.items() if part in text), "")


def told(machine, *, declared=True, profile="", code=None, **changes):
    """(check, part, severity) of each finding above info, and the checks that are unknown."""
    facts = read("gpu01", NOW, mutated(machine, code=code, **changes), PROBES)
    host = Host("gpu01", "gpu01", Where("inventory.yml", 1, 1))
    own = load(profile or machine) if declared else profile_of(host, facts, PROFILES)
    verdicts = judge_node(CHECKS, facts, own)
    found = [(v.check, str(f.part), f.severity) for v in verdicts for f in v.findings if f.severity != "info"]
    return found, {v.check for v in verdicts if v.status == "unknown"} - {"clock", "power-supply"}


def within_gpu(number, old, new, times=1):
    """A change of the answer of one GPU in nvidia-smi's XML."""

    def change(out):
        head, *gpus = re.split(r"(?=<gpu id=)", out)
        assert re.search(old, gpus[number]), old
        gpus[number] = re.sub(old, new, gpus[number], count=times)
        return head + "".join(gpus)

    return change


def add(text):
    return lambda out: f"{out[:-1]}{text}\0" if out.endswith("\0") else out + text


def without(pattern):
    def change(out):
        assert re.search(pattern, out), pattern
        return re.sub(pattern, "", out)

    return change


DISKS = {
    "critical medium error, dev nvme1n1, sector 123456 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2": "nvme1",
    "blk_update_request: critical medium error, dev nvme1n1, sector 123456 op 0x0:(READ) flags 0x80700": "nvme1",
    "critical target error, dev nvme1n1, sector 8388608 op 0x3:(DISCARD) flags 0x800 phys_seg 1": "nvme1",
    "nvme1n1: Read(0x2) @ LBA 123456, 8 blocks, Unrecovered Read Error (sct 0x2 / sc 0x81) DNR": "nvme1",
    "sd 0:0:0:0: [sda] tag#12 Sense Key : Medium Error [current]": "sda",
    "nvme3n1: I/O Cmd(0x2) @ LBA 123456, 8 blocks, I/O Error (sct 0x2 / sc 0x81) DNR": "nvme3",
}


@pytest.mark.parametrize("line", DISKS)
def test_errors_of_a_medium_in_the_kernels_words(line):
    assert told("hgx-h100", dmesg=add(f"[ 9000.123456] {line}\n"))[0] == [("disk-errors", DISKS[line], "warn")]


GONE = {
    "smi": within_gpu(2, r"(?s)^<gpu id=.*</gpu>", ""),
    "lspci": without(r"0000:52:00\.0 .*\n"),
    "devices": without(r"5200\t10de2330.*\n"),
    "proc": without(r"(?s)/proc/driver/nvidia/gpus/0000:52:00\.0/information\0[^\0]*\0"),
    "sysfs": without(r"(?s)/sys/bus/pci/drivers/nvidia/0000:52:00\.0/[^\0]*\0[^\0]*\0"),
}


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("source", GONE)
def test_one_source_that_lacks_a_gpu_is_never_a_pass(source, declared):
    found, unknown = told("hgx-h100", declared=declared, **{source: GONE[source]})
    assert ("gpu-count" in unknown) or ("gpu-count", "gpu2", "isolate") in found


@pytest.mark.parametrize("declared", [True, False])
def test_a_gpu_that_only_the_kernel_still_lists_is_not_forgotten(declared):
    changes = {kind: change for kind, change in GONE.items() if kind != "devices"}
    found, unknown = told("hgx-h100", declared=declared, **{**changes, "lspci": lambda _: ""})
    assert "gpu-count" in unknown | {check for check, _, _ in found}


K420 = "0000:03:00.0 VGA compatible controller [0300]: NVIDIA Corporation GK107GL [Quadro K420] [10de:0ff3] (rev a1)\n"


@pytest.mark.parametrize("declared", [True, False])
def test_a_card_for_the_screen_that_nouveau_serves_is_not_missing(declared):
    found, _ = told("hgx-h100", declared=declared, lspci=add(K420), devices=add("0300\t10de0ff3\t0\tnouveau\n"))
    assert found == []


def test_a_gpu_that_a_virtual_machine_has_is_not_broken():
    keep = {kind: change for kind, change in GONE.items() if kind not in {"lspci", "devices"}}
    served = {"devices": lambda out: out.replace("5200\t10de2330\t0\tnvidia\n", "5200\t10de2330\t0\tvfio-pci\n")}
    found, _ = told("hgx-h100", declared=False, **keep, **served)
    assert [each for each in found if each[0] == "gpu-count"] == []


@pytest.mark.parametrize(
    ("machine", "old", "new", "finding"),
    [
        ("hgx-h100", r"<total>\d+ MiB</total>", "<total>40960 MiB</total>", ("gpu-model", "gpu2", "fail")),
        ("hgx-h100", r"NVIDIA H100 80GB HBM3", "NVIDIA H200", ("gpu-model", "gpu2", "warn")),
        ("hgx-h100", r"histogram_none>0 bank", "histogram_none>3 bank", ("row-remap-failed", "gpu2", "warn")),
        ("hgx-h100", r"<pending_mig>Disabled", "<pending_mig>Enabled", ("compute-mode", "gpu2", "warn")),
        (
            "dgx1-v100",
            r"(?s)(<double_bit_retirement>\s*<retired_count>)0",
            r"\g<1>64",
            ("memory-unrepairable", "gpu2", "rma"),
        ),
        (
            "dgx1-v100",
            r"(?s)(<double_bit_retirement>\s*<retired_count>)0",
            r"\g<1>22",
            ("memory-unrepairable", "gpu2", "warn"),
        ),
        ("dgx1-v100", r"(?s)(<double_bit_retirement>\s*<retired_count>)0", r"\g<1>3", None),
    ],
    ids=["half of the memory", "another model", "banks", "mig pending", "64 pages", "22 pages", "3 pages"],
)
@pytest.mark.parametrize("declared", [True, False])
def test_what_one_gpu_answers_otherwise(machine, old, new, finding, declared):
    assert told(machine, declared=declared, smi=within_gpu(2, old, new))[0] == ([finding] if finding else [])


def test_the_inventorys_profile_is_for_another_machine():
    assert ("gpu-model", "node", "fail") in told("hgx-h100", profile="hgx-h200")[0]


def test_sensors_that_read_errors_are_required():
    change = within_gpu(2, r"<gpu_temp>[^<]*", "<gpu_temp>ERR!")
    for declared in (True, False):
        assert "smi-errors" in told("hgx-h100", declared=declared, smi=change)[1]
    assert "smi-errors" in load("hgx-h100").required & load("hgx-b200").required & load("l40s").required


def test_rails_of_one_other_rate_are_one_warning():
    facts = [
        replace(a, out=a.out.replace("400 Gb/sec (4X NDR)", "200 Gb/sec (4X HDR)")) for a in answers_of("hgx-h100")
    ]
    verdicts = {v.check: v for v in judge_node(CHECKS, read("gpu01", NOW, facts, PROBES), load("hgx-h100"))}
    (finding,) = verdicts["ib-ports"].findings
    assert (finding.part, finding.severity) == ("rails", "warn")
    assert "expect: {nic.rate_gbps: 200}" in finding.fix


@pytest.mark.parametrize(
    ("old", "new", "severity"),
    [
        (r"<clusterUuid>[^<]*", "<clusterUuid>00000009-0000-0000-0000-000000000009", "fail"),
        (r"<cliqueId>[^<]*", "<cliqueId>7", "warn"),
    ],
)
def test_a_gpu_of_a_tray_that_joined_another_domain(old, new, severity):
    assert told("gb200-nvl72", smi=within_gpu(2, old, new))[0] == [("fabric-manager", "gpu2", severity)]


NOT_IN_FABRIC = re.compile(r"(?s)(<fabric>\s*)<state>[^<]*</state>(\s*)<status>[^<]*</status>")
ZEROS = "00000000-0000-0000-0000-000000000000"


def out_of_fabric(*numbers, state="Not Supported", clique="0", uuid=""):
    """Take GPUs out of the NVLink fabric; without ``uuid`` they keep that of the domain."""

    def change(out):
        head, *gpus = re.split(r"(?=<gpu id=)", out)
        for number in numbers:
            told = NOT_IN_FABRIC.sub(rf"\1<state>{state}</state>\2<status>N/A</status>", gpus[number])
            told = re.sub(r"<cliqueId>[^<]*", f"<cliqueId>{clique}", told)
            assert told != gpus[number]
            gpus[number] = re.sub(r"<clusterUuid>[^<]*", f"<clusterUuid>{uuid}", told) if uuid else told
        return head + "".join(gpus)

    return change


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize(
    ("machine", "change", "parts"),
    [
        ("gb200-nvl72", out_of_fabric(3), ["gpu3"]),
        ("gb200-nvl72", out_of_fabric(0, 1, 2, 3, uuid=ZEROS), ["node"]),
        ("hgx-h200", out_of_fabric(4, state="N/A", clique="N/A", uuid="N/A"), ["gpu4"]),
    ],
    ids=["one of a tray", "a whole tray", "one of eight"],
)
def test_a_gpu_without_a_state_in_the_fabric_is_at_fault(machine, change, parts, declared):
    found, _ = told(machine, declared=declared, smi=change)
    assert found == [("fabric-manager", part, "fail") for part in parts]


@pytest.mark.parametrize(
    ("machine", "change"),
    [
        ("gb200-nvl72", out_of_fabric(0, 1, 2, 3, state="N/A", clique="N/A", uuid="N/A")),
        ("hgx-h200", out_of_fabric(0, 1, 2, 3, state="N/A", clique="N/A", uuid="N/A")),
    ],
    ids=["no clique either", "half of the node"],
)
def test_a_state_in_the_fabric_that_nothing_contradicts_is_unknown(machine, change):
    found, unknown = told(machine, smi=change)
    assert not found
    assert "fabric-manager" in unknown


def test_a_gpu_that_mig_divides_needs_no_state_in_the_fabric():
    change = out_of_fabric(4, state="N/A", clique="N/A", uuid="N/A")
    mig = within_gpu(4, r"<current_mig>Disabled", "<current_mig>Enabled")
    assert not [each for each in told("hgx-h200", smi=lambda out: mig(change(out)))[0] if each[0] == "fabric-manager"]


def test_healthy_machines_without_a_domain_beyond_the_node_have_clique_0():
    assert told("hgx-h100", smi=out_of_fabric(*range(8), uuid=ZEROS))[0] == []


def test_a_node_without_a_fabric_needs_no_state_beside_mig():
    mig = within_gpu(4, r"<current_mig>Disabled", "<current_mig>Enabled")
    found, unknown = told("dgx-a100", smi=mig)
    assert "fabric-manager" not in {check for check, _, _ in found} | unknown


LOST = {
    "old": "Unable to determine the device handle for GPU{0}: Unknown Error\n",
    "wide domain": "Unable to determine the device handle for GPU 0000{0}: Unknown Error\n",
    "with number": "Unable to determine the device handle for GPU{1}: {0}: GPU is lost.  Reboot to recover this GPU\n",
}
PCILIB = "pcilib: sysfs_read_vpd: read failed: No such device\n"


@pytest.mark.parametrize("lspci", ["good", "exit 1", "missing"])
@pytest.mark.parametrize("words", LOST.values(), ids=list(LOST))
@pytest.mark.parametrize(
    ("machine", "number", "address"),
    [("hgx-h100", 5, "0000:c3:00.0"), ("dgx-a100", 6, "0000:b7:00.0"), ("gb200-nvl72", 2, "0018:01:00.0")],
)
@pytest.mark.parametrize("declared", [True, False])
def test_a_lost_gpu_is_one_finding_on_itself(machine, number, address, words, lspci, declared):
    error = words.format(address.upper(), number)
    log = (
        f"[ 9000.1] NVRM: Xid (PCI:{address[:-2]}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
    )
    off = re.compile(rf"(?m)^({address} .*)\(rev a1\)")
    answers = mutated(
        machine, code=255, smi=lambda _: error, dmesg=add(log), lspci=lambda out: off.sub(r"\1(rev ff)", out)
    )
    failed = {"good": {}, "exit 1": {"exit": 1, "err": PCILIB}, "missing": {"exit": 127, "out": ""}}[lspci]
    answers = [replace(a, **failed) if kind_of(a) == "lspci" else a for a in answers]
    (finding,) = graver_than_info(machine, answers, declared=declared)
    assert (finding.check, str(finding.part), finding.severity) == ("gpu-lost", f"gpu{number}", "isolate")
    assert ("rev ff" in finding.message) is (lspci != "missing")
    assert any("Xid 79" in str(effect) for effect in finding.effects)


def graver_than_info(machine, answers, *, declared=True):
    facts = read("gpu01", NOW, answers, PROBES)
    host = Host("gpu01", "gpu01", Where("inventory.yml", 1, 1))
    own = load(machine) if declared else profile_of(host, facts, PROFILES)
    return [f for v in judge_node(CHECKS, facts, own) for f in v.findings if f.severity != "info"]


def test_a_lost_gpu_that_nothing_numbers_is_named_by_its_address():
    unreadable = {"lspci": {"exit": 127, "out": ""}, "proc": {"out": ""}, "smi": {"exit": 255}}
    answers = mutated("hgx-h100", smi=lambda _: LOST["old"].format("0000:C3:00.0"))
    answers = [replace(a, **unreadable.get(kind_of(a), {})) for a in answers]
    parts = {str(f.part) for f in graver_than_info("hgx-h100", answers) if f.check == "gpu-lost"}
    assert parts == {"0000:c3:00.0"}


def test_rows_that_a_failing_lspci_lacks_prove_nothing():
    answers = mutated("hgx-h100", lspci=without(r"0000:c3:00\.0 .*\n"))
    answers = [replace(a, exit=2) if kind_of(a) == "lspci" else a for a in answers]
    assert graver_than_info("hgx-h100", answers) == []

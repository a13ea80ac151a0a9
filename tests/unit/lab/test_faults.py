import re
import xml.etree.ElementTree as ET

import pytest

from gpuops.errors import InputError
from gpuops.lab import tree
from gpuops.lab.faults.catalogue import FAULTS, faulted, split
from gpuops.lab.machine import healthy, names
from gpuops.lab.tools.programs import run

VALUES = {
    "NUMBER": "3",
    "VERSION": "570.172.08",
    "WATTS": "500",
    "LANES": "8",
    "GBPS": "200",
    "GPUS": "2",
    "SECONDS": "5",
    "COUNT": "2",
    "CODE": "37",
    "NAME": "kworker/u449:2",
    "KIND": "corrected",
    "LINK": "3",
    "PASSWORD": "secret",
    "PERCENT": "20",
    "PACKAGE": "libnccl2",
    "STATE": "fails",
    "ACTION": "reboot",
    "WORD": "nokaslr",
    "PRODUCT": "NVIDIA A40",
    "PHYSICAL": "Polling",
    "CLASS": "106",
    "SERIAL": "1650000000001",
    "GTS": "8.0",
    "MODE": "Exclusive_Process",
    "CLIQUE": "3",
    "MHZ": "1005",
    "MIB": "4096",
    "SEVERITY": "corrected",
    "LID": "9",
}

OF_WORKSTATIONS = {"pigtail", "psu"}


def spelled(fault, *, always=True):
    subject = {"gpu": "gpu1" if fault.name in OF_WORKSTATIONS else "gpu2", "nic": "mlx5_3", "host": "host"}[
        fault.subject
    ]
    value = f"={VALUES[fault.takes]}" if fault.takes and (always or not fault.default) else ""
    return f"{subject}:{fault.name}{value}"


def out(node, command, *, root=True):
    program, *words = command.split()
    return run(node, program, words, root=root)


def gpu_element(node, index):
    return ET.fromstring(out(node, "nvidia-smi -q -x").out).findall("gpu")[index]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f"{f.subject}-{f.name}")
def test_every_fault_changes_the_node_and_nothing_of_a_healthy_one(fault):
    machine = "titan-rtx-2x" if fault.name in OF_WORKSTATIONS else "hgx-h100"
    machine = "gb200-nvl72" if fault.name.startswith(("imex-", "c2c-")) else machine
    before = healthy(machine)
    assert faulted(machine, (spelled(fault),)) != before
    assert faulted(machine, (spelled(fault, always=False),)) != before
    assert healthy(machine) == before


@pytest.mark.parametrize("machine", names())
def test_a_healthy_node_logs_its_boot_and_no_fault(machine):
    log = out(healthy(machine), "dmesg").out
    assert "Linux version" in log.splitlines()[0]
    assert "Xid" not in log


@pytest.mark.parametrize("form", ["", "-L", "-q", "-q -x", "topo -m", "nvlink -s", "--query-gpu=index --format=csv"])
def test_lost_every_form_of_nvidia_smi_fails_alike(form):
    answer = out(faulted("hgx-h100", ("gpu2:lost",)), f"nvidia-smi {form}")
    assert answer.code == 15
    assert answer.out.startswith("Unable to determine the device handle for GPU2: 0000:52:00.0")


def test_lost_shows_in_lspci_the_log_and_sys_while_the_driver_still_lists_it():
    node = faulted("hgx-h100", ("gpu2:lost",))
    revisions = dict(re.findall(r"^(\S+) 3D.*\(rev (\w\w)\)", out(node, "lspci -Dnn -d 10de:").out, re.MULTILINE))
    assert [at for at, revision in revisions.items() if revision == "ff"] == ["0000:52:00.0"]
    assert len(revisions) == 8
    assert "Xid (PCI:0000:52:00): 79" in out(node, "dmesg").out
    files = tree.files(node)
    assert "/proc/driver/nvidia/gpus/0000:52:00.0/information" in files
    assert files[f"/sys/devices/{node.gpus[2].path}/current_link_speed"] == "Unknown\n"


@pytest.mark.parametrize(
    ("fault", "number"),
    [
        ("xid=13", 13),
        ("xid=62", 62),
        ("xid=999", 999),
        ("remap-pending", 63),
        ("remap-failed", 64),
        ("ecc-uncorrectable", 48),
        ("nvlink-down", 74),
    ],
)
def test_each_fault_logs_its_xid_once_with_the_gpus_address(fault, number):
    log = out(faulted("hgx-h100", (f"gpu2:{fault}",)), "dmesg").out
    assert re.findall(r"Xid \(PCI:(\S+)\): (\d+)", log) == [("0000:52:00", str(number))]


def test_remapping():
    pending = gpu_element(faulted("hgx-h100", ("gpu2:remap-pending",)), 2).find("remapped_rows")
    assert (pending.findtext("remapped_row_pending"), pending.findtext("remapped_row_failure")) == ("Yes", "No")
    failed = gpu_element(faulted("hgx-h100", ("gpu2:remap-failed",)), 2).find("remapped_rows")
    assert (failed.findtext("remapped_row_pending"), failed.findtext("remapped_row_failure")) == ("No", "Yes")
    assert failed.findtext("row_remapper_histogram/row_remapper_histogram_none") == "1 bank(s)"
    banks = [int(e.text.split()[0]) for e in failed.find("row_remapper_histogram")]
    assert sum(banks) == 2560


def test_ecc_errors_are_counted_in_xml_csv_and_table():
    node = faulted("hgx-h100", ("gpu2:ecc-uncorrectable=3",))
    errors = gpu_element(node, 2).find("ecc_errors")
    assert errors.findtext("volatile/dram_uncorrectable") == errors.findtext("aggregate/dram_uncorrectable") == "3"
    csv = out(node, "nvidia-smi --query-gpu=ecc.errors.uncorrected.volatile.total --format=csv,noheader").out
    assert csv.split() == ["0", "0", "3", "0", "0", "0", "0", "0"]


def test_nvlink_down_shows_in_status_and_matrix():
    node = faulted("hgx-h100", ("gpu2:nvlink-down=7",))
    status = out(node, "nvidia-smi nvlink -s").out
    assert status.count("<inactive>") == 1
    assert "\t Link 7: <inactive>" in status.partition("GPU 2:")[2].partition("GPU 3:")[0]
    assert out(node, "nvidia-smi topo -m").out.count("NV17") == 14


def test_thermal():
    gpu = gpu_element(faulted("hgx-h100", ("gpu2:thermal",)), 2)
    margin, slowdown = (
        int(gpu.findtext(f"temperature/{name}").split()[0])
        for name in ("gpu_temp_tlimit", "gpu_temp_slow_tlimit_threshold")
    )
    assert margin < slowdown
    reasons = gpu.find("clocks_event_reasons")
    active = {e.tag.removeprefix("clocks_event_reason_") for e in reasons if e.text == "Active"}
    assert active == {"hw_slowdown", "hw_thermal_slowdown"}
    assert int(gpu.findtext("clocks/sm_clock").split()[0]) < int(gpu.findtext("max_clocks/sm_clock").split()[0])


def test_power_cap():
    readings = gpu_element(faulted("hgx-h100", ("gpu2:power-cap=500",)), 2).find("gpu_power_readings")
    assert readings.findtext("current_power_limit") == "500.00 W"
    assert readings.findtext("default_power_limit") == "700.00 W"


def test_pcie_width_is_the_same_in_nvidia_smi_lspci_and_sys():
    node = faulted("hgx-h100", ("gpu2:pcie-width=8",))
    assert gpu_element(node, 2).findtext("pci/pci_gpu_link_info/link_widths/current_link_width") == "8x"
    assert "Width x8 (downgraded)" in out(node, "lspci -vv -s 0000:52:00.0").out
    assert tree.files(node)[f"/sys/devices/{node.gpus[2].path}/current_link_width"] == "8\n"


def test_driver_skew_moves_module_library_package_and_fabric_manager():
    node = faulted("hgx-h100", ("host:driver-skew=570.172.08",))
    assert "<driver_version>570.172.08<" in out(node, "nvidia-smi -q -x").out
    assert "version:        570.172.08" in out(node, "modinfo nvidia").out
    assert out(node, "nv-fabricmanager --version").out.split()[-1] == "570.172.08"
    assert tree.files(node)["/sys/module/nvidia/version"] == "570.172.08\n"
    assert "nvidia-driver-570-server" in out(node, "dpkg-query -W").out


def test_version_mismatch_is_between_the_loaded_module_and_the_rest():
    node = faulted("hgx-h100", ("host:version-mismatch",))
    answer = out(node, "nvidia-smi -q -x")
    assert (answer.code, answer.out.splitlines()[0]) == (
        18,
        "Failed to initialize NVML: Driver/library version mismatch",
    )
    loaded = tree.files(node)["/sys/module/nvidia/version"].strip()
    assert loaded == "580.105.08"
    assert loaded not in out(node, "modinfo nvidia").out


def test_fabric_manager_down():
    node = faulted("hgx-h100", ("host:fabricmanager-down",))
    assert out(node, "systemctl is-active nvidia-fabricmanager").out == "failed\n"
    assert gpu_element(node, 0).findtext("fabric/state") == "In Progress"


def test_port_down_and_rate_are_the_same_in_ibstat_and_sys():
    node = faulted("hgx-h100", ("mlx5_3:port-down", "mlx5_4:rate=200"))
    files = tree.files(node)
    assert "State: Down" in out(node, "ibstat mlx5_3").out
    assert "Rate: 200" in out(node, "ibstat mlx5_4").out
    port = {
        name: f"/sys/devices/{node.nics[i].at}/infiniband/{name}/ports/1" for i, name in ((3, "mlx5_3"), (4, "mlx5_4"))
    }
    assert files[f"{port['mlx5_3']}/state"] == "1: DOWN\n"
    assert files[f"{port['mlx5_4']}/rate"] == "200 Gb/sec (4X HDR)\n"


def test_cgroup_hides_gpus_from_nvidia_smi_only():
    node = faulted("hgx-h100", ("host:cgroup=2",))
    assert len(out(node, "nvidia-smi -L").out.splitlines()) == 2
    assert len(ET.fromstring(out(node, "nvidia-smi -q -x").out).findall("gpu")) == 2
    assert out(node, "lspci -d 10de:2330").out.count("3D controller") == 8
    assert sum(path.startswith("/proc/driver/nvidia/gpus/") for path in tree.files(node)) == 8


def test_a_lost_gpu_that_the_session_may_not_open_does_not_disturb_it():
    assert out(faulted("hgx-h100", ("gpu5:lost", "host:cgroup=2")), "nvidia-smi -L").code == 0


def test_busy_shows_a_process_its_memory_and_load():
    node = faulted("hgx-h100", ("host:busy",))
    apps = out(node, "nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader,nounits").out
    used = out(node, "nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits").out
    assert [row.split(", ")[1] for row in apps.splitlines()] == used.split()
    assert all(int(mib) > 1000 for mib in used.split())


def test_disk_full():
    root = next(
        r for r in out(faulted("hgx-h100", ("host:disk-full",)), "df -l -P -k").out.splitlines() if r.endswith(" /")
    )
    assert root.split()[3:5] == ["0", "100%"]


def test_clock_skew_shows_in_chronyc_and_timedatectl():
    node = faulted("hgx-h100", ("host:clock-skew=-37.5",))
    assert "37.500000000 seconds slow of NTP time" in out(node, "chronyc -n tracking").out
    assert out(node, "timedatectl show -p NTPSynchronized").out == "NTPSynchronized=no\n"


def test_faults_add_up():
    node = faulted("hgx-h100", ("gpu1:pcie-width=8", "gpu1:power-cap=400", "mlx5_0:port-down"))
    assert (node.gpus[1].width, node.gpus[1].limit_watts, node.nics[0].up) == (8, 400.0, False)


@pytest.mark.parametrize(
    ("machine", "fault", "sentence"),
    [
        ("hgx-h100", "gpu9:lost", 'hgx-h100 has no "gpu9"; did you mean "gpu'),
        ("hgx-h100", "gpu2:lots", 'no gpu fault named "lots"; did you mean "lost"?'),
        ("hgx-h100", "host:hung", 'did you mean "hang"?'),
        ("hgx-h100", "mlx5_1:lost", "no nic fault named"),
        ("hgx-h100", "gpu2:lost=3", "gpu2:lost takes no value"),
        ("hgx-h100", "gpu2:power-cap", "gpu2:power-cap=WATTS"),
        ("hgx-h100", "gpu2:power-cap=9000", "200 to 700 W"),
        ("hgx-h100", "gpu2:pcie-width=5", "1, 2, 4, 8 or 16 lanes"),
        ("hgx-h100", "gpu2:xid=many", '"many" is not a valid Xid number'),
        ("hgx-h100", "gpu2:nvlink-down=18", "its links are 0 to 17"),
        ("hgx-h100", "host:cgroup=9", "has 8 GPUs"),
        ("hgx-h100", "host:driver-skew=new", "is not a driver version"),
        ("hgx-h100", "host:clock-skew=nan", "is not a valid number of seconds"),
        ("titan-rtx-2x", "gpu0:ecc-uncorrectable", "NVIDIA TITAN RTX has no ECC"),
        ("titan-rtx-2x", "gpu0:remap-pending", "has no row remapper"),
        ("titan-rtx-2x", "host:fabricmanager-down", "has no fabric manager"),
        ("hgx-h1000", "gpu0:lost", 'no machine named "hgx-h1000"; did you mean "hgx-h100"?'),
    ],
)
def test_what_cannot_be_is_one_sentence(machine, fault, sentence):
    with pytest.raises(InputError) as error:
        faulted(machine, (fault,))
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_split_names_the_nearest_host():
    assert split("gpu03:gpu2:lost", ["gpu03"]) == ("gpu03", "gpu2:lost")
    with pytest.raises(InputError, match='no host "gup03"; did you mean "gpu03"'):
        split("gup03:gpu2:lost", ["gpu03"])
    with pytest.raises(InputError, match="is not a fault; write HOST:SUBJECT:FAULT"):
        split("gpu03:lost", ["gpu03"])

"""Lines as kernels 5.15 and 6.8 print them (drivers/pci/pcie/aer.c); real ones are in public issue threads."""

import pytest
from tests.unit.checks.lab_node import findings_of

from gpuops.probes.host.kernel_log import parse_kernel_log
from gpuops.probes.network.ib import IbPort
from gpuops.probing import Unknown

LINE = "{0}: PCIe Bus Error: severity={1}, type=Transaction Layer, (Receiver ID)"
FATAL, NONFATAL, CORRECTED = "Uncorrected (Fatal)", "Uncorrected (Non-Fatal)", "Corrected"


def logged(machine, *lines, every=1.0):
    text = "".join(f"[{n * every:12.6f}] {line}\n" for n, line in enumerate(("Linux version 6.8.0", *lines)))
    return machine.but(kernel_log=parse_kernel_log(text))


def told(machine):
    return [(str(f.part), f.severity, f.code) for f in machine.judge("pcie-errors").findings]


@pytest.mark.parametrize(("word", "severity", "code"), [(FATAL, "fail", "fatal"), (NONFATAL, "warn", "nonfatal")])
@pytest.mark.parametrize("device", ["nvidia 0000:52:00.0", "pcieport 0000:52:01.0: AER"])
def test_an_error_is_the_gpus_at_that_address_or_below_it(h100, device, word, severity, code):
    assert told(logged(h100, LINE.format(device, word))) == [("gpu2", severity, code)]


def test_an_error_of_a_nic_is_the_nics(h100):
    ports = (IbPort("mlx5_3", 1, "Active", "LinkUp", 400.0, "InfiniBand", pci_address="0000:3a:00.0"),)
    machine = h100.but(ib_ports=ports)
    for device in ("mlx5_core 0000:3a:00.0", "pcieport 0000:3b:01.0"):
        assert told(logged(machine, LINE.format(device, FATAL))) == [("mlx5_3", "fail", "fatal")]


def test_a_port_above_several_parts_is_named_with_them(h100):
    paths = {gpu.address: ("0000:10:01.0", "0000:11:00.0") for gpu in h100.values["gpus"][:2]}
    machine = logged(h100.but(pci_paths=paths), LINE.format("pcieport 0000:10:01.0", FATAL))
    (finding,) = machine.judge("pcie-errors").findings
    assert (finding.part, finding.severity) == ("0000:10:01.0", "fail")
    assert finding.part_label == "PCIe port 0000:10:01.0 above gpu0, gpu1"


def test_an_error_of_another_device_warns(h100):
    assert told(logged(h100, LINE.format("pcieport 0000:00:1d.0", FATAL))) == [("0000:00:1d.0", "warn", "fatal")]
    dark = h100.but(pci_paths=Unknown("dark"))
    assert told(logged(dark, LINE.format("pcieport 0000:52:01.0", FATAL))) == [("0000:52:01.0", "warn", "fatal")]


def test_several_errors_of_one_device_are_one_finding(h100):
    lines = [LINE.format("nvidia 0000:52:00.0", word) for word in (NONFATAL, FATAL, NONFATAL)]
    (finding,) = logged(h100, *lines).judge("pcie-errors").findings
    assert finding.code == "fatal"
    assert finding.message.startswith("3 errors of PCIe, fatal, at 0000:52:00.0")


def test_some_corrected_errors_are_ordinary_and_a_flood_warns(h100):
    line = LINE.format("pcieport 0000:52:01.0", CORRECTED)
    assert told(logged(h100, *[line] * 479)) == []
    assert told(logged(h100, *[line] * 480)) == [("gpu2", "warn", "corrected")]
    assert told(logged(h100, *[line] * 480, every=300.0)) == []


def test_an_error_that_the_firmware_kept_from_the_boot_before_only_warns(h100):
    kept = ("event severity: fatal", " Error 0, type: fatal", "  section_type: PCIe error", "  device_id: 0000:52:00.0")
    now = ("Hardware error from APEI Generic Hardware Error Source: 5", *kept)
    past = logged(h100, *(f"[Hardware Error]: {text}" for text in kept))
    assert told(past) == [("gpu2", "warn", "fatal")]
    assert "before this boot" in past.judge("pcie-errors").findings[0].message
    assert told(logged(h100, *(f"{{7}}[Hardware Error]: {text}" for text in now))) == [("gpu2", "fail", "fatal")]
    assert past.findings() == [("pcie-errors", "gpu2")]


def test_a_log_that_lost_its_beginning_is_unknown(h100):
    machine = h100.but(kernel_log=parse_kernel_log("[ 400.0] usb 1-1: new device\n"))
    assert machine.judge("pcie-errors").status == "unknown"


def test_a_gpu_off_the_bus_is_one_finding(h100):
    machine = h100.without_smi("gpu-lost", "GPU is lost", "0000:52:00.0").off_the_bus(2)
    assert logged(machine, LINE.format("pcieport 0000:52:01.0", FATAL)).findings() == [("gpu-lost", "gpu2")]
    gone = "NVRM: Xid (PCI:0000:52:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    assert logged(h100, LINE.format("pcieport 0000:52:01.0", FATAL), gone).findings() == [("xid", "gpu2")]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("gpu2:pcie-errors=fatal", ("gpu2", "fail")),
        ("gpu2:pcie-errors=nonfatal", ("gpu2", "warn")),
        ("gpu2:firmware-pcie-errors=recoverable", ("gpu2", "warn")),
        ("gpu2:firmware-pcie-errors=corrected", ("gpu2", "warn")),
        ("mlx5_3:pcie-errors=fatal", ("mlx5_3", "fail")),
        ("mlx5_3:pcie-errors=corrected", ("mlx5_3", "warn")),
    ],
)
def test_the_labs_faults_are_named_once(fault, told):
    assert findings_of("hgx-h100", fault)[0] == [("pcie-errors", *told)]


DOWN = "pcieport {}: pciehp: Slot(17): Link Down"


def test_a_link_that_went_down_warns_if_it_leads_to_a_gpu_or_nic(h100):
    assert told(logged(h100, *[DOWN.format("0000:52:01.0")] * 2)) == [("gpu2", "warn", "link-down")]
    assert told(logged(h100, DOWN.format("0000:00:1d.0"))) == []  # an NVMe drive was pulled, for example
    assert told(logged(h100, "pcieport 0000:52:01.0: pciehp: Slot(17): Link Up")) == []


def test_the_labs_link_down_is_named_once():
    assert findings_of("hgx-h100", "gpu1:link-down")[0] == [("pcie-errors", "gpu1", "warn")]

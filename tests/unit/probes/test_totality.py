import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.probes.host import (
    clock,
    disks,
    edac,
    iommu,
    kernel_log,
    limits,
    lspci,
    mounts,
    packages,
    pci_paths,
    pcie,
    services,
    system,
)
from gpuops.probes.network import ib, interfaces, nic_log, nic_pcie
from gpuops.probes.nvidia import driver, fabric_manager
from gpuops.probing import Probe, Unknown

MODULES = (
    clock,
    disks,
    driver,
    edac,
    fabric_manager,
    ib,
    interfaces,
    kernel_log,
    limits,
    iommu,
    lspci,
    nic_log,
    nic_pcie,
    mounts,
    packages,
    pci_paths,
    pcie,
    services,
    system,
)
NAMED = {name: value for module in MODULES for name, value in vars(module).items() if isinstance(value, Probe)}
PROBES = list(NAMED.values())
PARSERS = [
    clock.parse_clock,
    disks.parse_df,
    edac.parse_edac,
    mounts.parse_mounts,
    pci_paths.parse_pci_paths,
    driver.parse_driver,
    driver.parse_modinfo,
    fabric_manager.parse_fabric_manager,
    ib.parse_ib_ports,
    ib.parse_ibstat,
    interfaces.parse_interfaces,
    kernel_log.parse_kernel_log,
    limits.parse_limits,
    lspci.parse_lspci,
    lspci.parse_lspci_links,
    iommu.parse_iommu,
    nic_pcie.parse_nic_pcie,
    packages.parse_packages,
    pcie.parse_pcie,
    services.parse_services,
    system.parse_system,
]
SHORT = "\0 \n : = - , ( ) [ ] 0 63 -1 9999999999999999999999 ٣ 0000:1b:00.0 Max unlimited NVRM: Xid SXid PCIe GT/s"
LONG = (
    "/sys/class",
    "/sys/class/infiniband/mlx5_0/ports/1/state",
    "/sys/bus/pci/drivers/nvidia/0000:1b:00.0/current_link_width",
    "/sys/class/net/eth0/operstate",
    "/proc/self/limits",
    "/proc/modules",
    "CA 'mlx5_0'",
    "\tPort 1:",
    "LnkSta: Speed ",
    "-- timedatectl",
    "-- end",
)
WORDS = st.lists(st.sampled_from([*SHORT.split(" "), *LONG]))
TEXTS = st.one_of(st.text(), WORDS.map(" ".join), WORDS.map("\0".join), WORDS.map("".join))


@pytest.mark.parametrize("parse", PARSERS, ids=lambda parse: parse.__name__)
@given(text=TEXTS)
def test_any_text_is_a_value_or_unknown(parse, text):
    assert isinstance(parse(text), Unknown) or parse(text) == parse(text)


@pytest.mark.parametrize("parse", PARSERS, ids=lambda parse: parse.__name__)
@pytest.mark.parametrize("text", ["", "\n", "\0", "Segmentation fault (core dumped)"])
def test_nothing_and_noise_are_unknown(parse, text):
    told = parse(text)
    harmless = isinstance(told, kernel_log.KernelLog) and not told.reaches_boot and not told.events
    assert isinstance(told, Unknown) or harmless


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_silence_a_hang_and_a_missing_program_are_unknown(probe, answer):
    assert isinstance(probe.read(answer(probe)), Unknown)
    assert isinstance(probe.read(answer(probe, timed_out=True, status=137)), Unknown)
    assert isinstance(probe.read(answer(probe, err="sh: not found", status=127)), Unknown)


def test_a_probe_bears_the_name_of_its_variable():
    assert {name: probe.name for name, probe in NAMED.items()} == {name: name for name in NAMED}
    assert len(NAMED) == 22

import pytest

from gpuops.probes.host.pci import parse_pci_vendors
from gpuops.probing import Unknown

ROWS = (
    "0000\t80860d57\t0\t               0\t               0\n"
    "1b00\t10de2330\tff\t     3f042000000\t               0\tnvidia\n"
    "5e00\t15b31021\t0\t     3f042000000\t               0\tmlx5_core\n"
)


@pytest.fixture
def read(files_text):
    return lambda rows: parse_pci_vendors(files_text({"/proc/bus/pci/devices": rows}))


def test_the_vendors_of_all_devices(read):
    assert read(ROWS) == frozenset({"8086", "10de", "15b3"})


@pytest.mark.parametrize("rows", ["", ROWS[:-4], ROWS * 8000])
def test_a_list_that_is_not_whole_is_unknown(read, rows):
    assert isinstance(read(rows), Unknown)


def test_a_machine_that_does_not_show_its_bus_is_unknown():
    assert isinstance(parse_pci_vendors(""), Unknown)

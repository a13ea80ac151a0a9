import pytest

from gpuops.probes.host.pci import PciDevice
from gpuops.probes.network.efa import EfaProvider, efa_provider, is_efa
from gpuops.probing import Unknown
from gpuops.shell import Completed

ROWS = """provider: efa
    fabric: efa
    domain: rdmap47s0-rdm
    version: 122.0
    type: FI_EP_RDM
    protocol: FI_PROTO_EFA
provider: efa
    fabric: efa-direct
    domain: rdmap48s0-rdm
    version: 203.0
    type: FI_EP_RDM
    protocol: FI_PROTO_EFA
provider: efa
    fabric: efa
    domain: rdmap47s0-dgrm
    version: 122.0
    type: FI_EP_DGRAM
    protocol: FI_PROTO_EFA
"""


def read(out, code=0, **more):
    return efa_provider.read(Completed("n1", efa_provider.question, code, out, **more))


def test_an_adapter_counts_once_whatever_endpoints_it_has():
    assert read(ROWS) == EfaProvider(frozenset({"rdmap47s0", "rdmap48s0"}))


def test_no_usable_adapter_is_an_answer():
    assert read("", 61, err="fi_getinfo: -61 (No data available)\n") == EfaProvider()


def test_no_libfabric_is_told_apart():
    assert read("", 127) == EfaProvider(installed=False)


@pytest.mark.parametrize(("out", "code"), [("", 0), ("garbage", 0), ("", 1), (ROWS, 1)])
def test_what_cannot_be_read_is_unknown(out, code):
    assert isinstance(read(out, code), Unknown)


def test_program_that_hangs_is_unknown():
    assert isinstance(read("", -9, timed_out=True), Unknown)


def test_other_devices_of_amazon_are_no_efa():
    assert is_efa(PciDevice("a0:00.0", "1d0f", "efa2", ""))
    assert not is_efa(PciDevice("00:05.0", "1d0f", "ec20", "ena"))
    assert not is_efa(PciDevice("00:06.0", "10de", "efa2", ""))

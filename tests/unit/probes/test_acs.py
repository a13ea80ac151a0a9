import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.probes.host.acs import Acs, acs, parse_acs
from gpuops.probing import Unknown

# the form of pciutils 3.7, as quoted in NVIDIA/nccl issues about ACS
LSPCI = """\
17:00.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0) (prog-if 00 [Normal decode])
\tCapabilities: [148 v1] Access Control Services
\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl+ DirectTrans+
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-

0000:17:01.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0)
\t\tACSCtl:\tSrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-

18:00.0 Infiniband controller: Mellanox Technologies MT2910 Family [ConnectX-7]
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-
00:1c.0 PCI bridge: Intel Corporation Device 1bb8
"""


def test_bridges_and_those_with_acs():
    bridges = {"0000:17:00.0", "0000:17:01.0", "0000:00:1c.0"}
    assert parse_acs(LSPCI) == Acs(frozenset(bridges), frozenset({"0000:17:00.0"}))


@pytest.mark.parametrize("text", ["", LSPCI[:-1], "18:00.0 Infiniband controller: x\n"])
def test_nothing_and_half_of_it_are_unknown(text):
    assert isinstance(parse_acs(text), Unknown)


def test_capabilities_that_only_root_sees(answer):
    denied = parse_acs("17:00.0 PCI bridge: x\n\tCapabilities: <access denied>\n")
    assert isinstance(denied, Unknown)
    assert denied.needs_root
    refused = acs.read(answer(acs, err="needs root: not permitted", status=1))
    assert refused.needs_root
    assert acs.read(answer(acs, status=127)).why == "lspci is not installed"


@given(st.text())
def test_any_text_is_read(text):
    assert isinstance(parse_acs(text), (Acs, Unknown))

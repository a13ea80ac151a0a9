import pytest

from gpuops.probes.host.lspci import PciFunction, PciLinkStatus, gpu_functions, parse_lspci, parse_lspci_links
from gpuops.probing import Unknown

NODE = """\
0000:05:00.0 Bridge [0680]: NVIDIA Corporation Device [10de:22a3] (rev a1)
0000:1b:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)
0000:c3:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev ff) (prog-if ff)
"""
VERBOSE = """\
1b:00.0 3D controller: NVIDIA Corporation GH100 (rev a1)
\tCapabilities: [60] Express (v2) Endpoint, MSI 00
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported
\t\tLnkCtl:\tASPM Disabled; RCB 64 bytes, Disabled- CommClk+
\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x8 (downgraded)
\t\t\tTrErr- Train- SlotClk+ DLActive- BWMgmt- ABWMgmt-
\t\tLnkCap2: Supported Link Speeds: 2.5-32GT/s, Crosslink- Retimer+ 2Retimers+ DRS-
\t\tLnkSta2: Current De-emphasis Level: -6dB, EqualizationComplete+
0001:02:00.0 Ethernet controller: a card without a link

0001:03:00.1 Bridge: old lspci
\t\tLnkCap:\tPort #0, Speed 8GT/s, Width x4, ASPM L1
\t\tLnkSta:\tSpeed 8GT/s, Width x4, TrErr- Train- SlotClk+
"""


def test_functions_are_read_whole():
    bridge, gpu, lost = parse_lspci(NODE)
    assert gpu == PciFunction("0000:1b:00.0", "0302", "10de", "2330", "a1", "NVIDIA Corporation GH100 [H100 SXM5 80GB]")
    assert [f.is_gpu for f in (bridge, gpu, lost)] == [False, True, True]
    assert [f.off_the_bus for f in (bridge, gpu, lost)] == [False, False, True]


def test_an_address_without_domain_gets_one():
    vga = "01:00.0 VGA compatible controller [0300]: NVIDIA Corporation TU102 [TITAN RTX] [10de:1e02] (rev a1)\n"
    assert parse_lspci(vga)[0].address == "0000:01:00.0"
    assert parse_lspci(vga)[0].is_gpu


def test_a_cut_answer_never_hides_a_revision():
    for end in range(len(NODE)):
        told = parse_lspci(NODE[:end])
        assert isinstance(told, Unknown) or told == parse_lspci(NODE)[: NODE[:end].count("\n")]


@pytest.mark.parametrize("line", ["lspci: Cannot open /proc/bus/pci", "1b:00.0 3D controller: without numbers"])
def test_a_line_that_is_no_function_is_unknown(line):
    assert line[:20] in parse_lspci(f"{NODE}{line}\n").why


def test_the_probe_finds_nothing_where_lspci_is_missing(answer):
    assert gpu_functions.read(answer(gpu_functions, status=127)) == Unknown("lspci is not installed")


def test_links_are_read_with_lspcis_words():
    assert parse_lspci_links(VERBOSE) == (
        PciLinkStatus("0000:1b:00.0", 32, 16, 2.5, 8, "downgraded", "downgraded"),
        PciLinkStatus("0001:03:00.1", 8, 4, 8, 4, "", ""),
    )


def test_a_cut_link_is_left_out():
    whole = parse_lspci_links(VERBOSE)
    for end in range(len(VERBOSE)):
        told = parse_lspci_links(VERBOSE[:end])
        assert isinstance(told, Unknown) or told == whole[: len(told)]


def test_without_root_lspci_hides_links():
    told = parse_lspci_links("1b:00.0 3D controller: NVIDIA\n\tCapabilities: <access denied>\n")
    assert told == Unknown("lspci shows no link status", needs_root=True)

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.probes.network.transceivers import OpticalReading, Transceiver, parse_transceivers, transceivers
from gpuops.probing import Unknown

# rows as scitix/sichek's mlxlink collector and mstflint's mlxlink spell them
OPTIC = """\
-- mlx5_0

Operational Info
----------------
State                              : \x1b[32mActive\x1b[0m
Physical state                     : LinkUp
Width                              : 4x
Troubleshooting Info
--------------------
Status Opcode                      : 0
Recommendation                     : No issue was observed
Tool Information
----------------
Firmware Version                   : 28.46.3048
Module Info
-----------
Temperature [C]                    : 54 [-5..75]
Rx Power Current [dBm]             : 1.886,-40,-11.2,1.976 [-10.41..6]
Tx Power Current [dBm]             : 1.562,1.427,1.559,1.761 [-8.508..5]
Vendor Name                        : CLT
Vendor Part Number                 : T-F4GS-BV0
Vendor Serial Number               : CWJH05025502589
Physical Counters and BER Info
------------------------------
Time Since Last Clear [Min]        : 12.5
Effective Physical BER             : 15E-255
Raw Physical BER                   : 2E-05
"""
# a passive cable whose sensors read zero, and one without sensors
COPPER = """\
-- mlx5_1
State                              : Active
Temperature [C]                    : 0 [0..0]
Rx Power Current [dBm]             : 0,0,0,0 [0..0]
-- mlx5_2
State                              : Polling
Temperature [C]                    : N/A
Rx Power Current [dBm]             : N/A
Effective Physical BER             : N/A
"""
REFUSED = "-- mlx5_3\n-E- You need root permission to run this tool\n"
END = "-- end\n"


def test_an_optic():
    port = parse_transceivers(OPTIC + END)["mlx5_0"]
    assert port == Transceiver(
        "Active",
        OpticalReading((54.0,), -5.0, 75.0),
        OpticalReading((1.886, -11.2, 1.976), -10.41, 6.0),
        OpticalReading((1.562, 1.427, 1.559, 1.761), -8.508, 5.0),
        15e-255,
        2e-5,
        12.5,
        "No issue was observed",
        "CLT T-F4GS-BV0 CWJH05025502589",
        "CWJH05025502589",
    )


def test_copper_has_neither_power_nor_temperature():
    ports = parse_transceivers(COPPER + END)
    assert ports == {"mlx5_1": Transceiver("Active"), "mlx5_2": Transceiver("Polling")}


def test_one_refused_port_leaves_the_others_and_is_unknown():
    ports = parse_transceivers(OPTIC + REFUSED + END)
    assert isinstance(ports["mlx5_0"], Transceiver)
    assert (ports["mlx5_3"].why, ports["mlx5_3"].needs_root) == (
        "mlxlink: -E- You need root permission to run this tool",
        True,
    )


def test_a_node_without_the_tool_or_without_a_device_has_none():
    assert parse_transceivers("-- mlx5_0\nno program\n" + END) == {}
    assert parse_transceivers(END) == {}


@pytest.mark.parametrize("text", ["", "\n", OPTIC, OPTIC + END + "more", "Segmentation fault"])
def test_truncated_and_other_answers_are_unknown(answer, text):
    assert isinstance(transceivers.read(answer(transceivers, text)), Unknown)


@given(st.text(max_size=60), st.integers(0, 600))
def test_any_text_is_read(noise, at):
    found = parse_transceivers((OPTIC + COPPER)[:at] + noise + (OPTIC + COPPER)[at:] + END)
    assert isinstance(found, (Unknown, dict))

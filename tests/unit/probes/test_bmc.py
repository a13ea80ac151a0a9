import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.probes.host.bmc import (
    BmcEvent,
    BmcPresence,
    EventLog,
    Sensor,
    bmc_event_log,
    bmc_events,
    bmc_presence,
    bmc_sensors,
)
from gpuops.probing import Unknown
from gpuops.shell import Completed

# influxdata/telegraf, plugins/inputs/ipmi_sensor/ipmi_sensor_test.go
SDR = """\
SEL              | 72h | ns  |  7.1 | No Reading
Intrusion        | 73h | ok  |  7.1 |
Fan1             | 30h | ok  |  7.1 | 5040 RPM
Unable to send command: Invalid argument
Power Supply 1   | 03h | ok  | 10.1 | 110 Watts, Presence detected
"""
# ipmitool, lib/ipmi_sel.c: before 1.8.19, from 1.8.19 on, before the clock was set, a maker's own record
SEL = """\
   1 |  Pre-Init  |0000000023| Physical Security #0x73 | General Chassis intrusion | Asserted
   2 | 06/14/2023 | 10:01:17 | Power Supply PS2 Status | Power Supply AC lost | Asserted
   3 | 12/14/22 | 23:09:44 CET | Temperature CPU1 Temp | Upper Critical going high | Asserted | Reading 95
  1e | OEM record e0 | 000000000000000000000000
   a | 06/14/2023 | 10:05:59 | Power Supply PS2 Status | Power Supply AC lost | Deasserted
"""
INFO = """\
SEL Information
Version          : 1.5 (v1.5, v2 compliant)
Entries          : 512
Free Space       : 0 bytes
Overflow         : true
"""


def read(probe, out, status=0, err=""):
    return probe.read(Completed("n1", probe.question, status, out, err))


def test_sensors_keep_words_and_skip_remarks():
    sensors = read(bmc_sensors, SDR)
    assert [s.name for s in sensors] == ["SEL", "Intrusion", "Fan1", "Power Supply 1"]
    assert sensors[3] == Sensor("Power Supply 1", "ok", "10.1", "110 Watts, Presence detected")


def test_events_of_every_release():
    events = read(bmc_events, SEL)
    assert [e.date for e in events] == ["Pre-Init", "06/14/2023", "12/14/22", "06/14/2023"]
    assert events[1] == BmcEvent(
        "2", "06/14/2023", "10:01:17", "Power Supply PS2 Status", "Power Supply AC lost", asserted=True
    )
    assert not events[3].asserted
    assert read(bmc_events, "", err="SEL has no entries\n") == ()


def test_header_of_the_log():
    assert read(bmc_event_log, INFO) == EventLog(512, overflowed=True)


def test_presence_is_a_device_or_a_declaration():
    assert read(bmc_presence, "") == BmcPresence(device=False, declared=False)
    assert read(bmc_presence, "/sys/class/ipmi/ipmi0\0\0") == BmcPresence(device=True, declared=False)
    assert read(bmc_presence, "/sys/firmware/dmi/entries/38-0\0\0").declared


@pytest.mark.parametrize("probe", [bmc_sensors, bmc_events, bmc_event_log], ids=lambda p: p.name)
@pytest.mark.parametrize("out", ["", "garbage\n", "Get SDR repository info failed\n", "||||\n", "\0"])
def test_other_answers_are_unknown(probe, out):
    assert isinstance(read(probe, out), Unknown)


@pytest.mark.parametrize("probe", [bmc_sensors, bmc_events, bmc_event_log], ids=lambda p: p.name)
def test_refusal_is_unknown_and_root_may_help(probe):
    refused = "Could not open device at /dev/ipmi0 or /dev/ipmi/0 or /dev/ipmidev/0: Permission denied\n"
    assert read(probe, "", 1, refused).needs_root
    missing = "Could not open device at /dev/ipmi0 or /dev/ipmi/0 or /dev/ipmidev/0: No such file or directory\n"
    assert isinstance(read(probe, "", 1, missing), Unknown)
    assert "not installed" in read(probe, "", 127).why


@given(st.integers(0, len(SDR) - 1))
def test_truncated_list_of_sensors_is_never_complete(length):
    sensors = read(bmc_sensors, SDR[:length])
    assert isinstance(sensors, Unknown) or SDR[length - 1] == "\n"


@given(st.text())
def test_parsers_are_total(text):
    for probe in (bmc_presence, bmc_sensors, bmc_events, bmc_event_log):
        read(probe, text)


@pytest.mark.parametrize(("probe", "out"), [(bmc_sensors, SDR), (bmc_events, SEL)])
def test_rows_of_a_failing_ipmitool_count_and_the_rest_is_unknown(probe, out):
    *rows, rest = read(probe, out, 1, "Unable to send command: Invalid argument\n")
    assert tuple(rows) == read(probe, out)
    assert rest == Unknown(f"{probe.question} exited with 1: Unable to send command: Invalid argument")


def test_header_of_the_log_of_a_failing_ipmitool_is_read_or_unknown():
    assert read(bmc_event_log, INFO, 1, "Unable to send command: Invalid argument\n") == read(bmc_event_log, INFO)
    assert isinstance(read(bmc_event_log, INFO.replace("Overflow ", "Over"), 1), Unknown)

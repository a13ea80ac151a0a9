"""Sensors and events of the BMC; the lab's own ipmitool gives the specimens."""

from dataclasses import replace

import pytest

from gpuops.lab.faults.catalogue import faulted
from gpuops.lab.tools.programs import run
from gpuops.probes.host.bmc import BmcPresence, bmc_event_log, bmc_events, bmc_sensors
from gpuops.probes.host.clock import Clock
from gpuops.probes.host.redfish import HardwarePart, RedfishReport
from gpuops.probing import Unknown
from gpuops.shell import Completed

PROBES = (bmc_sensors, bmc_events, bmc_event_log)
BOOTED = 1_780_000_000.0
UP = 1_200_000.0


def answered(h100, *faults):
    node = replace(faulted("hgx-h100", faults), booted=BOOTED)
    values = {}
    for probe in PROBES:
        answer = run(node, "ipmitool", probe.question.words[1:], root=True)
        values[probe.name] = probe.read(Completed("n1", probe.question, answer.code, answer.out, answer.err))
    system = replace(h100.values["system"], uptime_seconds=UP)
    return h100.but(**values, system=system, clock=Clock(BOOTED + UP, synchronized=True))


def found(machine):
    return [(f.part, f.severity, f.code) for f in machine.judge("bmc").findings]


def logging(h100, *rows):
    """The log of a healthy lab host, and further rows."""
    text = "".join(f" {number:x} | {row}\n" for number, row in enumerate(rows, start=1))
    return answered(h100).but(bmc_events=bmc_events.read(Completed("n1", bmc_events.question, 0, text)))


def sensing(h100, *rows):
    text = "".join(f"{row}\n" for row in rows)
    return answered(h100).but(bmc_sensors=bmc_sensors.read(Completed("n1", bmc_sensors.question, 0, text)))


def test_healthy_server_passes(h100):
    assert answered(h100).judge("bmc").status == "pass"
    assert not answered(h100).judge("bmc").findings


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        (("host:psu-lost=2",), [("PS2 Status", "warn", "supply")]),
        (
            ("host:psu-lost=2", "host:psu-lost=4", "host:psu-lost=6"),
            [("power feed", "fail", "supply")],
        ),
        (("host:fan-stopped=7",), [("FAN7", "fail", "fan")]),
        (("host:bus-error",), [("Critical Interrupt #0xff", "fail", "event")]),
        (("host:processor-error",), [("Processor CPU_CATERR", "warn", "event")]),
        (("host:sel-full",), [("bmc", "warn", "full")]),
    ],
)
def test_each_fault_of_the_lab_is_one_finding(h100, faults, expected):
    assert found(answered(h100, *faults)) == expected


def test_several_supplies_without_input_are_one_feed(h100):
    lost = [LOST.replace("PS2", f"PS{n}") for n in (1, 2, 3)]
    good = [f"PS{n} Status | C9h | ok  | 10.{n} | Presence detected" for n in (4, 5, 6, 7)]
    (finding,) = sensing(h100, *lost, *good).judge("bmc").findings
    assert (finding.part, finding.severity) == ("power feed", "warn")
    assert "3 power supplies have no input: PS1 Status, PS2 Status, PS3 Status" in finding.message
    failed = "PS8 Status | CBh | ok  | 10.8 | Presence detected, Failure detected, Power Supply AC lost"
    assert found(sensing(h100, *lost, *good, failed)) == [
        ("power feed", "fail", "supply"),
        ("PS8 Status", "fail", "supply"),
    ]
    assert found(sensing(h100, lost[0], *good, failed)) == [
        ("PS1 Status", "warn", "supply"),
        ("PS8 Status", "warn", "supply"),
    ]


def test_event_of_a_supply_without_feed_is_not_a_second_finding(h100):
    rows = (f"06/10/2026 | 10:01:17 | Power Supply PS{n} Status | Power Supply AC lost | Asserted" for n in (1, 2))
    lost = [LOST.replace("PS2", f"PS{n}") for n in (1, 2)]
    machine = logging(h100, *rows).but(bmc_sensors=sensing(h100, *lost).values["bmc_sensors"])
    assert found(machine) == [("power feed", "fail", "supply")]


def test_finding_names_the_words_of_sensor_and_redundancy(h100):
    machine = answered(h100, *(f"host:psu-lost={n}" for n in (1, 2, 3)))
    message = machine.judge("bmc").findings[0].message
    names = "PS1 Status, PS2 Status, PS3 Status"
    assert message == f"3 power supplies have no input: {names}; PS Redundancy: Redundancy Lost"


class TestNoBmc:
    def test_machine_without_one_is_skipped(self, h100):
        gone = dict.fromkeys(("bmc_sensors", "bmc_events", "bmc_event_log"), Unknown("ipmitool is not installed"))
        machine = h100.but(bmc_presence=BmcPresence(device=False, declared=False), **gone)
        assert machine.judge("bmc").status == "skipped"
        declared = machine.but(bmc_presence=BmcPresence(device=False, declared=True))
        assert declared.judge("bmc").status == "unknown"
        guest = declared.but(system=replace(h100.values["system"], virtual=True))
        assert guest.judge("bmc").status == "skipped"

    @pytest.mark.parametrize("probe", [p.name for p in PROBES])
    def test_answer_that_is_missing_is_unknown(self, h100, probe):
        machine = answered(h100).but(**{probe: Unknown("ipmitool sdr elist did not answer in 60 s")})
        assert machine.judge("bmc").status == "unknown"

    def test_fault_is_told_beside_an_answer_that_is_missing(self, h100):
        machine = answered(h100, "host:fan-stopped=1").but(bmc_events=Unknown("timed out"))
        assert machine.judge("bmc").status == "fail"


class TestSensors:
    def test_one_of_two_supplies_leaves_no_redundancy(self, h100):
        rows = ("PS1 Status       | C8h | ok  | 10.1 | Presence detected, Failure detected",)
        rows += ("PS2 Status       | C9h | ok  | 10.2 | Presence detected",)
        assert found(sensing(h100, *rows)) == [("PS1 Status", "fail", "supply")]

    def test_empty_bay_warns_at_most(self, h100):
        rows = ("PS1 Status       | C8h | ok  | 10.1 | Presence detected",)
        rows += ("PS2 Status       | C9h | ok  | 10.2 | ",)
        assert found(sensing(h100, *rows)) == [("PS2 Status", "warn", "supply")]

    def test_redundancy_alone_warns(self, h100):
        row = "PS Redundancy    | 77h | ok  |  7.1 | Redundancy Lost"
        assert found(sensing(h100, row)) == [("PS Redundancy", "warn", "supply")]

    @pytest.mark.parametrize(
        ("row", "severity"),
        [
            ("FAN1             | 30h | cr  | 29.1 | 420 RPM", ["fail"]),
            ("FAN1             | 30h | nr  | 29.1 | 0 RPM", ["fail"]),
            ("FAN1             | 30h | nc  | 29.1 | 1400 RPM", []),
            ("FAN1             | 30h | ns  | 29.1 | No Reading", []),
            ("FAN1             | 30h | ns  | 29.1 | Disabled", []),
            ("CPU1 Temp        | 01h | nr  |  3.1 | 101 degrees C", ["warn"]),
            ("12V              | 31h | nc  |  7.1 | 12.90 Volts", []),
            ("Fan 1A Tach      | 41h | ok  | 29.1 | 0 RPM", []),  # no fellow of its kind turns
        ],
    )
    def test_states_of_other_sensors(self, h100, row, severity):
        assert [f.severity for f in sensing(h100, row).judge("bmc").findings] == severity


class TestEvents:
    # facebookresearch/gcm, check_ipmitool.py: a voltage asserted, a fatal error that was deasserted
    def test_specimen_that_passes_elsewhere_passes(self, h100):
        rows = (
            "06/10/2026 | 10:01:17 | Voltage P12V | Upper Non-critical going high | Asserted",
            "06/10/2026 | 10:01:18 | Critical Interrupt #0xff | Bus Fatal Error | Asserted",
            "06/10/2026 | 10:01:19 | Critical Interrupt #0xff | Bus Fatal Error | Deasserted",
            "06/10/2026 | 10:01:21 | Processor CPU1_IERR | Presence detected | Asserted",
            "06/10/2026 | 10:01:22 | Processor CPU2 | IERR | Asserted",
            "06/10/2026 | 10:01:23 | Processor CPU2 | IERR | Deasserted",
            "06/10/2026 | 10:01:20 | Memory #0x53 | Correctable ECC | Asserted",
        )
        assert found(logging(h100, *rows)) == []

    @pytest.mark.parametrize(
        ("row", "severity"),
        [
            ("06/10/2026 | 10:01:17 | Power Supply PS2 Status | Power Supply AC lost | Asserted", "fail"),
            ("06/10/26 | 10:01:17 CEST | Memory CPU1 DIMM_B2 | Uncorrectable ECC | Asserted", "fail"),
            ("06/10/2026 | 10:01:17 | Critical Interrupt #0x01 | PCI SERR | Asserted", "fail"),
            ("06/10/2026 | 10:01:17 | Processor CPU1 | Throttled | Asserted", "warn"),
            ("06/10/2026 | 10:01:17 | Temperature GPU5 | Upper Critical going high | Asserted", "warn"),
            ("06/10/2026 | 10:01:17 | Drive Slot / Bay #0x53 | Drive Fault | Asserted", "warn"),
            ("03/10/2024 | 10:01:17 | Temperature GPU5 | Upper Critical going high | Asserted", "info"),
            ("06/10/2026 | 10:01:17 | Processor CPU_CATERR | IERR | Asserted", "warn"),
            ("06/10/2026 | 10:01:17 | Processor #0x0a | Thermal Trip | Asserted", "warn"),
            ("03/10/2024 | 10:01:17 | Processor CPU_CATERR | IERR | Asserted", "info"),
            ("03/10/2024 | 10:01:17 | Memory CPU1 DIMM_B2 | Uncorrectable ECC | Asserted", "info"),
            ("Pre-Init  |0000000023| Memory CPU1 DIMM_B2 | Uncorrectable ECC | Asserted", "warn"),
            ("01/01/1970 | 00:05:17 | Memory CPU1 DIMM_B2 | Uncorrectable ECC | Asserted", "warn"),
        ],
    )
    def test_grave_event_counts_since_boot(self, h100, row, severity):
        assert [f.severity for f in logging(h100, row).judge("bmc").findings] == [severity]

    def test_without_the_time_of_boot_it_warns(self, h100):
        row = "03/10/2024 | 10:01:17 | Memory CPU1 DIMM_B2 | Uncorrectable ECC | Asserted"
        machine = logging(h100, row).but(clock=Unknown("no answer"))
        assert [f.severity for f in machine.judge("bmc").findings] == ["warn"]


LOST = "PS2 Status       | C9h | ok  | 10.2 | Presence detected, Power Supply AC lost"
GOOD = "PS1 Status       | C8h | ok  | 10.1 | Presence detected"
ASSERTED = "06/14/2026 | 10:01:17 | Power Supply PS9 Status | Power Supply AC lost | Asserted"
FAILURE = "Unable to send command: Invalid argument\n"


def failing(probe, text):
    return {probe.name: probe.read(Completed("n1", probe.question, 1, text, FAILURE))}


def test_a_list_that_ends_early_fails_no_supply_for_rows_that_are_missing(h100):
    machine = sensing(h100, GOOD, LOST)
    assert found(machine) == [("PS2 Status", "fail", "supply")]
    partial = machine.but(**failing(bmc_sensors, f"{GOOD}\n{LOST}\n"))
    assert found(partial) == [("PS2 Status", "warn", "supply")]
    healthy = machine.but(**failing(bmc_sensors, f"{GOOD}\n"))
    assert (healthy.judge("bmc").status, found(healthy)) == ("unknown", [])


def test_a_supply_that_redfish_calls_good_only_warns(h100):
    machine = sensing(h100, GOOD, LOST)
    (finding,) = machine.judge("bmc").findings
    assert finding.fix.startswith("look at the power cord")
    supplies = [HardwarePart("supply", name, name, "Enabled", "OK") for name in ("PS1", "PS2")]
    (finding,) = machine.but(redfish=RedfishReport(parts=tuple(supplies))).judge("bmc").findings
    assert (finding.part, finding.severity) == ("PS2 Status", "warn")
    assert "over Redfish" in finding.message
    supplies[1] = replace(supplies[1], line_input="LossOfInput")
    assert machine.but(redfish=RedfishReport(parts=tuple(supplies))).judge("bmc").findings == ()


def test_an_event_whose_end_may_be_missing_only_warns(h100):
    row = f" 1 | {ASSERTED}\n"
    machine = answered(h100).but(clock=Clock(1_781_500_000.0, synchronized=True))
    whole = machine.but(bmc_events=bmc_events.read(Completed("n1", bmc_events.question, 0, row)))
    assert found(whole) == [("Power Supply PS9 Status", "fail", "event")]
    assert found(machine.but(**failing(bmc_events, row))) == [("Power Supply PS9 Status", "warn", "event")]
